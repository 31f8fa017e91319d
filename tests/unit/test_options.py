"""The tree of options: defaults, validation, and which controllers a selection means."""

import re

import pytest

from kcm.features import FeatureGates
from kcm.options import (
    CONTROLLER_ALIASES,
    DISABLED_BY_DEFAULT,
    IMPLEMENTED_CONTROLLERS,
    KNOWN_CONTROLLERS,
    GenericOptions,
    LeaderElectionOptions,
    LoggingOptions,
    Options,
    SecureServingOptions,
    WorkerOptions,
    is_controller_enabled,
    resolve_aliases,
)


def test_an_embedder_needs_to_say_nothing() -> None:
    assert Options().validate() == []


@pytest.mark.row("C-050", "C-051", "C-052")
@pytest.mark.parametrize(
    ("controllers", "enabled"),
    [
        (["*"], True),
        ([], False),
        (["deployment-controller"], True),
        (["job-controller"], False),
        (["-job-controller"], False),
        (["*", "-deployment-controller"], False),
        (["-deployment-controller", "*"], False),
        (["deployment-controller", "-deployment-controller"], True),
        (["-deployment-controller", "deployment-controller"], False),
        (["*", "deployment-controller", "-deployment-controller"], True),
    ],
)
def test_the_first_item_that_names_a_controller_decides(controllers: list[str], enabled: bool) -> None:
    assert is_controller_enabled("deployment-controller", DISABLED_BY_DEFAULT, controllers) is enabled


@pytest.mark.row("C-051", "C-059")
def test_the_star_leaves_out_what_is_disabled_by_default() -> None:
    assert {
        "bootstrap-signer-controller",
        "selinux-warning-controller",
        "token-cleaner-controller",
    } == DISABLED_BY_DEFAULT
    everything = GenericOptions().enabled_controllers()
    assert set(everything) == set(KNOWN_CONTROLLERS) - DISABLED_BY_DEFAULT
    assert GenericOptions(controllers=("*", "tokencleaner")).is_enabled("token-cleaner-controller")
    assert not GenericOptions(controllers=("deployment",)).is_enabled("replicaset-controller")


@pytest.mark.row("C-053")
def test_aliases_stand_for_canonical_names_and_names_are_exact() -> None:
    assert resolve_aliases(["*", "deployment", "-replicaset", "svm", "-deployment-controller"]) == (
        "*",
        "deployment-controller",
        "-replicaset-controller",
        "storage-version-migrator-controller",
        "-deployment-controller",
    )
    assert not GenericOptions(controllers=("*", "-deployment")).is_enabled("deployment-controller")
    assert GenericOptions(controllers=("Deployment",)).validate()
    assert GenericOptions(controllers=("deploy",)).validate()


@pytest.mark.row("C-056", "C-057")
def test_every_controller_of_the_release_is_known() -> None:
    assert len(KNOWN_CONTROLLERS) == 49
    assert GenericOptions(controllers=("*", *KNOWN_CONTROLLERS)).validate() == []
    assert [
        CONTROLLER_ALIASES[alias] for alias in ("deployment", "replicaset", "replicationcontroller", "statefulset")
    ] == [
        "deployment-controller",
        "replicaset-controller",
        "replicationcontroller-controller",
        "statefulset-controller",
    ]
    assert {
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "validatingadmissionpolicy-status-controller",
        "endpointslice-mirroring-controller",
        "certificatesigningrequest-signing-controller",
    } < set(KNOWN_CONTROLLERS)


@pytest.mark.row("C-058")
def test_every_alias_of_the_release_is_known() -> None:
    others = re.findall(
        r"\S+",
        "attachdetach bootstrapsigner clusterrole-aggregation cronjob csrapproving csrcleaner csrsigning daemonset disruption "
        "endpoint endpointslice endpointslicemirroring ephemeral-volume garbagecollector horizontalpodautoscaling job "
        "legacy-service-account-token-cleaner namespace nodeipam nodelifecycle persistentvolume-binder "
        "persistentvolume-expander podgc pv-protection pvc-protection resource-claim-controller resourcequota "
        "root-ca-cert-publisher serviceaccount serviceaccount-token storage-version-gc svm tokencleaner ttl "
        "ttl-after-finished",
    )
    assert set(CONTROLLER_ALIASES) == {*others, "deployment", "replicaset", "replicationcontroller", "statefulset"}
    assert set(CONTROLLER_ALIASES.values()) <= set(KNOWN_CONTROLLERS)
    assert GenericOptions(controllers=("*", *others)).validate() == []


@pytest.mark.row("C-054")
def test_unknown_items_are_named_without_their_minus() -> None:
    errors = GenericOptions(controllers=("foo", "-bar", "-*", "*")).validate()
    assert errors == [f'"{name}" is not in the list of known controllers' for name in ("foo", "bar", "*")]


@pytest.mark.parametrize(
    ("controllers", "missing", "refused"),
    [
        (("deployment", "replicaset"), (), False),
        (("deployment", "job"), ("job-controller",), False),
        (("job", "-cronjob"), ("job-controller",), True),
        (("-deployment",), (), False),
        ((), (), False),
        (("ttl", "*", "-deployment", "-replicaset"), None, False),
    ],
)
def test_controllers_that_kcm_lacks_are_refused_only_if_nothing_is_left(
    controllers: tuple[str, ...], missing: tuple[str, ...] | None, refused: bool
) -> None:
    options = GenericOptions(controllers=controllers)
    if missing is not None:
        assert options.missing_controllers() == missing
    errors = options.validate()
    assert bool(errors) is refused
    if refused:
        have = "deployment-controller, replicaset-controller, replicationcontroller-controller, statefulset-controller"
        assert errors == [f"none of job-controller is in kcm, which has {have}"]


def test_what_kcm_has_can_be_told() -> None:
    options = GenericOptions(controllers=("job",))
    assert options.validate(["job-controller"]) == []
    assert options.missing_controllers(["job-controller"]) == ()
    assert set(IMPLEMENTED_CONTROLLERS) <= set(KNOWN_CONTROLLERS)


@pytest.mark.row("C-018", "C-045")
@pytest.mark.parametrize(
    ("options", "errors"),
    [
        (LeaderElectionOptions(resource_lock="configmaps"), ['resourceLock value must be "leases"']),
        (LeaderElectionOptions(lease_duration=10), ["leaseDuration must be greater than renewDeadline"]),
        (LeaderElectionOptions(renew_deadline=2.4), ["renewDeadline must be greater than retryPeriod*JitterFactor"]),
        (LeaderElectionOptions(renew_deadline=2.5), []),
        (LeaderElectionOptions(retry_period=0), ["retryPeriod must be greater than zero"]),
        (LeaderElectionOptions(leader_elect=False, resource_lock="configmaps", lease_duration=1), []),
    ],
)
def test_election_that_would_not_work_is_refused(options: LeaderElectionOptions, errors: list[str]) -> None:
    assert options.validate() == errors


@pytest.mark.parametrize(
    ("port", "errors"),
    [
        (0, []),
        (65535, []),
        (-1, ["--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port"]),
        (65536, ["--secure-port 65536 must be between 1 and 65535, inclusive. It cannot be turned off with 0"]),
    ],
)
def test_ports_are_checked(port: int, errors: list[str]) -> None:
    assert SecureServingOptions(secure_port=port).validate() == errors


def test_only_the_workers_for_stateful_sets_have_a_lower_bound() -> None:
    assert (
        WorkerOptions(concurrent_deployment_syncs=0, concurrent_replicaset_syncs=-1, concurrent_rc_syncs=0).validate()
        == []
    )
    assert WorkerOptions(concurrent_statefulset_syncs=0).validate() == [
        "concurrent-statefulset-syncs must be greater than 0, but got 0"
    ]


@pytest.mark.row("C-035", "C-047")
@pytest.mark.parametrize(
    ("options", "errors"),
    [
        (LoggingOptions(format="json"), []),
        (LoggingOptions(format="foo"), ['format: Invalid value: "foo": Unsupported log format']),
        (
            LoggingOptions(format="json", vmodule=(("a", 1),)),
            ["vmodule: Forbidden: Only supported for text log format"],
        ),
        (
            LoggingOptions(flush_frequency=-1.0),
            ['flushFrequency: Invalid value: "-1s": Must be greater than zero'],
        ),
    ],
)
def test_logging_options_that_do_not_work_are_refused(options: LoggingOptions, errors: list[str]) -> None:
    assert options.validate() == errors


@pytest.mark.row("C-041")
def test_all_problems_are_found_at_once() -> None:
    options = Options(
        generic=GenericOptions(controllers=("foo",)),
        leader_election=LeaderElectionOptions(resource_lock="x"),
        serving=SecureServingOptions(secure_port=-1),
        feature_gates=FeatureGates({"Nope": True}),
    )
    assert options.validate() == [
        "unrecognized feature gate: Nope",
        'resourceLock value must be "leases"',
        '"foo" is not in the list of known controllers',
        "--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port",
    ]
