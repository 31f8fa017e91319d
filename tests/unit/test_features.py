"""Feature gates: what is known, what a setting does, what is refused."""

import pytest

from kcm import logs
from kcm.features import FeatureGates, aggregate, known_gates, parse_feature_gates, split_feature_gates


def parse(*texts: str) -> FeatureGates:
    return parse_feature_gates(pair for text in texts for pair in split_feature_gates(text))


@pytest.mark.row("C-128", "C-129", "C-130", "C-131")
@pytest.mark.parametrize(
    ("name", "stage", "default"),
    [
        ("MaxUnavailableStatefulSet", "BETA", True),
        ("DeploymentReplicaSetTerminatingReplicas", "BETA", True),
        ("StaleControllerConsistencyReplicaSet", "BETA", True),
        ("StaleControllerConsistencyStatefulSet", "BETA", True),
        ("StatefulSetSemanticRevisionComparison", "BETA", True),
        ("StatefulSetRecreateStrategy", "ALPHA", False),
        ("PodDeletionCost", "BETA", True),
    ],
)
def test_gates_of_the_controllers(name: str, stage: str, default: bool) -> None:
    assert (known_gates()[name].stage, FeatureGates().enabled(name)) == (stage, default)


@pytest.mark.row("C-132", "C-133", "C-134")
@pytest.mark.parametrize(
    ("name", "stage", "default"),
    [
        ("ControllerManagerReleaseLeaderElectionLockOnExit", "ALPHA", False),
        ("CoordinatedLeaderElection", "BETA", False),
        ("ComponentFlagz", "BETA", True),
        ("ComponentStatusz", "BETA", True),
        ("ContextualLogging", "BETA", True),
        ("LoggingBetaOptions", "BETA", True),
        ("LoggingAlphaOptions", "ALPHA", False),
        ("WatchListClient", "BETA", True),
        ("AtomicFIFO", "BETA", True),
        ("InOrderInformersBatchProcess", "BETA", True),
        ("UnlockWhileProcessingFIFO", "BETA", True),
        ("ClientsAllowCARotation", "BETA", True),
        ("ClientsAllowTLSCacheGC", "BETA", True),
        ("ClientsAllowCBOR", "ALPHA", False),
        ("ClientsPreferCBOR", "ALPHA", False),
    ],
)
def test_gates_of_the_process_around_them(name: str, stage: str, default: bool) -> None:
    assert (known_gates()[name].stage, FeatureGates().enabled(name)) == (stage, default)
    assert parse(f"{name}=true").enabled(name)
    assert not parse(f"{name}=false").enabled(name)


@pytest.mark.row("C-135")
def test_all_alpha_and_all_beta_set_what_is_not_set_on_its_own() -> None:
    gates = parse("AllAlpha=true,GenericWorkload=true,StatefulSetRecreateStrategy=false")
    assert gates.enabled("ClientsAllowCBOR")
    assert not gates.enabled("StatefulSetRecreateStrategy")
    gates = parse("PodDeletionCost=true,DynamicResourceAllocation=true,AllBeta=false")
    assert not gates.enabled("MaxUnavailableStatefulSet")
    assert gates.enabled("PodDeletionCost")
    assert gates.enabled("NodeSwap"), "a gate of another stage is left alone"
    defaults = FeatureGates()
    assert (defaults.enabled("AllAlpha"), defaults.enabled("AllBeta")) == (False, False)
    assert (known_gates()["AllAlpha"].stage, known_gates()["AllBeta"].stage) == ("ALPHA", "BETA")


@pytest.mark.row("C-136", "C-044")
def test_only_gates_that_no_component_knows_are_refused() -> None:
    kubelet, scheduler, api_server = "NodeSwap", "SchedulerAsyncPreemption", "APIResponseCompression"
    assert parse(f"{kubelet}=true,{scheduler}=false,{api_server}=false").settings == {
        kubelet: True,
        scheduler: False,
        api_server: False,
    }
    with pytest.raises(ValueError, match=r"^unrecognized feature gate: Nope$"):
        parse("NodeSwap=false,Nope=true")


@pytest.mark.row("C-044")
@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["NodeSwap=false"], "cannot set feature gate NodeSwap to false, feature is locked to true"),
        (
            ["GitRepoVolumeDriver=true"],
            "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
        ),
        (
            ["NodeSwap=false,GitRepoVolumeDriver=true"],
            "[cannot set feature gate NodeSwap to false, feature is locked to true, "
            "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false]",
        ),
        (["Nope"], "missing bool value for Nope"),
        (
            ["AllAlpha=maybe"],
            'invalid value of AllAlpha=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (["wardle:AllAlpha=true"], "component not registered: wardle"),
        (
            ["kube:AllAlpha=false", "AllBeta=false"],
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
        ),
        (
            ["ClusterTrustBundle=false"],
            "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]",
        ),
    ],
)
def test_what_is_refused_and_why(texts: list[str], problem: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        parse(*texts)
    assert str(refusal.value) == problem


@pytest.mark.row("C-021")
def test_settings_are_a_comma_list_that_may_be_repeated_with_or_without_the_component() -> None:
    gates = parse("kube:PodDeletionCost=false, kube:ComponentFlagz = f,,", "kube:PodDeletionCost=true")
    assert gates.settings == {"PodDeletionCost": True, "ComponentFlagz": False}
    assert parse("PodDeletionCost=0").settings == {"PodDeletionCost": False}


@pytest.mark.row("C-137")
def test_alpha_gates_are_warned_of() -> None:
    with logs.capture() as records:
        FeatureGates().log_settings()
        parse("StatefulSetRecreateStrategy=false,PodDeletionCost=false").log_settings()
        assert records == []
        parse("StatefulSetRecreateStrategy=true").log_settings()
    assert [(record.level, record.pairs) for record in records] == [
        ("warning", {"features": ["StatefulSetRecreateStrategy"]})
    ]


def test_gates_that_will_go_away_are_told_of() -> None:
    with logs.capture() as records:
        parse("NodeSwap=true,GitRepoVolumeDriver=false").log_settings()
    assert [(record.v, record.pairs["featureGate"], record.pairs["stage"]) for record in records] == [
        (0, "NodeSwap", "GA"),
        (0, "GitRepoVolumeDriver", "deprecated"),
    ]


def test_asking_for_an_unknown_gate_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        FeatureGates().enabled("Nope")


@pytest.mark.parametrize(
    ("errors", "text"), [(["a"], "a"), (["a", "b"], "[a, b]"), (["a", "a"], "a"), (["a", "b", "a"], "[a, b]")]
)
def test_several_errors_become_one_text(errors: list[str], text: str) -> None:
    assert aggregate(errors) == text
