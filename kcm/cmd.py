"""The command `kcm`: flags become `Options`, and a runner runs them.

Follows cmd/kube-controller-manager/app/controllermanager.go:NewControllerManagerCommand and component-base cli/run.go. In
order: all flags are read, feature gates are set, --version prints and leaves, logging is set up, the flags are logged, the
options are validated, the manager runs. A command line that cannot be read is told in plain words with the usage; whatever
goes wrong after that is one line `"command failed" err="…"` of the log. Both end with status 1.
"""

import platform
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from kcm import KUBERNETES_VERSION, __version__, logs
from kcm.features import aggregate, parse_feature_gates, split_feature_gates
from kcm.flags import (
    BOOL,
    DURATION,
    FLOAT32,
    INT,
    INT32,
    IP,
    LEVEL,
    STRING,
    STRINGS,
    VMODULE,
    Flag,
    FlagCommand,
    FlagType,
)
from kcm.gotext import parse_bool, quote
from kcm.options import DISABLED_BY_DEFAULT, IMPLEMENTED_CONTROLLERS, KNOWN_CONTROLLERS, Options, resolve_aliases

T = TypeVar("T")
#: Runs until the end and gives the exit status; `CommandError` is for failures that one line explains.
Runner = Callable[[Options], int]

log = logs.get_logger(__name__)

DESCRIPTION = """\
kcm runs Kubernetes' workload controllers against an API server: it keeps Deployments
and ReplicaSets rolled out and their pods at the wanted number, as the workload part of
kube-controller-manager does, and takes that manager's flags. Of several replicas only
the one that holds the Lease acts."""


class CommandError(Exception):
    """The manager could not start or go on; the text is all that there is to say."""


class _FeatureGatesType(FlagType[tuple[tuple[str, str], ...]]):
    name = "colonSeparatedMultimapStringString"

    def read(self, text: str) -> tuple[tuple[str, str], ...]:
        return split_feature_gates(text)

    def write(self, value: tuple[tuple[str, str], ...]) -> str:
        return ",".join(f"{component}:{setting}" for component, setting in sorted(value, key=lambda pair: pair[0]))

    def merge(
        self, before: tuple[tuple[str, str], ...], now: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[str, str], ...]:
        return before + now


class _VersionType(FlagType[str]):
    """`false`, `true` and `raw` say what to print; `vX.Y.Z…` what release to report, if it is the one that kcm follows."""

    name = "version"
    bare = "true"

    def read(self, text: str) -> str:
        if text == "raw":
            return text
        if not text.startswith("v"):
            return "true" if parse_bool(text) else "false"
        found = re.fullmatch(r"v(\d+\.\d+\.\d+)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", text)
        if found is None:
            raise ValueError(f"could not parse {quote(text)} as version")
        if f"v{found[1]}" != KUBERNETES_VERSION:
            raise ValueError(
                f"version {quote(text)} must match major/minor/patch of default version {quote(KUBERNETES_VERSION)}"
            )
        return text

    def write(self, value: str) -> str:
        return value

    def is_zero(self, value: str) -> bool:
        return value == "false"


FEATURE_GATES = Flag(
    "feature-gates",
    _FeatureGatesType(),
    (),
    "Feature gates to set, as [kube:]Name=true|false,…; gates of all Kubernetes components are accepted. May be repeated.",
    group="Generic",
)
VERSION = Flag(
    "version",
    _VersionType(),
    "false",
    "Prints the Kubernetes release that this follows, or all that there is to tell with --version=raw, and exits; "
    "--version=vX.Y.Z... sets the release that is reported",
    group="Global",
)

_CONTROLLERS_HELP = (
    "Controllers to run: '*' stands for all that are on by default, 'foo' switches the controller named 'foo' on, '-foo' "
    "switches it off; the first item that names a controller counts.\n"
    f"Controllers in kcm: {', '.join(IMPLEMENTED_CONTROLLERS)}\n"
    f"Accepted too: {', '.join(name for name in KNOWN_CONTROLLERS if name not in IMPLEMENTED_CONTROLLERS)}\n"
    f"Disabled by default: {', '.join(sorted(DISABLED_BY_DEFAULT))}"
)
_DEFAULTS = Options()


class _Entry(NamedTuple):
    """A flag and the field of `Options` that it fills, as `section.field` or `field`."""

    target: str
    flag: Flag[Any]


def _flag(target: str, kind: FlagType[T], text: str, *, name: str = "", shorthand: str = "") -> Callable[[str], _Entry]:
    """A flag whose default is that of its field, and whose name is the field's unless given; it still needs its group."""
    default: Any = _DEFAULTS
    for part in target.split("."):
        default = getattr(default, part)
    name = name or target.rpartition(".")[2].replace("_", "-")
    return lambda group: _Entry(target, Flag(name, kind, default, text, group=group, shorthand=shorthand))


# The groups stand in the order of the stock manager's help, which sorts the flags of each.
_GROUPS = {
    "Generic": (
        _flag(
            "generic.min_resync_period",
            DURATION,
            "Informers go over all of their objects again after a random time between this and twice this.",
        ),
        _flag("generic.kube_api_content_type", STRING, "Accepted; kcm uses the content types that it needs."),
        _flag("generic.kube_api_qps", FLOAT32, "Requests per second of each client to the API server in the long run."),
        _flag("generic.kube_api_burst", INT32, "Requests of each client to the API server at once after a pause."),
        _flag(
            "generic.controller_start_interval",
            DURATION,
            "Each controller starts after a random time between this and twice this.",
        ),
        _flag(
            "generic.controller_shutdown_timeout",
            DURATION,
            "How long to wait for the controllers when the process is told to stop; 0 waits without limit.",
        ),
        _flag("generic.controllers", STRINGS, _CONTROLLERS_HELP),
        _flag(
            "generic.use_service_account_credentials",
            BOOL,
            "Each controller speaks as its own service account in kube-system, with a token asked for it.",
        ),
        _flag(
            "leader_election.leader_elect", BOOL, "Act only while holding the Lease, so that several replicas may run."
        ),
        _flag(
            "leader_election.lease_duration",
            DURATION,
            "How long the other replicas take an unrenewed Lease for held.",
            name="leader-elect-lease-duration",
        ),
        _flag(
            "leader_election.renew_deadline",
            DURATION,
            "How long the leader tries to renew the Lease before it gives up; less than the lease duration.",
            name="leader-elect-renew-deadline",
        ),
        _flag(
            "leader_election.retry_period",
            DURATION,
            "Time between two attempts to take or to renew the Lease.",
            name="leader-elect-retry-period",
        ),
        _flag(
            "leader_election.resource_lock",
            STRING,
            "Kind of object that is the lock; only 'leases'.",
            name="leader-elect-resource-lock",
        ),
        _flag(
            "leader_election.resource_name",
            STRING,
            "Name of the Lease. Beside a stock manager that keeps the default, choose another.",
            name="leader-elect-resource-name",
        ),
        _flag(
            "leader_election.resource_namespace",
            STRING,
            "Namespace of the Lease.",
            name="leader-elect-resource-namespace",
        ),
    ),
    "Secure serving": (
        _flag("serving.bind_address", IP, "Address to serve HTTPS on; blank, 0.0.0.0 and :: stand for all interfaces."),
        _flag("serving.secure_port", INT, "Port to serve HTTPS on; 0 serves nothing."),
        _flag(
            "serving.cert_dir",
            STRING,
            "Directory of the serving certificate, made there if it is missing; not used with --tls-cert-file.",
        ),
        _flag(
            "serving.tls_cert_file",
            STRING,
            "File with the serving certificate and its chain; without it a self-signed one is made.",
        ),
        _flag("serving.tls_private_key_file", STRING, "File with the private key of --tls-cert-file."),
        _flag(
            "serving.tls_min_version",
            STRING,
            "Lowest TLS version to serve: VersionTLS12 (unless set) or VersionTLS13; older names are taken for VersionTLS12.",
        ),
        _flag("serving.tls_cipher_suites", STRINGS, "Cipher suites to serve with, by their names in Go's crypto/tls."),
    ),
    "Deployment-controller": (_flag("workers.concurrent_deployment_syncs", INT32, "Deployments worked on at once."),),
    "Statefulset-controller": (
        _flag("workers.concurrent_statefulset_syncs", INT32, "StatefulSets worked on at once."),
    ),
    "Replicaset-controller": (_flag("workers.concurrent_replicaset_syncs", INT32, "ReplicaSets worked on at once."),),
    "Replicationcontroller-controller": (
        _flag("workers.concurrent_rc_syncs", INT32, "ReplicationControllers worked on at once."),
    ),
    "Logs": (
        _flag(
            "logging.format",
            STRING,
            "Format of the log, which goes to standard error: text or json.",
            name="logging-format",
        ),
        _flag(
            "logging.flush_frequency",
            DURATION,
            "Accepted; every line is written at once.",
            name="log-flush-frequency",
        ),
        _flag(
            "logging.verbosity",
            LEVEL,
            "Verbosity of the log; the higher, the more it tells.",
            name="v",
            shorthand="v",
        ),
        _flag(
            "logging.vmodule",
            VMODULE,
            "Patterns of module names, each with a verbosity for these modules, such as replica_set=4 (text format only).",
        ),
    ),
    "Misc": (
        _flag("master", STRING, "URL of the API server, which wins over the one in the kubeconfig."),
        _flag(
            "kubeconfig",
            STRING,
            "File with the API server's address and the credentials; without it and --master, those of the pod this runs in.",
        ),
    ),
}
_TABLE = [entry(group) for group, entries in _GROUPS.items() for entry in entries]
FLAGS: tuple[Flag[Any], ...] = (*(entry.flag for entry in _TABLE), FEATURE_GATES, VERSION)


def options_from_flags(values: Mapping[str, Any]) -> Options:
    """The tree that the values of `FLAGS` fill, by the flags' Python names.

    Raises:
        ValueError: The feature gates are wrong.
    """
    sections: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for target, flag in _TABLE:
        section, _, field = target.rpartition(".")
        sections[section][field or target] = values[str(flag.name)]
    top = sections.pop("")
    filled = {section: replace(getattr(_DEFAULTS, section), **fields) for section, fields in sections.items()}
    gates = parse_feature_gates(values["feature_gates"])
    reported = values["version"] if values["version"].startswith("v") else KUBERNETES_VERSION
    return replace(_DEFAULTS, **top, **filled, feature_gates=gates, version=reported)


def build_command(runner: Runner) -> FlagCommand:
    """The click command. `runner` gets valid options; the process's exit status is what it returns."""

    def callback(**values: Any) -> NoReturn:
        try:
            status = _execute(command, values, runner)
        except CommandError as error:
            log.error("command failed", err=str(error))
            status = 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged in the chosen format
            log.error("Unrecovered failure, the process ends", err=error, traceback=True)
            status = 2
        logs.flush()
        click.get_current_context().exit(status)

    command = FlagCommand("kcm", FLAGS, callback, DESCRIPTION)
    return command


def _execute(command: FlagCommand, values: Mapping[str, Any], runner: Runner) -> int:
    try:
        options = options_from_flags(values)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if values["version"] in {"true", "raw"}:
        click.echo(_raw_version() if values["version"] == "raw" else f"Kubernetes {KUBERNETES_VERSION}")
        return 0
    _check(options.logging.validate())
    logs.configure(
        format="json" if options.logging.format == "json" else "text",
        verbosity=options.logging.verbosity,
        vmodule=options.logging.vmodule,
    )
    options.feature_gates.log_settings()
    for line in command.describe(values):
        log.plain(line, v=1)
    _check(options.validate())
    # Whom `*` leaves without a manager is said by the one that leads, for whether it matters depends on the Lease.
    named = resolve_aliases(options.generic.controllers)
    if missing := [name for name in options.generic.missing_controllers() if name in named]:
        log.warning(
            "Controllers are asked for that kcm does not have", controllers=missing, have=IMPLEMENTED_CONTROLLERS
        )
    return runner(options)


def _check(errors: Sequence[str]) -> None:
    if errors:
        raise CommandError(aggregate(errors))


def _raw_version() -> str:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    fields = {
        "Major": major,
        "Minor": minor,
        "EmulationMajor": major,
        "EmulationMinor": minor,
        "MinCompatibilityMajor": major,
        "MinCompatibilityMinor": str(int(minor) - 1),
        "GitVersion": KUBERNETES_VERSION,
        "GitCommit": "",
        "GitTreeState": "",
        "BuildDate": "1970-01-01T00:00:00Z",
        "GoVersion": "",
        "Compiler": f"kcm {__version__}, {platform.python_implementation()} {platform.python_version()}",
        "Platform": f"{platform.system().lower()}/{machine}",
    }
    return f"version.Info{{{', '.join(f'{name}:{quote(value)}' for name, value in fields.items())}}}"


def _run_manager(options: Options) -> int:
    # --help, --version and a wrong flag must not wait for all of this to be imported.
    from kcm.api.errors import ConfigError  # noqa: PLC0415
    from kcm.controllermanager import ManagerError, run  # noqa: PLC0415

    try:
        return run(options)
    except (ConfigError, ManagerError, OSError) as error:
        raise CommandError(logs.describe(error)) from error


def main() -> NoReturn:
    """The console script: runs the command with the process's arguments and exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt ends the process as in the reference, not with a traceback; `run` decides for itself what it does.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    build_command(_run_manager).main(prog_name="kcm")
    raise AssertionError("click exits")
