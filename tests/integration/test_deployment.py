"""Deployments that kcm rolls out on a real API server, whose pods are scheduled and run at once."""

from typing import Any

import pytest

from kcm.testing import ControlPlane
from tests.integration.quota import limit_pods, set_quota
from tests.managers import (
    Document,
    Namespace,
    complete,
    condition,
    controller,
    deployment,
    is_ready,
    names,
    pod_template,
    replica_set,
    revision,
    uid,
    with_image,
)

pytestmark = pytest.mark.usefixtures("manager")

FIRST, SECOND, THIRD = (f"registry.test/web:{number}" for number in (1, 2, 3))
DESIRED, MAX = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"


def web(ns: Namespace) -> Document:
    """The Deployment as it was last seen."""
    return ns.get("deployments", "web")


def current(ns: Namespace) -> Document:
    """Its newest ReplicaSet."""
    return ns.replica_sets[-1]


def image(document: Document) -> str:
    return str(document["spec"]["template"]["spec"]["containers"][0]["image"])


def progressing(ns: Namespace) -> str:
    return str(condition(web(ns), "Progressing").get("reason"))


async def have(ns: Namespace, *, replicas: int, **spec: Any) -> Document:
    """A Deployment whose rollout is complete, and its ReplicaSet."""
    await ns.create("deployments", deployment(replicas=replicas, **spec))
    await ns.until(lambda: rolled_out(ns), f"{replicas} pods are available")
    return current(ns)


def rolled_out(ns: Namespace) -> bool:
    """Whether the newest ReplicaSet has all pods, they are available, and there are no others."""
    if not ns.replica_sets or image(current(ns)) != image(web(ns)):
        return False
    pods = sum(map(is_ready, ns.pods_of(current(ns))))
    done = complete(web(ns)) and progressing(ns) == "NewReplicaSetAvailable"
    return bool(done and len(ns.pods) == pods == web(ns)["spec"]["replicas"])


async def roll(ns: Namespace, to: str) -> None:
    """Change the image and wait until that is rolled out."""
    await ns.patch("deployments", "web", with_image(to))
    await ns.until(lambda: rolled_out(ns), f"{to} is rolled out")


@pytest.mark.row("D-177", "D-182")
async def test_pods_come_from_a_replica_set_named_by_the_hash_of_their_template(ns: Namespace) -> None:
    made = await have(ns, replicas=3)

    hashed = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"web-{hashed}"
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web", "pod-template-hash": hashed}}
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "web", "pod-template-hash": hashed}
    assert made["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "1", DESIRED: "3", MAX: "4"}
    assert [found["metadata"]["labels"] for found in ns.pods] == [{"app": "web", "pod-template-hash": hashed}] * 3
    assert ns.pods_of(made) == ns.pods
    assert revision(web(ns)) == "1"
    event = f"Normal ScalingReplicaSet: Scaled up replica set web-{hashed} from 0 to 3"
    await ns.until(lambda: event in ns.events, "an event of the Deployment")


@pytest.mark.row("D-090")
async def test_scaling_changes_the_one_replica_set(ns: Namespace) -> None:
    name = (await have(ns, replicas=2))["metadata"]["name"]
    expected = set()

    for way, before, after in (("up", 2, 5), ("down", 5, 1), ("down", 1, 0)):
        await ns.scale("deployments", "web", after)
        await ns.until(lambda: rolled_out(ns), f"there are {after} pods")
        assert names(ns.replica_sets) == {name}
        assert current(ns)["metadata"]["annotations"][DESIRED] == str(after)
        expected.add(f"Normal ScalingReplicaSet: Scaled {way} replica set {name} from {before} to {after}")
    await ns.until(lambda: expected <= set(ns.events), "an event for each change")


@pytest.mark.row("D-127")
@pytest.mark.parametrize(("surge", "unavailable"), [(2, 1), (0, 2), ("50%", 0)])
async def test_an_update_stays_within_its_bounds(ns: Namespace, surge: int | str, unavailable: int) -> None:
    bounds = {"maxSurge": surge, "maxUnavailable": unavailable}
    first = await have(ns, replicas=6, strategy={"type": "RollingUpdate", "rollingUpdate": bounds})
    sizes: set[int] = set()
    available: set[int] = set()

    def within_bounds() -> None:
        size = sum(found["spec"]["replicas"] for found in ns.replica_sets)
        assert size <= 6 + (3 if surge == "50%" else int(surge))
        sizes.add(size)
        assert web(ns)["status"].get("availableReplicas", 0) >= 6 - unavailable
        available.add(web(ns)["status"]["availableReplicas"])

    ns.always(within_bounds)
    await roll(ns, SECOND)

    assert max(sizes) > 6 or min(available) < 6, "the update was not seen"
    old = ns.get("replicasets", first["metadata"]["name"])
    assert old["spec"]["replicas"] == 0
    assert revision(web(ns)) == revision(current(ns)) == "2"


@pytest.mark.row("D-055")
async def test_kubectl_rollout_undo_goes_back_to_the_former_replica_set(
    ns: Namespace, control_plane: ControlPlane
) -> None:
    first = await have(ns, replicas=2)
    await roll(ns, SECOND)

    await control_plane.kubectl("-n", ns.name, "rollout", "undo", "deployment/web")
    await ns.until(lambda: rolled_out(ns) and image(web(ns)) == FIRST, "the first image is back")
    assert len(ns.replica_sets) == 2
    assert uid(current(ns)) == uid(first)
    assert revision(web(ns)) == revision(current(ns)) == "3"
    assert current(ns)["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
    answer = await control_plane.kubectl("-n", ns.name, "rollout", "status", "deployment/web", "--timeout=30s")
    assert "successfully rolled out" in answer


async def test_a_deleted_pod_is_replaced_without_a_rollout(ns: Namespace) -> None:
    made = await have(ns, replicas=2)
    gone = ns.pods[0]["metadata"]["name"]

    await ns.delete("pods", gone)
    await ns.until(lambda: gone not in names(ns.pods) and rolled_out(ns), "another is available")
    assert names(ns.replica_sets) == names([made])


@pytest.mark.row("D-174")
async def test_an_orphan_replica_set_is_adopted_as_it_is(ns: Namespace) -> None:
    orphan = await ns.create("replicasets", replica_set("orphan", replicas=2, labels={"app": "web"}))
    await ns.until(lambda: sum(map(is_ready, ns.pods_of(orphan))) == 2, "the orphan has its pods")

    adopted = await have(ns, replicas=2)
    assert names(ns.history["replicasets"]) == {"orphan"}
    assert (controller(adopted) or {})["uid"] == uid(web(ns))
    assert adopted["spec"] == orphan["spec"]
    assert len(names(ns.history["pods"])) == 2


@pytest.mark.row("D-180")
async def test_what_a_deleted_deployment_left_is_adopted_by_its_successor(
    ns: Namespace, control_plane: ControlPlane
) -> None:
    left = await have(ns, replicas=2)

    # No garbage collector runs here: it would take the reference to the deleted owner away.
    await control_plane.kubectl("-n", ns.name, "delete", "deployment", "web", "--cascade=background")
    await ns.patch("replicasets", left["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    adopted = await have(ns, replicas=2)
    assert uid(adopted) == uid(left)
    assert len(names(ns.history["replicasets"])) == 1
    assert len(names(ns.history["pods"])) == 2


@pytest.mark.row("D-175")
async def test_a_relabelled_replica_set_is_released_replaced_and_taken_back(ns: Namespace) -> None:
    made = await have(ns, replicas=2)
    name = made["metadata"]["name"]

    await ns.patch("replicasets", name, {"metadata": {"labels": {"app": "other"}}})
    await ns.until(lambda: controller(ns.get("replicasets", name)) is None, "it is released")
    await ns.until(lambda: len(ns.replica_sets) == 2 and len(ns.pods) == 4, "another has taken its place")
    await ns.until(lambda: web(ns)["status"].get("collisionCount") == 1, "the collision is counted")

    await ns.patch("replicasets", name, {"metadata": {"labels": {"app": "web"}}})
    await ns.until(lambda: (controller(ns.get("replicasets", name)) or {}).get("uid") == uid(web(ns)), "it is back")
    await ns.until(lambda: len(ns.pods) == 2, "the pods of one of them are gone")
    assert uid(made) in {uid(found) for found in ns.replica_sets}


@pytest.mark.row("D-130", "D-181")
async def test_recreate_starts_new_pods_when_the_old_ones_are_gone(ns: Namespace) -> None:
    await have(ns, replicas=3, strategy={"type": "Recreate"})
    counts: set[int] = set()

    def never_mixed() -> None:
        hashes = {found["metadata"]["labels"]["pod-template-hash"] for found in ns.pods}
        assert len(hashes) <= 1
        counts.add(len(ns.pods))
        status = web(ns)["status"]
        assert status.get("updatedReplicas", 0) in {0, status.get("replicas", 0)}

    ns.always(never_mixed)
    await roll(ns, SECOND)
    assert min(counts) == 0
    created = next(found for found in ns.history["replicasets"] if image(found) == SECOND)
    assert created["spec"]["replicas"] == 3

    await roll(ns, FIRST)
    assert len(ns.replica_sets) == 2


@pytest.mark.row("D-185")
async def test_recreate_waits_for_pods_that_are_slow_to_go(ns: Namespace) -> None:
    template = pod_template()
    template["metadata"]["finalizers"] = ["example.com/slow"]
    await have(ns, replicas=3, strategy={"type": "Recreate"}, template=template)

    await ns.patch("deployments", "web", with_image(SECOND))
    await ns.until(lambda: web(ns)["status"].get("terminatingReplicas") == 3, "the old pods are on their way out")
    assert web(ns)["status"].get("replicas", 0) == 0
    assert {image(found) for found in ns.history["replicasets"]} == {FIRST}

    for name in names(ns.pods):
        await ns.patch("pods", name, {"metadata": {"finalizers": None}})
    await ns.until(lambda: rolled_out(ns), "the new pods are available")
    assert web(ns)["status"]["terminatingReplicas"] == 0


@pytest.mark.row("D-103", "D-104")
async def test_a_paused_deployment_is_scaled_but_not_updated(ns: Namespace) -> None:
    await have(ns, replicas=2)

    await ns.patch("deployments", "web", {"spec": {"paused": True}})
    await ns.until(lambda: progressing(ns) == "DeploymentPaused", "the pause is marked")
    assert condition(web(ns), "Progressing")["status"] == "Unknown"
    assert condition(web(ns), "Progressing")["message"] == "Deployment is paused"
    await ns.patch("deployments", "web", {"spec": {"replicas": 3, **with_image(SECOND)["spec"]}})
    await ns.until(lambda: web(ns)["status"].get("availableReplicas") == 3, "it is scaled")
    assert {image(found) for found in ns.history["replicasets"]} == {FIRST}

    await ns.patch("deployments", "web", {"spec": {"paused": False}})
    await ns.until(lambda: rolled_out(ns), "the image is rolled out")
    marks = [condition(state, "Progressing") for state in ns.history["deployments"]]
    resumed = next(mark for mark in marks if mark.get("reason") == "DeploymentResumed")
    assert (resumed["status"], resumed["message"]) == ("Unknown", "Deployment is resumed")


@pytest.mark.row("D-167", "D-171")
@pytest.mark.parametrize("limit", [0, 1])
async def test_old_replica_sets_beyond_the_limit_are_deleted(ns: Namespace, limit: int) -> None:
    await have(ns, replicas=1, revisionHistoryLimit=limit)
    await roll(ns, SECOND)
    await roll(ns, THIRD)

    left = ["3"] if limit == 0 else ["2", "3"]
    await ns.until(lambda: [revision(found) for found in ns.replica_sets] == left, f"{limit} old ones are left")


async def test_a_replica_sets_failure_shows_until_it_is_over(ns: Namespace) -> None:
    await limit_pods(ns, 3)
    await ns.create("deployments", deployment(replicas=10))

    await ns.until(lambda: condition(web(ns), "ReplicaFailure"), "the condition is set")
    await ns.until(lambda: web(ns)["status"].get("availableReplicas") == 3, "there are as many pods as are allowed")
    reasons = {condition(state, "ReplicaFailure").get("reason") for state in ns.history["deployments"]}
    assert reasons == {None, "FailedCreate"}
    assert condition(web(ns), "Available")["status"] == "False"

    await set_quota(ns, hard=20, used=3)
    await ns.until(lambda: rolled_out(ns), "all pods are available")
    await ns.until(lambda: not condition(web(ns), "ReplicaFailure"), "the condition is gone")


@pytest.mark.row("D-151", "D-152")
async def test_a_rollout_that_stands_still_times_out_and_can_still_complete(ns: Namespace) -> None:
    template = pod_template()
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    await ns.create("deployments", deployment(replicas=1, template=template, progressDeadlineSeconds=1))

    await ns.until(lambda: progressing(ns) == "ProgressDeadlineExceeded", "the deadline has passed")
    condemned = condition(web(ns), "Progressing")
    assert condemned["status"] == "False"
    assert condemned["message"] == f'ReplicaSet "{current(ns)["metadata"]["name"]}" has timed out progressing.'
    assert not [event for event in ns.events if event.startswith("Warning")]

    free: Document = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await ns.patch("deployments", "web", free)
    await ns.until(lambda: rolled_out(ns) and condition(web(ns), "Progressing")["status"] == "True", "it has completed")


@pytest.mark.row("D-178")
async def test_deployments_with_one_selector_have_replica_sets_of_their_own(ns: Namespace) -> None:
    for name, replicas in (("one", 1), ("two", 2)):
        await ns.create("deployments", deployment(name, replicas=replicas, template=pod_template(f"{name}:1")))
    await ns.until(lambda: all(complete(ns.get("deployments", name)) for name in ("one", "two")), "both are complete")
    await ns.until(lambda: len(ns.pods) == 3, "there are the pods of both")

    owned = {(controller(found) or {})["name"]: len(ns.pods_of(found)) for found in ns.replica_sets}
    assert owned == {"one": 1, "two": 2}
