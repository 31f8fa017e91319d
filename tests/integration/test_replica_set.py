"""ReplicaSets that kcm keeps at their size on a real API server, whose pods are scheduled and run at once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.quota import limit_pods, set_quota
from tests.managers import (
    Document,
    Manager,
    Namespace,
    complete,
    condition,
    controller,
    instant,
    is_ready,
    names,
    pod,
    pod_template,
    replica_set,
    uid,
)

pytestmark = pytest.mark.usefixtures("manager")


async def have(ns: Namespace, *, replicas: int, **spec: Any) -> Document:
    """A ReplicaSet with all of its pods available."""
    made = await ns.create("replicasets", replica_set(replicas=replicas, **spec))
    await ns.until(lambda: has(ns, replicas), f"{replicas} pods are available")
    return made


def has(ns: Namespace, replicas: int) -> bool:
    """Whether the ReplicaSet has so many pods, all available, and there are no others."""
    web = ns.get("replicasets", "web")
    return complete(web) and len(ns.pods) == replicas == sum(map(is_ready, ns.pods_of(web)))


def controlled_by(owner: Document) -> Document:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid(owner)}
    return reference | {"controller": True, "blockOwnerDeletion": True}


@pytest.mark.row("R-077", "R-080")
async def test_pods_are_copies_of_the_template(ns: Namespace) -> None:
    template = pod_template()
    template["metadata"] |= {"annotations": {"note": "kept"}, "finalizers": ["example.com/kept"], "name": "not-kept"}
    template["spec"]["terminationGracePeriodSeconds"] = 7
    owner = await have(ns, replicas=3, template=template)

    for made in ns.pods:
        metadata, spec = made["metadata"], made["spec"]
        assert metadata["generateName"] == "web-"
        assert metadata["labels"] == {"app": "web"}
        assert metadata["annotations"] == {"note": "kept"}
        assert metadata["finalizers"] == ["example.com/kept"]
        assert metadata["ownerReferences"] == [controlled_by(owner)]
        assert spec["containers"][0]["image"] == "registry.test/web:1"
        assert spec["terminationGracePeriodSeconds"] == 7
    expected = {f"Normal SuccessfulCreate: Created pod: {name}" for name in names(ns.pods)}
    await ns.until(lambda: expected == set(ns.events), "an event for each pod")


@pytest.mark.row("R-087")
async def test_the_scale_subresource_is_followed(ns: Namespace) -> None:
    await have(ns, replicas=2)

    await ns.scale("replicasets", "web", 5)
    await ns.until(lambda: has(ns, 5), "5 pods are available")
    before = names(ns.pods)
    await ns.scale("replicasets", "web", 1)
    await ns.until(lambda: has(ns, 1), "1 pod is left")
    expected = {f"Normal SuccessfulDelete: Deleted pod: {name}" for name in before - names(ns.pods)}
    await ns.until(lambda: expected <= set(ns.events), "an event for each deleted pod")

    await ns.scale("replicasets", "web", 0)
    await ns.until(lambda: has(ns, 0), "no pod is left")


async def test_a_deleted_pod_is_replaced(ns: Namespace) -> None:
    await have(ns, replicas=2)
    gone, stays = sorted(names(ns.pods))

    await ns.delete("pods", gone)
    await ns.until(lambda: gone not in names(ns.pods) and has(ns, 2), "another pod is available")
    assert stays in names(ns.pods)


@pytest.mark.row("R-142")
async def test_failed_and_terminating_pods_are_replaced_while_they_are_there(ns: Namespace) -> None:
    await have(ns, replicas=2)
    failed, terminating = names(ns.pods)

    await ns.patch("pods", terminating, {"metadata": {"finalizers": ["example.com/kept"]}})
    await ns.delete("pods", terminating)
    await ns.patch("pods", failed, {"status": {"phase": "Failed"}}, "status")
    await ns.until(lambda: sum(map(is_ready, ns.pods)) == 2 and len(ns.pods) == 4, "two others run")
    assert {failed, terminating} < names(ns.pods)


@pytest.mark.row("R-048", "R-203")
async def test_an_adopted_pod_keeps_its_other_owners(ns: Namespace) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "11111111-2222-3333-4444-555555555555"}
    await ns.create("pods", pod("orphan", ownerReferences=[other]))
    owner = await have(ns, replicas=2)

    owners = ns.get("pods", "orphan")["metadata"]["ownerReferences"]
    assert sorted(owners, key=lambda reference: str(reference["kind"])) == [other, controlled_by(owner)]

    await ns.scale("replicasets", "web", 3)
    await ns.until(lambda: has(ns, 3), "a third pod is available")
    owned = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid(owner)}
    await ns.create("pods", pod("owned", ownerReferences=[owned]))
    await ns.until(lambda: has(ns, 3), "one of the four is deleted")
    states = [made["metadata"]["ownerReferences"] for made in ns.history["pods"] if made["metadata"]["name"] == "owned"]
    assert states[-1] == [controlled_by(owner)]


@pytest.mark.row("R-054")
async def test_of_too_many_orphans_the_surplus_is_deleted(ns: Namespace) -> None:
    for number in range(4):
        await ns.create("pods", pod(f"orphan-{number}"))
    owner = await have(ns, replicas=3)

    assert list(map(controller, ns.pods)) == [controlled_by(owner)] * 3
    assert names(ns.history["pods"]) == {f"orphan-{number}" for number in range(4)}


@pytest.mark.row("R-149")
async def test_a_relabelled_pod_is_released_replaced_and_taken_back(ns: Namespace) -> None:
    owner = await have(ns, replicas=2)
    free = ns.pods[0]["metadata"]["name"]

    await ns.patch("pods", free, {"metadata": {"labels": {"app": "debug"}}})
    await ns.until(lambda: controller(ns.get("pods", free)) is None, "it is released")
    await ns.until(lambda: sum(map(is_ready, ns.pods_of(owner))) == 2, "it is replaced")
    assert len(ns.pods) == 3

    await ns.patch("pods", free, {"metadata": {"labels": {"app": "web"}}})
    await ns.until(lambda: has(ns, 2), "one of the three is deleted")


@pytest.mark.row("R-147")
async def test_replica_sets_with_one_selector_keep_their_own_pods(ns: Namespace) -> None:
    one = await ns.create("replicasets", replica_set("one", replicas=1))
    two = await ns.create("replicasets", replica_set("two", replicas=2))

    await ns.until(
        lambda: complete(ns.get("replicasets", "one")) and complete(ns.get("replicasets", "two")), "both are"
    )
    await ns.until(lambda: (len(ns.pods_of(one)), len(ns.pods_of(two)), len(ns.pods)) == (1, 2, 3), "each has its own")


@pytest.mark.row("R-146")
async def test_a_change_of_the_template_is_seen_but_touches_no_pod(ns: Namespace) -> None:
    await have(ns, replicas=2)
    pods = ns.pods

    changed = await ns.patch("replicasets", "web", with_annotation("changed"))
    await ns.until(lambda: observed(ns.get("replicasets", "web")), "the change is seen")
    assert changed["metadata"]["generation"] == 2
    assert ns.pods == pods


@pytest.mark.row("R-148")
async def test_finalizers_of_others_are_left_alone(ns: Namespace) -> None:
    made = await have(ns, replicas=1)
    finalizers = ["example.com/one", "example.com/two"]
    await ns.patch("replicasets", "web", {"metadata": {"finalizers": finalizers}})

    await ns.delete("replicasets", "web")
    # Also one that is being deleted has its status kept, and nothing else.
    await ns.delete("pods", ns.pods[0]["metadata"]["name"])
    await ns.until(lambda: not ns.pods and ns.get("replicasets", "web")["status"]["replicas"] == 0, "the pod is gone")
    left = ns.get("replicasets", "web")
    assert uid(left) == uid(made)
    assert "deletionTimestamp" in left["metadata"]
    assert left["metadata"]["finalizers"] == finalizers


@pytest.mark.row("R-107")
async def test_pods_become_available_after_min_ready_seconds_though_nothing_else_happens(ns: Namespace) -> None:
    await have(ns, replicas=2, minReadySeconds=2)

    ready = [instant(condition(made, "Ready")["lastTransitionTime"]) for made in ns.pods]
    assert datetime.now(UTC) >= max(ready) + timedelta(seconds=2)
    states = [state["status"] for state in ns.history["replicasets"]]
    assert any(state.get("readyReplicas") == 2 and not state.get("availableReplicas") for state in states)


@pytest.mark.row("R-081")
async def test_a_quota_that_is_too_small_shows_as_replica_failure(ns: Namespace) -> None:
    await limit_pods(ns, 3)
    await ns.create("replicasets", replica_set(replicas=10))

    await ns.until(lambda: condition(ns.get("replicasets", "web"), "ReplicaFailure"), "the condition is set")
    failure = condition(ns.get("replicasets", "web"), "ReplicaFailure")
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: pods" in failure["message"]
    await ns.until(lambda: len(ns.pods) == 3, "there are as many pods as are allowed")
    expected = f"Warning FailedCreate: Error creating: {failure['message']}"
    await ns.until(lambda: expected in ns.events, "an event tells the same")

    await set_quota(ns, hard=20, used=3)
    await ns.until(lambda: has(ns, 10), "all pods are available")
    await ns.until(lambda: not condition(ns.get("replicasets", "web"), "ReplicaFailure"), "the condition is gone")


@pytest.mark.row("R-075")
async def test_refusals_of_a_namespace_that_is_being_deleted_count_as_success(ns: Namespace, manager: Manager) -> None:
    await have(ns, replicas=1)
    await ns.terminate()

    # What exists may still be changed, and each change makes a sync.
    for replicas in (5, 6):
        await ns.scale("replicasets", "web", replicas)
        await ns.until(lambda: observed(ns.get("replicasets", "web")), "the change is seen")
    assert len(ns.pods) == 1
    assert not condition(ns.get("replicasets", "web"), "ReplicaFailure")
    lines = [line for line in manager.output.splitlines() if f"{ns.name}/web" in line]
    # The second change finds creations that are still expected.
    assert [line.partition("need=")[2] for line in lines if "Too few replicas" in line] == [
        "1 creating=1",
        "5 creating=4",
    ]
    assert not [line for line in lines if "FailedCreate" in line or "terminated" in line]


def with_annotation(value: str) -> Document:
    return {"spec": {"template": {"metadata": {"annotations": {"note": value}}}}}


def observed(document: Document) -> bool:
    return bool(document["status"]["observedGeneration"] == document["metadata"]["generation"])
