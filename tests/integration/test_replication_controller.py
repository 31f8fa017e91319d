"""ReplicationControllers that kcm keeps at their size on a real API server, whose pods are scheduled and run at once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcm.testing import ControlPlane
from tests.integration.quota import limit_pods, set_quota
from tests.managers import (
    UNLIMITED,
    Document,
    Manager,
    Namespace,
    condition,
    controller,
    is_ready,
    names,
    pod,
    pod_template,
    replica_set,
    replication_controller,
    uid,
)

pytestmark = pytest.mark.usefixtures("replication_manager")


@pytest.fixture(scope="module")
def replication_manager(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """kcm with the one controller, in all namespaces of the shared control plane."""
    directory = tmp_path_factory.mktemp("kcm")
    process = Manager(
        f"--kubeconfig={control_plane.kubeconfig}",
        "--controllers=replicationcontroller-controller",
        "--leader-elect=false",
        "--secure-port=0",
        "--v=3",
        *UNLIMITED,
        log=directory / "kcm.log",
    )
    try:
        yield process
    finally:
        process.kill()


def web(ns: Namespace) -> Document:
    """The ReplicationController as it was last seen."""
    return ns.get("replicationcontrollers", "web")


def has(ns: Namespace, replicas: int, name: str = "web") -> bool:
    """Whether a ReplicationController has so many pods, all available, and knows it."""
    found = ns.get("replicationcontrollers", name)
    counted = found["status"].get("availableReplicas", 0) == found["status"]["replicas"] == replicas
    return bool(counted and sum(map(is_ready, ns.pods_of(found))) == len(ns.pods_of(found)) == replicas)


async def have(ns: Namespace, *, replicas: int, name: str = "web", **spec: Any) -> Document:
    """A ReplicationController with all of its pods available."""
    made = await ns.create("replicationcontrollers", replication_controller(name, replicas=replicas, **spec))
    await ns.until(lambda: has(ns, replicas, name), f"{replicas} pods are available")
    return made


def controlled_by(owner: Document) -> Document:
    reference = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "name": owner["metadata"]["name"],
        "uid": uid(owner),
    }
    return reference | {"controller": True, "blockOwnerDeletion": True}


@pytest.mark.row("R-134", "R-135")
async def test_its_pods_events_and_status_are_those_of_a_replication_controller(ns: Namespace) -> None:
    owner = await have(ns, replicas=3)

    for made in ns.pods:
        assert made["metadata"]["generateName"] == "web-"
        assert made["metadata"]["ownerReferences"] == [controlled_by(owner)]
    expected = {f"Normal SuccessfulCreate: Created pod: {name}" for name in names(ns.pods)}
    await ns.until(lambda: expected <= set(ns.events), "an event for each pod")
    about = [event for event in ns.history["events"] if event["reason"] == "SuccessfulCreate"]
    for event in about:
        assert (event["involvedObject"]["apiVersion"], event["involvedObject"]["kind"]) == (
            "v1",
            "ReplicationController",
        )
        assert event["involvedObject"]["uid"] == uid(owner)
        assert event["source"] == {"component": "replication-controller"}
    counters = {"replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
    assert web(ns)["status"] == {**counters, "observedGeneration": 1}
    assert not [state for state in ns.history["replicationcontrollers"] if "terminatingReplicas" in state["status"]]


@pytest.mark.row("R-207")
async def test_the_scale_subresource_is_followed(ns: Namespace) -> None:
    await have(ns, replicas=0)

    for replicas in (3, 1, 0):
        await ns.scale("replicationcontrollers", "web", replicas)
        await ns.until(lambda wanted=replicas: has(ns, wanted), f"there are {replicas} pods")  # type: ignore[misc]
    assert len(names(ns.history["pods"])) == 3


async def test_controllers_with_one_selector_keep_their_own_pods(ns: Namespace) -> None:
    for name, replicas in (("one", 1), ("two", 2)):
        await have(ns, replicas=replicas, name=name)
    assert len(ns.pods) == 3

    await ns.create("pods", pod("orphan"))
    await ns.until(lambda: len(ns.pods) == 3 and has(ns, 1, "one") and has(ns, 2, "two"), "the surplus is deleted")
    owners = [
        owner["uid"]
        for state in ns.history["pods"]
        if state["metadata"]["name"] == "orphan" and (owner := controller(state))
    ]
    assert len(set(owners)) == 1


@pytest.mark.row("R-149")
async def test_a_relabelled_pod_is_released_replaced_and_taken_back(ns: Namespace) -> None:
    owner = await have(ns, replicas=2)
    free = ns.pods[0]["metadata"]["name"]

    await ns.patch("pods", free, {"metadata": {"labels": {"app": "debug"}}})
    await ns.until(lambda: controller(ns.get("pods", free)) is None and has(ns, 2), "it is released and replaced")
    assert len(ns.pods) == 3

    await ns.patch("pods", free, {"metadata": {"labels": {"app": "web"}}})
    await ns.until(lambda: len(ns.pods) == 2 and has(ns, 2), "one of the three is deleted")
    states = [
        state["metadata"].get("ownerReferences") for state in ns.history["pods"] if state["metadata"]["name"] == free
    ]
    assert [controlled_by(owner)] in states[states.index(None) :]


@pytest.mark.row("R-142")
async def test_failed_and_terminating_pods_are_replaced_while_they_are_there(ns: Namespace) -> None:
    await have(ns, replicas=2)
    failed, terminating = names(ns.pods)

    await ns.patch("pods", terminating, {"metadata": {"finalizers": ["example.com/kept"]}})
    await ns.delete("pods", terminating)
    await ns.patch("pods", failed, {"status": {"phase": "Failed"}}, "status")
    await ns.until(lambda: sum(map(is_ready, ns.pods)) == 2 and len(ns.pods) == 4, "two others run")
    assert {failed, terminating} < names(ns.pods)
    await ns.until(
        lambda: web(ns)["status"]["replicas"] == web(ns)["status"].get("readyReplicas") == 2, "only they count"
    )


@pytest.mark.row("R-137")
async def test_a_quota_that_is_too_small_shows_as_replica_failure(ns: Namespace) -> None:
    await limit_pods(ns, 3)
    await ns.create("replicationcontrollers", replication_controller(replicas=10))

    await ns.until(lambda: condition(web(ns), "ReplicaFailure"), "the condition is set")
    failure = condition(web(ns), "ReplicaFailure")
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: pods" in failure["message"]
    await ns.until(
        lambda: f"Warning FailedCreate: Error creating: {failure['message']}" in ns.events, "an event tells the same"
    )

    await set_quota(ns, hard=20, used=3)
    await ns.until(lambda: has(ns, 10) and not condition(web(ns), "ReplicaFailure"), "all pods are available")


async def test_a_namespace_that_is_being_deleted_is_left_in_peace(ns: Namespace, replication_manager: Manager) -> None:
    await have(ns, replicas=1)
    await ns.terminate()

    for replicas in (5, 6):
        changed = ns.get("replicationcontrollers", "web")["metadata"]["generation"] + 1
        await ns.scale("replicationcontrollers", "web", replicas)
        await ns.until(lambda seen=changed: web(ns)["status"]["observedGeneration"] == seen, "the change is seen")  # type: ignore[misc]
    assert not condition(web(ns), "ReplicaFailure")
    lines = [line for line in replication_manager.output.splitlines() if f"{ns.name}/web" in line]
    assert [line.partition("need=")[2] for line in lines if "Too few replicas" in line] == [
        "1 creating=1",
        "5 creating=4",
    ]
    assert not [event for event in ns.events if event.startswith("Warning")]


@pytest.mark.row("R-141")
async def test_of_ready_pods_the_one_of_another_age_class_goes_first(ns: Namespace) -> None:
    await have(ns, replicas=3)
    young, *old = sorted(names(ns.pods))
    now = datetime.now(UTC)
    for name in (young, *old):
        since = now - (timedelta(seconds=1) if name == young else timedelta(hours=3))
        others = [found for found in ns.get("pods", name)["status"]["conditions"] if found["type"] != "Ready"]
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
        await ns.patch("pods", name, {"status": {"conditions": [*others, ready]}}, "status")

    await ns.scale("replicationcontrollers", "web", 2)
    await ns.until(lambda: len(ns.pods) == 2, "one is deleted")
    assert names(ns.pods) == set(old)


async def test_the_pod_whose_deletion_costs_more_stays(ns: Namespace) -> None:
    await have(ns, replicas=3)
    cheap, middle, dear = sorted(names(ns.pods))
    for name, cost in ((cheap, "-7"), (dear, "10")):
        await ns.patch(
            "pods", name, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}
        )

    await ns.scale("replicationcontrollers", "web", 2)
    await ns.until(lambda: names(ns.pods) == {middle, dear}, "the cheap one goes first")
    await ns.scale("replicationcontrollers", "web", 1)
    await ns.until(lambda: names(ns.pods) == {dear}, "the dear one stays")


@pytest.mark.row("R-139")
@pytest.mark.usefixtures("manager")
async def test_a_replica_set_of_the_same_name_is_another(ns: Namespace) -> None:
    owner = await have(ns, replicas=2)
    other = await ns.create("replicasets", replica_set(replicas=3))

    await ns.until(lambda: has(ns, 2) and len(ns.pods_of(other)) == 3, "each has its own pods")
    await ns.scale("replicationcontrollers", "web", 1)
    await ns.until(lambda: has(ns, 1), "one shrinks")
    await ns.scale("replicasets", "web", 1)
    await ns.until(
        lambda: (len(ns.pods_of(owner)), len(ns.pods_of(other)), len(ns.pods)) == (1, 1, 2), "so does the other"
    )
    assert len(names(ns.history["pods"])) == 5


@pytest.mark.usefixtures("manager")
async def test_what_a_deleted_one_left_is_adopted_by_a_replica_set(ns: Namespace, control_plane: ControlPlane) -> None:
    template = pod_template()
    template["metadata"]["annotations"] = {"made-by": "replication controller"}
    await have(ns, replicas=3, template=template)
    left = names(ns.pods)

    # No garbage collector runs here: it would take the references to the deleted owner away.
    await control_plane.kubectl("-n", ns.name, "delete", "replicationcontroller", "web", "--cascade=background")
    for name in left:
        await ns.patch("pods", name, {"metadata": {"ownerReferences": None}})
    successor = await ns.create("replicasets", replica_set("successor", replicas=2))
    await ns.until(lambda: len(ns.pods) == 2 == len(ns.pods_of(successor)), "two are adopted, and the third is deleted")
    assert names(ns.history["pods"]) == left


async def test_finalizers_of_the_template_hold_pods_that_count_no_more(ns: Namespace) -> None:
    template = pod_template()
    template["metadata"]["finalizers"] = ["example.com/slow"]
    await have(ns, replicas=2, template=template)

    await ns.scale("replicationcontrollers", "web", 0)
    await ns.until(lambda: web(ns)["status"]["replicas"] == 0, "none count")
    assert len(ns.pods) == 2
    await ns.scale("replicationcontrollers", "web", 1)
    await ns.until(lambda: sum(map(is_ready, ns.pods)) == 1 and len(ns.pods) == 3, "another is made")
    for name in names(ns.pods):
        await ns.patch("pods", name, {"metadata": {"finalizers": None}})
    await ns.until(lambda: has(ns, 1) and len(ns.pods) == 1, "only that one is left")
