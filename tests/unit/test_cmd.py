"""The command as its users and their manifests see it: texts, streams, statuses, and the options that reach the manager."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from kcm import cmd, logs
from kcm.api.errors import ConfigError
from kcm.cmd import CommandError, build_command
from kcm.command_line import FLAGS
from kcm.flags import FlagCommand
from kcm.options import LeaderElectionOptions, LoggingOptions, Options, WorkerOptions
from tests.kubeadm import MANIFEST, NETWORKS

STOCK = json.loads(files("kcm").joinpath("stock_flags.json").read_text())


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logs.configure()
    root.handlers[:] = handlers
    root.setLevel(level)


class Kcm:
    """Runs the command in this process with a manager that only notes its options."""

    def __init__(self) -> None:
        self.ran: list[Options] = []
        self.ends_with: int | Exception = 0

    def _run(self, options: Options) -> int:
        self.ran.append(options)
        if isinstance(self.ends_with, Exception):
            raise self.ends_with
        return self.ends_with

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(build_command(self._run), args, prog_name="kcm", catch_exceptions=False)

    def options(self, *args: str) -> Options:
        result = self(*args)
        assert (result.exit_code, len(self.ran)) == (0, 1), result.stderr
        return self.ran.pop()

    def failure(self, *args: str) -> str:
        """The text of the one line that the log has of a failed start."""
        result = self(*args)
        assert (result.exit_code, result.stdout, self.ran) == (1, "", [])
        match = re.fullmatch(r'E.*?\] "command failed" err="(.*)"\n', result.stderr)
        assert match, result.stderr
        return match[1].replace('\\"', '"')


@pytest.fixture
def kcm() -> Kcm:
    return Kcm()


def test_without_flags_the_options_are_the_defaults(kcm: Kcm) -> None:
    assert kcm.options() == Options()


@pytest.mark.row("C-002", "C-043")
@pytest.mark.parametrize(
    ("arg", "problem"),
    [
        ("--foo", "unknown flag: --foo"),
        ("--config=x", "unknown flag: --config"),
        (
            "--kube-api-qps=abc",
            'invalid argument "abc" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "abc": invalid syntax',
        ),
        (
            "--min-resync-period=5",
            'invalid argument "5" for "--min-resync-period" flag: time: missing unit in duration "5"',
        ),
    ],
)
def test_a_command_line_that_cannot_be_read_prints_usage_and_problem(kcm: Kcm, arg: str, problem: str) -> None:
    result = kcm("--kubeconfig=x", arg)
    assert (result.exit_code, result.stdout, kcm.ran) == (1, "", [])
    assert result.stderr == f"Usage: kcm [flags]\nError: {problem}\n"


@pytest.mark.row("C-004")
def test_there_is_no_configuration_file(kcm: Kcm) -> None:
    assert kcm("--config", "x").stderr.endswith("Error: unknown flag: --config\n")
    assert " --config " not in kcm("--help").stdout


@pytest.mark.row("C-003")
def test_arguments_are_refused_unless_empty(kcm: Kcm) -> None:
    result = kcm("x", "", 'a "b"', "--v=1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == 'Error: "kcm" does not take any arguments, got ["x" "" "a \\"b\\""]\n'
    assert kcm.options("", "") == Options()


@pytest.mark.row("C-144")
def test_a_boolean_takes_no_separate_argument(kcm: Kcm) -> None:
    result = kcm("--leader-elect", "false")
    assert (result.exit_code, result.stderr) == (1, 'Error: "kcm" does not take any arguments, got ["false"]\n')
    assert not kcm.options("--leader-elect=false").leader_election.leader_elect


@pytest.mark.row("C-005", "C-006", "C-142")
@pytest.mark.parametrize("arg", ["--help", "-h", "-h=true"])
def test_help_shows_the_flags_in_their_groups_on_standard_output(kcm: Kcm, arg: str) -> None:
    result = kcm(arg, "x")
    assert (result.exit_code, result.stderr, kcm.ran) == (0, "", [])
    assert result.stdout.startswith("kcm runs Kubernetes' workload controllers")
    assert "\n\nUsage:\n  kcm [flags]\n\nDebugging flags:\n\n" in result.stdout
    assert re.findall(r"^(\S.*) flags:$", result.stdout, re.MULTILINE) == STOCK["groups"]
    assert "-untagged-cloud" not in result.stdout
    assert re.search(r"^      --kube-api-burst int32 +\S.* \(default 30\)$", result.stdout, re.MULTILINE)
    assert re.search(
        r'^      --leader-elect-resource-lock string +\S.* \(default "leases"\)$', result.stdout, re.MULTILINE
    )
    assert re.search(r"^      --leader-elect +\S.* \(default true\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^  -v, --v Level +\S.*[^)]$", result.stdout, re.MULTILINE)
    assert re.search(r"^      --version version\[=true\] ", result.stdout, re.MULTILINE)


def test_a_bad_flag_counts_more_than_help(kcm: Kcm) -> None:
    assert kcm("--help", "--foo").exit_code == 1


@pytest.mark.row("C-007")
def test_versions(kcm: Kcm) -> None:
    result = kcm("--version")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Kubernetes v1.37.2\n", "")
    raw = kcm("--version=raw").stdout
    assert raw.startswith('version.Info{Major:"1", Minor:"37", ')
    assert 'GitVersion:"v1.37.2"' in raw
    assert kcm.ran == []
    assert kcm.options("--version=v1.37.2-mine+1").version == "v1.37.2-mine+1"
    assert kcm.options("--version=false").version == "v1.37.2"
    for value, problem in {
        "v9.9.9": 'version "v9.9.9" must match major/minor/patch of default version "v1.37.2"',
        "vfoo": 'could not parse "vfoo" as version',
        "maybe": 'strconv.ParseBool: parsing "maybe": invalid syntax',
    }.items():
        result = kcm(f"--version={value}")
        assert result.exit_code == 1
        assert result.stderr.endswith(f'Error: invalid argument "{value}" for "--version" flag: {problem}\n')
    assert kcm("--version", "false").stderr == 'Error: "kcm" does not take any arguments, got ["false"]\n'


@pytest.mark.row("C-008")
def test_version_does_not_hide_bad_flags_and_gates(kcm: Kcm) -> None:
    assert kcm("--version", "--foo").stderr.endswith("Error: unknown flag: --foo\n")
    assert kcm.failure("--version", "--feature-gates=Nope=true") == "unrecognized feature gate: Nope"


@pytest.mark.row("C-009")
def test_all_flags_are_logged_at_verbosity_1(kcm: Kcm) -> None:
    lines = kcm(
        "--controllers=deployment,-job", "--kube-api-qps=0.1", "--min-resync-period=90m", "-v1"
    ).stderr.splitlines()
    logged = [line.partition("] ")[2] for line in lines if "FLAG: " in line]
    assert logged == sorted(logged, key=lambda line: line.partition("=")[0])
    assert {
        'FLAG: --controllers="[deployment,-job]"',
        'FLAG: --feature-gates=""',
        'FLAG: --help="false"',
        'FLAG: --kube-api-qps="0.1"',
        'FLAG: --leader-elect="true"',
        'FLAG: --leader-elect-retry-period="2s"',
        'FLAG: --min-resync-period="1h30m0s"',
        'FLAG: --v="1"',
        'FLAG: --version="false"',
    } <= set(logged)
    assert len(logged) == 150
    assert "FLAG" not in kcm("--controllers=deployment").stderr


@pytest.mark.row("C-015", "C-055")
def test_controllers_are_all_unless_named(kcm: Kcm) -> None:
    assert kcm.options().generic.controllers == ("*",)
    generic = kcm.options("--controllers=deployment", "--controllers", "-job,replicaset").generic
    assert generic.controllers == ("deployment", "-job", "replicaset")


@pytest.mark.row("C-016", "C-017", "C-018", "C-019")
def test_flags_of_the_election(kcm: Kcm) -> None:
    assert kcm.options().leader_election == LeaderElectionOptions(
        leader_elect=True,
        lease_duration=15.0,
        renew_deadline=10.0,
        retry_period=2.0,
        resource_lock="leases",
        resource_name="kube-controller-manager",
        resource_namespace="kube-system",
    )
    assert kcm.options(
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=500ms",
        "--leader-elect-resource-name=kcm",
        "--leader-elect-resource-namespace=default",
    ).leader_election == LeaderElectionOptions(
        lease_duration=3.0, renew_deadline=2.0, retry_period=0.5, resource_name="kcm", resource_namespace="default"
    )
    assert kcm.failure("--leader-elect-resource-lock=configmaps") == 'resourceLock value must be "leases"'
    without = kcm.options("--leader-elect=false", "--leader-elect-resource-lock=configmaps").leader_election
    assert (without.leader_elect, without.resource_lock) == (False, "configmaps")


@pytest.mark.row("C-045")
def test_election_timings_that_break_the_rules_are_refused(kcm: Kcm) -> None:
    assert kcm.failure("--leader-elect-lease-duration=10s") == "leaseDuration must be greater than renewDeadline"
    assert (
        kcm.failure("--leader-elect-retry-period=9s") == "renewDeadline must be greater than retryPeriod*JitterFactor"
    )


@pytest.mark.row("C-036", "C-037", "C-038", "C-039")
def test_flags_of_the_controllers(kcm: Kcm) -> None:
    assert kcm.options().workers == WorkerOptions(
        concurrent_deployment_syncs=5,
        concurrent_replicaset_syncs=5,
        concurrent_rc_syncs=5,
        concurrent_statefulset_syncs=5,
    )
    assert kcm.options(
        "--concurrent-deployment-syncs=1",
        "--concurrent-replicaset-syncs=0",
        "--concurrent_rc_syncs=3",
        "--concurrent-statefulset-syncs=4",
    ).workers == WorkerOptions(
        concurrent_deployment_syncs=1,
        concurrent_replicaset_syncs=0,
        concurrent_rc_syncs=3,
        concurrent_statefulset_syncs=4,
    )


def test_every_other_flag_reaches_its_option(kcm: Kcm) -> None:
    options = kcm.options(
        "--min-resync-period=1m30s",
        "--kube-api-qps=5000",
        "--kube-api-burst=5001",
        "--kube-api-content-type=application/json",
        "--controller-start-interval=1.5s",
        "--controller-shutdown-timeout=0",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--cert-dir=/certs",
        "--tls-cert-file=/crt",
        "--tls-private-key-file=/key",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
        "--v=3",
        "--vmodule=replica_set=4,sync*=5",
        "--log-flush-frequency=1s",
        "--master=https://127.0.0.1:6443",
        "--kubeconfig=/config",
        "--feature-gates=PodDeletionCost=false",
    )
    generic, serving = options.generic, options.serving
    assert (generic.min_resync_period, generic.kube_api_qps, generic.kube_api_burst) == (90.0, 5000.0, 5001)
    assert (generic.controller_start_interval, generic.controller_shutdown_timeout) == (1.5, 0.0)
    assert generic.kube_api_content_type == "application/json"
    assert (serving.bind_address, serving.secure_port, serving.cert_dir) == ("127.0.0.1", 0, "/certs")
    assert (serving.tls_cert_file, serving.tls_private_key_file) == ("/crt", "/key")
    assert serving.tls_min_version == "VersionTLS13"
    assert serving.tls_cipher_suites == ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384")
    assert options.logging == LoggingOptions(
        verbosity=3, vmodule=(("replica_set", 4), ("sync*", 5)), flush_frequency=1.0
    )
    assert (options.master, options.kubeconfig) == ("https://127.0.0.1:6443", "/config")
    assert not options.feature_gates.enabled("PodDeletionCost")


@pytest.mark.row("C-041", "C-042", "C-054")
def test_all_problems_are_one_line_of_the_log(kcm: Kcm) -> None:
    assert kcm.failure("--controllers=foo") == '"foo" is not in the list of known controllers'
    assert kcm.failure("--controllers=foo,-bar,-*", "--leader-elect-resource-lock=x", "--secure-port=70000") == (
        '[resourceLock value must be "leases", "foo" is not in the list of known controllers, '
        '"bar" is not in the list of known controllers, "*" is not in the list of known controllers, '
        "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0]"
    )


@pytest.mark.row("C-044")
def test_gates_are_checked_before_anything_runs(kcm: Kcm) -> None:
    assert kcm.failure("--feature-gates=Nope=true") == "unrecognized feature gate: Nope"
    assert kcm.failure("--feature-gates=NodeSwap=false") == (
        "cannot set feature gate NodeSwap to false, feature is locked to true"
    )


@pytest.mark.row("C-035", "C-047")
def test_logging_flags_that_do_not_work_are_told_in_text(kcm: Kcm) -> None:
    assert kcm.failure("--logging-format=foo") == 'format: Invalid value: "foo": Unsupported log format'
    assert (
        kcm.failure("--logging-format=json", "--vmodule=a=1")
        == "vmodule: Forbidden: Only supported for text log format"
    )


@pytest.mark.row("C-042")
def test_a_failed_start_is_one_line_in_the_chosen_format(kcm: Kcm) -> None:
    kcm.ends_with = CommandError("stat /nope: no such file or directory")
    result = kcm("--controllers=deployment", "--logging-format=json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(
        r'\{"ts":[\d.]+,"caller":"kcm/cmd.py:\d+","msg":"command failed","err":"stat /nope: no such file or directory"\}\n',
        result.stderr,
    )


def test_the_managers_status_is_the_processs(kcm: Kcm) -> None:
    kcm.ends_with = 7
    assert kcm("--controllers=deployment").exit_code == 7


def test_a_failure_that_nobody_foresaw_is_logged_with_its_traceback(kcm: Kcm) -> None:
    kcm.ends_with = ValueError("surprise")
    result = kcm("--controllers=deployment")
    assert result.exit_code == 2
    assert 'err="surprise" stacktrace=<' in result.stderr
    assert "\tValueError: surprise\n" in result.stderr


def test_controllers_asked_for_by_name_that_kcm_lacks_are_warned_of(kcm: Kcm) -> None:
    result = kcm("--controllers=*,job,cronjob,-ttl")
    warnings = [line for line in result.stderr.splitlines() if line.startswith("W")]
    assert len(warnings) == 1
    assert 'controllers=["cronjob-controller","job-controller"]' in warnings[0]
    assert kcm("--controllers=deployment,replicaset").stderr == ""
    assert kcm().stderr == ""


def test_alpha_gates_are_warned_of_in_the_chosen_format(kcm: Kcm) -> None:
    result = kcm(
        "--controllers=deployment", "--logging-format=json", "--feature-gates=StatefulSetRecreateStrategy=true"
    )
    assert '"features":["StatefulSetRecreateStrategy"]' in result.stderr


def test_a_tree_built_by_hand_equals_one_from_flags(kcm: Kcm) -> None:
    assert kcm.options("--kubeconfig=/config", "-v2") == replace(
        Options(), kubeconfig="/config", logging=LoggingOptions(verbosity=2)
    )


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_help_does_not_wait_for_the_manager_to_be_imported() -> None:
    heavy = ["aiohttp", "kubernetes", "prometheus_client", "kcm.controllermanager"]
    result = python(f"import sys, kcm.cmd; print([name for name in {heavy} if name in sys.modules])")
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_an_interrupt_ends_the_process_as_the_signal_does() -> None:
    result = python(
        "import os, signal, sys, kcm.cmd\n"
        "kcm.cmd._run_manager = lambda options: os.kill(os.getpid(), signal.SIGINT) or 0\n"
        "sys.argv = ['kcm', '--controllers=deployment']\n"
        "kcm.cmd.main()\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


def test_the_module_is_the_command() -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    result = subprocess.run(
        [sys.executable, "-m", "kcm", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "Kubernetes v1.37.2\n", "")


class FakeManagerError(Exception):
    pass


@pytest.mark.parametrize(
    "problem",
    [ConfigError("no configuration"), FakeManagerError("port in use"), FileNotFoundError(2, "No such file", "/nope")],
)
def test_a_manager_that_cannot_start_is_told_of_in_one_line(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    manager = SimpleNamespace(run=Mock(side_effect=problem), ManagerError=FakeManagerError)
    monkeypatch.setitem(sys.modules, "kcm.controllermanager", manager)
    with pytest.raises(CommandError) as failure:
        cmd._run_manager(Options())
    assert str(failure.value) == str(problem)


_BY_ROW = {
    "C-010": "min-resync-period",
    "C-012": "kube-api-content-type",
    "C-013": "controller-start-interval",
    "C-014": "controller-shutdown-timeout",
    "C-022": "(emulated|min-compatibility)-version",
    "C-023": ".*profiling",
    "C-024": ".*leader-migration.*",
    "C-026": "bind-address|secure-port",
    "C-028": "tls-.*|http2-.*|.*http2-serving|permit-.*",
    "C-030": "authentication-.*|client-ca-file",
    "C-031": "requestheader-.*",
    "C-032": "authorization-.*",
    "C-033": ".*metric.*",
    "C-034": "log.*|v|vmodule",
    "C-142": ".*",
}


@pytest.mark.parametrize("pattern", [pytest.param(p, marks=pytest.mark.row(row), id=row) for row, p in _BY_ROW.items()])
def test_every_flag_has_the_stock_managers_group_type_and_default(pattern: str) -> None:
    flags = {flag.long: flag for flag in FlagCommand("kcm", FLAGS, lambda: None, "").flags}
    assert flags.keys() == STOCK["flags"].keys()
    names = [name for name in flags if re.fullmatch(pattern, name)]
    assert names
    for name in names:
        flag, facts = flags[name], STOCK["flags"][name]
        shown = (flag.group, flag.value_type.name, flag.value_type.write(flag.value), flag.hidden)
        assert shown == (facts["group"], facts["type"], facts["default"], facts.get("hidden", False)), name


@pytest.mark.row("C-141")
@pytest.mark.parametrize(
    ("wrong", "value", "kind"),
    [
        ("concurrent-gc-syncs", "1.5", "int32"),
        ("namespace-sync-period", "5", "duration"),
        ("node-eviction-rate", "x", "float32"),
        ("horizontal-pod-autoscaler-tolerance", "x", "float"),
        ("allocate-node-cidrs", "maybe", ""),
    ],
)
def test_flags_of_other_controllers_are_checked_by_their_types(kcm: Kcm, wrong: str, value: str, kind: str) -> None:
    assert STOCK["flags"][wrong]["type"] == kind
    result = kcm(f"--{wrong}={value}")
    assert result.exit_code == 1
    assert f'Error: invalid argument "{value}" for "--{wrong}" flag: ' in result.stderr


@pytest.mark.row("C-138", "C-139")
def test_a_kubeadm_command_line_is_taken_and_says_once_what_is_without_effect(kcm: Kcm) -> None:
    result = kcm(*MANIFEST, *NETWORKS)
    assert result.exit_code == 0
    (options,) = kcm.ran
    assert options.authentication.kubeconfig == options.authorization.kubeconfig == options.kubeconfig
    assert options.authentication.client_ca_file == "/etc/kubernetes/pki/ca.crt"
    assert options.authentication.request_header.client_ca_file == "/etc/kubernetes/pki/front-proxy-ca.crt"
    warnings = [line for line in result.stderr.splitlines() if "without effect" in line]
    assert len(warnings) == 1
    assert re.findall(r'"(--[\w-]+)"', warnings[0]) == [
        "--allocate-node-cidrs",
        "--cluster-cidr",
        "--cluster-signing-cert-file",
        "--cluster-signing-key-file",
        "--root-ca-file",
        "--service-account-private-key-file",
        "--service-cluster-ip-range",
    ]
    external = kcm("--cluster-signing-cert-file=", "--cluster-signing-key-file=")
    assert external.exit_code == 0
    assert "without effect" not in external.stderr


def test_a_flag_that_goes_away_is_told_to_who_uses_it(kcm: Kcm) -> None:
    assert "Flag --node-sync-period has been deprecated, it has no effect\n" in kcm("--node-sync-period=5s").stderr


@pytest.mark.row("C-022")
def test_an_emulated_release_brings_its_gates(kcm: Kcm) -> None:
    gates = kcm.options("--emulated-version=1.36").feature_gates
    assert (gates.emulated, gates.enabled("MaxUnavailableStatefulSet")) == ((1, 36), False)
    assert kcm.options("--emulated-version=kube=1.37").feature_gates.enabled("MaxUnavailableStatefulSet")
    assert (
        kcm("--version=raw", "--emulated-version=1.35").stdout.count('EmulationMinor:"35", MinCompatibilityMajor:"1"')
        == 1
    )
