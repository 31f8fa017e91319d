"""StatefulSets through what happens to them in a cluster. Each test runs under the stock manager as well, which must pass."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from kcm.testing import ControlPlane
from tests.audit import User
from tests.integration.playing import BROKEN, OURS, STOCK, Side, claim, placed, running_pods, workload
from tests.managers import (
    UNLIMITED,
    Document,
    Managers,
    Namespace,
    complete,
    controller,
    is_ready,
    names,
    uid,
)

FLAGS = ("--controllers=statefulset-controller", "--leader-elect=false", "--secure-port=0", "--v=4", *UNLIMITED)
POLICY = "persistentVolumeClaimRetentionPolicy"


@pytest.fixture
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    return quiet_control_plane


@pytest.fixture(params=[OURS, STOCK], ids=lambda side: side.name, autouse=True)
def user(request: pytest.FixtureRequest, managers: Managers, control_plane: ControlPlane, ns: Namespace) -> User:
    """The manager that acts, as the server knows it."""
    side: Side = request.param
    user = User(control_plane, ns)
    managers.start(*FLAGS, kubeconfig=user.kubeconfig(), program=side.program)
    return user


@pytest.fixture(autouse=True)
async def node(ns: Namespace) -> AsyncIterator[None]:
    async with running_pods(ns):
        yield


def db(**spec: Any) -> Document:
    """A StatefulSet of three pods with a claim each."""
    return workload("StatefulSet", "db", **{"replicas": 3, "volumeClaimTemplates": [claim("data", "1Gi")], **spec})


def stateful_set(ns: Namespace) -> Document:
    return ns.get("statefulsets", "db")


def seen(ns: Namespace) -> bool:
    """Whether the manager has seen the newest spec."""
    found = stateful_set(ns)
    generation: int = found["metadata"]["generation"]
    return int(found["status"].get("observedGeneration", 0)) >= generation


async def until_complete(ns: Namespace) -> None:
    await ns.until(lambda: complete(stateful_set(ns)) and not going(ns), "it is complete")


def going(ns: Namespace) -> list[Document]:
    return [pod for pod in ns.pods if "deletionTimestamp" in pod["metadata"]]


def in_order(ns: Namespace) -> Callable[[], None]:
    """What holds at any time under OrderedReady without a failure: there is one pod at most that is not ready."""

    def check() -> None:
        assert sum(not is_ready(pod) for pod in ns.pods) <= 1

    return check


def born(ns: Namespace) -> list[str]:
    """The pods in the order in which they came to be."""
    return list({uid(pod): pod["metadata"]["name"] for pod in ns.history["pods"]}.values())


def condemned(ns: Namespace) -> list[str]:
    """The pods in the order in which they were deleted."""
    marked = [pod for pod in ns.history["pods"] if "deletionTimestamp" in pod["metadata"]]
    return list({uid(pod): pod["metadata"]["name"] for pod in marked}.values())


def claims(ns: Namespace) -> dict[str, str]:
    """The identities of the claims by name."""
    return {found["metadata"]["name"]: uid(found) for found in ns.all("persistentvolumeclaims")}


def owners(ns: Namespace, name: str) -> list[tuple[str, str]]:
    """Kind and name of what owns a claim."""
    references = ns.get("persistentvolumeclaims", name)["metadata"].get("ownerReferences", [])
    return [(reference["kind"], reference["name"]) for reference in references]


def images(ns: Namespace) -> dict[str, str]:
    """The last part of each living pod's image by its ordinal."""
    return {
        pod["metadata"]["name"].rpartition("-")[2]: pod["spec"]["containers"][0]["image"].rpartition("/")[2]
        for pod in ns.pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def with_image(image: str, **spec: object) -> Document:
    template = placed("db")
    template["spec"]["containers"][0]["image"] = image
    return {"spec": {"template": template, **spec}}


def partitioned(partition: int) -> Document:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}


async def vanish(ns: Namespace, name: str) -> None:
    """Delete a claim as the garbage collector and the controller that protects claims would."""
    await ns.delete("persistentvolumeclaims", name)
    await ns.patch("persistentvolumeclaims", name, {"metadata": {"finalizers": None}})


async def test_claims_outlive_the_pods_of_a_set_that_shrinks_and_grows(ns: Namespace) -> None:
    ns.always(in_order(ns))
    await ns.create("statefulsets", db(replicas=0))
    await ns.until(lambda: seen(ns), "the set is seen")
    assert not ns.pods

    await ns.scale("statefulsets", "db", 5)
    await until_complete(ns)
    first = claims(ns)
    assert sorted(first) == [f"data-db-{ordinal}" for ordinal in range(5)]
    assert born(ns) == [f"db-{ordinal}" for ordinal in range(5)]

    await ns.scale("statefulsets", "db", 2)
    await until_complete(ns)
    assert condemned(ns) == ["db-4", "db-3", "db-2"]
    assert names(ns.pods) == {"db-0", "db-1"}

    await ns.scale("statefulsets", "db", 5)
    await until_complete(ns)
    assert born(ns)[5:] == ["db-2", "db-3", "db-4"]
    assert claims(ns) == first
    volumes = {pod["metadata"]["name"]: pod["spec"]["volumes"][0]["persistentVolumeClaim"] for pod in ns.pods}
    assert volumes == {f"db-{ordinal}": {"claimName": f"data-db-{ordinal}"} for ordinal in range(5)}


@pytest.mark.parametrize("deleted", ["Retain", "Delete"])
@pytest.mark.parametrize("scaled", ["Retain", "Delete"])
async def test_claims_are_owned_as_their_retention_asks_for(ns: Namespace, deleted: str, scaled: str) -> None:
    kept = [("StatefulSet", "db")] if deleted == "Delete" else []
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    await ns.create("statefulsets", db(**{POLICY: policy}))
    await until_complete(ns)
    await ns.until(lambda: all(owners(ns, name) == kept for name in claims(ns)), "all claims are owned as they should")

    first = claims(ns)
    await ns.scale("statefulsets", "db", 1)
    await until_complete(ns)
    gone = [("Pod", "db-2")] if scaled == "Delete" else kept
    await ns.until(lambda: owners(ns, "data-db-2") == gone, "the claim of a pod that is no more has its owner")
    assert owners(ns, "data-db-0") == kept
    assert claims(ns) == first, "only a garbage collector deletes"

    await ns.scale("statefulsets", "db", 2)
    if scaled == "Delete":
        await ns.until(lambda: seen(ns), "the set is seen")
        assert names(ns.pods) == {"db-0"}, "a claim that is about to be collected is not used again"
        await vanish(ns, "data-db-1")
        await ns.patch("statefulsets", "db", {"metadata": {"annotations": {"wakes": "it"}}})
    await until_complete(ns)
    assert (claims(ns)["data-db-1"] == first["data-db-1"]) == (scaled == "Retain")
    await ns.until(lambda: owners(ns, "data-db-1") == kept, "the claim is owned as the others")


async def test_a_partition_lets_an_update_through_step_by_step(ns: Namespace) -> None:
    ns.always(in_order(ns))
    await ns.create("statefulsets", db(replicas=4, **partitioned(4)))
    await until_complete(ns)
    old, new = "c:1", "c:2"

    await ns.patch("statefulsets", "db", with_image("registry.test/c:2"))
    await ns.until(lambda: seen(ns) and stateful_set(ns)["status"]["updateRevision"], "the update is seen")
    assert set(images(ns).values()) == {old}
    first = stateful_set(ns)["status"]["currentRevision"]
    for partition, updated in ((3, "3"), (1, "123"), (0, "0123")):
        await ns.patch("statefulsets", "db", {"spec": partitioned(partition)})
        expected = {ordinal: new if ordinal in updated else old for ordinal in "0123"}

        def there(count: int = len(updated), expected: dict[str, str] = expected) -> bool:
            status = stateful_set(ns)["status"]
            ready = status.get("updatedReplicas", 0) == count and status.get("availableReplicas", 0) == 4
            return seen(ns) and ready and images(ns) == expected and not going(ns)

        await ns.until(there, f"partition {partition} is through")
        status = stateful_set(ns)["status"]
        if partition:
            assert (status["currentRevision"], status["currentReplicas"]) == (first, 4 - len(updated))
    await ns.until(
        lambda: stateful_set(ns)["status"]["currentRevision"] == stateful_set(ns)["status"]["updateRevision"],
        "the update is the current revision",
    )
    assert condemned(ns) == ["db-3", "db-2", "db-1", "db-0"]


@pytest.mark.row("S-127", "S-163")
async def test_an_ordered_set_waits_for_a_broken_pod_even_after_its_image_was_set_right(ns: Namespace) -> None:
    """As docs/stateful-sets.md says: the broken pod has to be deleted by hand."""
    await ns.create("statefulsets", db())
    await until_complete(ns)
    good = stateful_set(ns)["status"]["currentRevision"]
    await ns.patch("statefulsets", "db", with_image(BROKEN))
    await ns.until(lambda: images(ns).get("2") == "broken:1", "the last pod is the first to be updated")
    broken = next(uid(pod) for pod in ns.pods if pod["metadata"]["name"] == "db-2")

    await ns.patch("statefulsets", "db", with_image("registry.test/c:1"))

    def rolled_back() -> bool:
        status = stateful_set(ns)["status"]
        return seen(ns) and status["updateRevision"] == status["currentRevision"] == good

    await ns.until(rolled_back, "the rollback is seen")
    # What is asked for after it is done after it: the broken pod is not touched, and nothing else goes on.
    await ns.scale("statefulsets", "db", 4)
    await ns.until(lambda: seen(ns), "the scale-up is seen")
    assert {pod["metadata"]["name"]: uid(pod) for pod in ns.pods}["db-2"] == broken
    assert images(ns) == {"0": "c:1", "1": "c:1", "2": "broken:1"}

    await ns.delete("pods", "db-2")
    await until_complete(ns)
    assert set(images(ns).values()) == {"c:1"}
    assert len(images(ns)) == 4
    assert condemned(ns) == ["db-2", "db-2"]


@pytest.mark.row("S-164")
async def test_a_parallel_set_replaces_a_broken_pod_by_itself(ns: Namespace) -> None:
    await ns.create("statefulsets", db(podManagementPolicy="Parallel"))
    await until_complete(ns)
    await ns.patch("statefulsets", "db", with_image(BROKEN))
    await ns.until(lambda: images(ns).get("2") == "broken:1", "the last pod is the first to be updated")
    await ns.patch("statefulsets", "db", with_image("registry.test/c:1"))
    await until_complete(ns)
    assert images(ns) == {"0": "c:1", "1": "c:1", "2": "c:1"}


@pytest.mark.row("S-109", "S-111")
async def test_a_pod_is_not_made_again_while_its_claim_is_terminating(ns: Namespace) -> None:
    await ns.create("statefulsets", db(replicas=2))
    await until_complete(ns)
    before = claims(ns)
    await ns.delete("persistentvolumeclaims", "data-db-1")
    assert ns.get("persistentvolumeclaims", "data-db-1"), "it is protected as long as it is used"
    await ns.delete("pods", "db-1")
    failed = "Warning FailedCreate: Create Pod db-1 in StatefulSet db failed error: pvc data-db-1 is being deleted"
    await ns.until(lambda: failed in ns.events, "an event tells why")
    assert names(ns.pods) == {"db-0"}

    await ns.patch("persistentvolumeclaims", "data-db-1", {"metadata": {"finalizers": None}})
    await until_complete(ns)
    assert claims(ns)["data-db-0"] == before["data-db-0"]
    assert claims(ns)["data-db-1"] != before["data-db-1"]


@pytest.mark.row("S-059")
@pytest.mark.parametrize("length", [52, 53])
async def test_names_work_until_the_label_of_the_revision_is_too_long(ns: Namespace, length: int) -> None:
    name = "n" * length
    await ns.create("statefulsets", workload("StatefulSet", name, replicas=2))
    if length == 52:
        await ns.until(lambda: complete(ns.get("statefulsets", name)), "it is complete")
        labels = [pod["metadata"]["labels"] for pod in ns.pods]
        revision = ns.get("statefulsets", name)["status"]["updateRevision"]
        assert {label["controller-revision-hash"] for label in labels} == {revision}
        return

    def refused() -> bool:
        begin = f"Warning FailedCreate: Create Pod {name}-0 in StatefulSet {name} failed error:"
        return any(event.startswith(begin) and "63" in event for event in ns.events)

    # A name of ten digits at most follows it, so some names of this length work.
    await ns.until(lambda: refused() or complete(ns.get("statefulsets", name)), "it is refused, or works")
    revision = ns.all("controllerrevisions")[0]["metadata"]["name"]
    assert refused() == (len(revision) > 63)


@pytest.mark.row("S-131")
async def test_pods_of_others_are_in_the_way_and_left_alone(ns: Namespace, user: User) -> None:
    foreign = {"metadata": {"name": "db-1", "labels": {"app": "other"}}, "spec": placed("other")["spec"]}
    stranger = uid(await ns.create("pods", {"apiVersion": "v1", "kind": "Pod", **foreign}))
    await ns.create("statefulsets", db())
    await user.until_asked("pods", "create", times=4)
    assert (await user.answers("pods", "create"))["create", 409] >= 2
    assert {pod["metadata"]["name"]: uid(pod) for pod in ns.pods}["db-1"] == stranger
    assert "db-2" not in names(ns.pods)
    assert not [event for event in ns.events if event.startswith("Warning")]

    await ns.delete("pods", "db-1")
    await until_complete(ns)
    assert all(controller(pod) for pod in ns.pods)


@pytest.mark.row("S-109")
async def test_a_claim_that_is_there_is_used_whosever_it_is(ns: Namespace) -> None:
    spec = claim("data-db-0", "5Gi")["spec"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "cm", "uid": "0", "controller": True}
    document = {"metadata": {"name": "data-db-0", "ownerReferences": [owner]}, "spec": spec}
    stranger = await ns.create("persistentvolumeclaims", document)
    await ns.create("statefulsets", db(replicas=2, **{POLICY: {"whenDeleted": "Delete", "whenScaled": "Retain"}}))
    await until_complete(ns)
    assert claims(ns)["data-db-0"] == uid(stranger)
    await ns.until(lambda: owners(ns, "data-db-1") == [("StatefulSet", "db")], "its own claim is owned by the set")
    assert owners(ns, "data-db-0") == [("ConfigMap", "cm")]
    await ns.until(
        lambda: any(event.startswith("Warning ConflictingController:") for event in ns.events), "an event tells of it"
    )


@pytest.mark.row("S-123", "S-137")
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_pod_that_has_ended_is_replaced_with_its_claim(ns: Namespace, phase: str) -> None:
    await ns.create("statefulsets", db())
    await until_complete(ns)
    before = claims(ns)
    ended = next(uid(pod) for pod in ns.pods if pod["metadata"]["name"] == "db-1")
    await ns.patch("pods", "db-1", {"status": {"phase": phase}}, "status")

    def replaced() -> bool:
        return complete(stateful_set(ns)) and len(ns.pods) == 3 and ended not in map(uid, ns.pods)

    await ns.until(replaced, "another pod is in its place")
    assert claims(ns) == before
    assert sum(uid(pod) == ended and "deletionTimestamp" in pod["metadata"] for pod in ns.history["pods"]) <= 1


@pytest.mark.row("S-094", "S-191", "S-208")
async def test_what_the_server_sees_to(ns: Namespace) -> None:
    """What neither manager has to do itself."""
    rolling = {"type": "RollingUpdate"}
    bare = await ns.create("statefulsets", workload("StatefulSet", "bare", replicas=0, updateStrategy=rolling))
    assert bare["spec"]["updateStrategy"] == rolling
    made = (await ns.create("statefulsets", db(replicas=None, revisionHistoryLimit=None)))["spec"]
    assert (made["replicas"], made["revisionHistoryLimit"]) == (1, 10)
    assert made["updateStrategy"] == {**rolling, "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}
    part = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2, "partition": None}}}
    assert (await ns.patch("statefulsets", "db", {"spec": part}))["spec"]["updateStrategy"]["rollingUpdate"] == {
        "partition": 0,
        "maxUnavailable": 2,
    }
    await until_complete(ns)
    for wrong in ({"readyReplicas": 2}, {"updatedReplicas": 2}, {"replicas": -1}, {"availableReplicas": 2}):
        with pytest.raises(aiohttp.ClientResponseError) as refused:
            await ns.patch("statefulsets", "db", {"status": wrong}, "status")
        assert refused.value.status == 422
