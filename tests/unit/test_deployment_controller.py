"""Which Deployments are synced when, and what becomes of a sync that fails."""

import asyncio
from typing import Any

import msgspec
import pytest

from kcm.api.errors import AggregateError, TransportError
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.meta import Document, format_time
from kcm.controllers.deployment.deployment_controller import MAX_RETRIES, DeploymentController
from kcm.events.recorder import FakeRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Tombstone
from kcm.workqueue.queue import Queue, ShutDown
from tests.clocks import START
from tests.unit.deployment_world import DeploymentWorld
from tests.unit.fakes import (
    FakeApi,
    deployment_document,
    informers,
    owner_reference,
    pod_document,
    refusal,
    replica_set_document,
)


@pytest.fixture
def world() -> DeploymentWorld:
    return DeploymentWorld()


def labelled(document: Document, **labels: str) -> Document:
    document["metadata"]["labels"] = labels
    return document


# Handlers


@pytest.mark.row("D-001", "D-002", "D-007")
async def test_its_informers_and_the_pod_index_may_be_shared(
    world: DeploymentWorld,
) -> None:
    assert world.controller.name == "deployment-controller"
    await world.have(replica_set_document(), pod_document("a"), pod_document("orphan", owner=None))
    seen = world.pods.store.by_index("podController", "ns/ReplicaSet/web-1/uid-web-1")
    assert [pod.metadata.name for pod in seen] == ["a"]
    assert [pod.metadata.name for pod in world.pods.store.by_index("podController", "ns")] == ["orphan"]
    DeploymentController(
        client=world.api,
        deployments=world.deployments,
        replica_sets=world.replica_sets,
        pods=world.pods,
        recorder=world.recorder,
        queue=world.queue,
    )


@pytest.mark.row("D-010", "D-011", "D-012")
async def test_every_event_of_a_deployment_counts(world: DeploymentWorld) -> None:
    deployment = world.api.seed(DEPLOYMENTS, deployment_document())
    await world.deliver()
    assert world.queue.added == ["ns/web"]
    world.controller._deployment_updated(deployment, deployment)
    assert world.queue.added == ["ns/web"] * 2
    world.api.remove(DEPLOYMENTS, "web")
    await world.deliver()
    assert world.queue.added == ["ns/web"] * 3
    world.controller._deployment_deleted(Tombstone("ns/web", deployment))
    assert world.queue.added == ["ns/web"] * 4


@pytest.mark.row("D-014", "D-015", "D-022")
@pytest.mark.parametrize(
    ("owner", "keys"),
    [
        (owner_reference("web"), ["ns/web"]),
        (owner_reference("web") | {"apiVersion": "other/v7"}, ["ns/web"]),
        (owner_reference("web", kind="Other"), []),
        (owner_reference("web", uid="another"), []),
        (owner_reference("missing"), []),
        (None, ["ns/web", "ns/twin"]),
    ],
)
async def test_an_added_replica_set_wakes_its_owner_or_those_that_may_adopt_it(
    world: DeploymentWorld, owner: Document | None, keys: list[str]
) -> None:
    other = deployment_document("other", selector={"matchLabels": {"app": "db"}})
    await world.have(deployment_document(), deployment_document("twin"), other)
    references = {} if owner is None else {"ownerReferences": [owner]}
    world.api.seed(REPLICA_SETS, replica_set_document(owner=None, metadata=references))
    await world.deliver()
    assert world.queue.added == keys


@pytest.mark.row("D-013", "D-020")
async def test_a_replica_set_that_is_going_or_gone_wakes_its_owner_only(world: DeploymentWorld) -> None:
    going = {"deletionTimestamp": format_time(START)}
    await world.have(deployment_document())
    world.api.seed(REPLICA_SETS, replica_set_document("orphan", owner=None, metadata=going))
    await world.deliver()
    assert world.queue.added == []
    owned = world.api.seed(REPLICA_SETS, replica_set_document("owned", metadata=going))
    await world.deliver()
    assert world.queue.added == ["ns/web"]
    world.api.remove(REPLICA_SETS, "owned")
    world.api.remove(REPLICA_SETS, "orphan")
    await world.deliver()
    assert world.queue.added == ["ns/web"] * 2
    world.controller._replica_set_deleted(Tombstone("ns/owned", owned))
    assert world.queue.added == ["ns/web"] * 3


async def change(world: DeploymentWorld, **metadata: Any) -> list[str]:
    """Change the metadata of the ReplicaSet and give the keys that were woken."""
    world.queue.added.clear()
    world.api.change(REPLICA_SETS, "web-1", lambda document: document["metadata"].update(metadata))
    await world.deliver()
    return world.queue.added


@pytest.mark.row("D-016", "D-018")
async def test_every_real_change_of_an_owned_replica_set_wakes_its_owner(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), replica_set_document())
    world.run_pods("web-1", available=1)
    await world.deliver()
    assert world.queue.added == ["ns/web"]
    cached = world.replica_sets.store.get("ns/web-1")
    assert cached is not None
    world.controller._replica_set_updated(cached, cached)
    assert world.queue.added == ["ns/web"]


@pytest.mark.row("D-017", "D-019")
async def test_a_replica_set_that_changes_hands_wakes_both_owners(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), deployment_document("db", selector={"matchLabels": {"app": "db"}}))
    await world.have(replica_set_document())
    assert await change(world, ownerReferences=[owner_reference("db")]) == ["ns/web", "ns/db"]
    detail = owner_reference("db") | {"blockOwnerDeletion": False}
    assert await change(world, ownerReferences=[detail]) == ["ns/db", "ns/db"]
    assert await change(world, ownerReferences=[]) == ["ns/db", "ns/web"]


@pytest.mark.row("D-019")
async def test_an_orphan_wakes_those_that_may_adopt_it_when_its_labels_change(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), replica_set_document(owner=None))
    assert await change(world, annotations={"a": "b"}) == []
    assert await change(world, labels={"app": "db"}) == []
    assert await change(world, labels={"app": "web", "more": "x"}) == ["ns/web"]


@pytest.mark.row("D-021", "D-131")
async def test_the_end_of_a_pod_wakes_a_deployment_that_recreates(world: DeploymentWorld) -> None:
    """The addition or change of a pod does not, nor does the end of one that cannot be traced to a Deployment."""
    await world.have(
        deployment_document(strategy="Recreate"),
        replica_set_document(),
        replica_set_document("orphan", owner=None),
        pod_document("a"),
        pod_document("b"),
        pod_document("bare", owner=None),
        pod_document("lost", owner="missing"),
        pod_document("orphaned", owner="orphan"),
    )
    strange = pod_document("strange")
    strange["metadata"]["ownerReferences"] = [owner_reference("web-1", kind="Job")]
    stale = pod_document("stale")
    stale["metadata"]["ownerReferences"] = [owner_reference("web-1", kind="ReplicaSet", uid="former")]
    await world.have(strange, stale)
    assert world.queue.added == []
    for name, keys in {"a": ["ns/web"], "bare": [], "lost": [], "orphaned": [], "strange": [], "stale": []}.items():
        world.queue.added.clear()
        world.api.remove(world.pods.resource, name)
        await world.deliver()
        assert world.queue.added == keys, name
    last = world.pods.store.get("ns/b")
    assert last is not None
    world.queue.added.clear()
    world.controller._pod_deleted(Tombstone("ns/b", last))
    assert world.queue.added == ["ns/web"]


@pytest.mark.row("D-021")
async def test_the_end_of_a_pod_wakes_no_deployment_that_rolls(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), replica_set_document(), pod_document("a"))
    world.api.remove(world.pods.resource, "a")
    await world.deliver()
    assert world.queue.added == []


# Failures


@pytest.mark.row("D-027", "D-028", "D-029")
@pytest.mark.parametrize(
    "error", [refusal(409, "Conflict"), refusal(403, "Forbidden"), TransportError("timeout"), KeyError("bug")]
)
def test_any_failure_is_retried_fifteen_times_and_then_dropped(error: Exception) -> None:
    world = DeploymentWorld()
    for failures in range(MAX_RETRIES):
        world.queue.failures = failures
        world.controller.handle_error("ns/web", error)
    assert world.queue.rate_limited == ["ns/web"] * 15
    assert world.queue.forgotten == []
    world.queue.failures = 15
    world.controller.handle_error("ns/web", error)
    assert (len(world.queue.rate_limited), world.queue.forgotten) == (15, ["ns/web"])


@pytest.mark.row("D-026")
def test_a_failure_in_a_namespace_that_is_going_is_none() -> None:
    world = DeploymentWorld()
    world.controller.handle_error("ns/web", refusal(403, "Forbidden", "", "NamespaceTerminating"))
    assert (world.queue.rate_limited, world.queue.forgotten) == ([], ["ns/web"])


@pytest.mark.row("D-025", "D-032")
async def test_a_sync_without_error_forgets_failures_and_needs_no_deployment(world: DeploymentWorld) -> None:
    await world.controller.process("ns/missing")
    assert world.api.calls == []
    assert (world.queue.forgotten, world.queue.rate_limited) == (["ns/missing"], [])


@pytest.mark.row("D-030")
async def test_a_malformed_key_is_an_error(world: DeploymentWorld) -> None:
    with pytest.raises(ValueError, match="unexpected key format"):
        await world.sync("a/b")
    await world.controller.process("ns/a/b")
    assert world.queue.rate_limited == ["ns/a/b"]


# Workers


async def fill(informer: SharedInformer[Any], *objects: Any) -> None:
    """Give an informer its first snapshot."""
    snapshot = informer.new_snapshot()
    for obj in objects:
        snapshot.put(obj)
    await informer.replace(snapshot)


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.row("D-004")
async def test_no_worker_starts_before_all_caches_are_filled_and_the_end_is_clean() -> None:
    api, queue = FakeApi(), Queue("deployment")
    deployments, replica_sets, pods = informers(api)
    controller = DeploymentController(
        client=api,
        deployments=deployments,
        replica_sets=replica_sets,
        pods=pods,
        recorder=FakeRecorder(),
        queue=queue,
    )
    deployment = api.seed(DEPLOYMENTS, deployment_document())
    running = asyncio.create_task(controller.run(2))
    await fill(deployments, deployment)
    await fill(replica_sets)
    await turns()
    assert (len(queue), api.calls) == (1, [])
    await fill(pods)
    await turns()
    assert str(api.calls[0]) == "POST replicasets"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ShutDown):
        await queue.get()


# What every sync does first


@pytest.mark.row("D-034")
async def test_a_selector_of_everything_is_refused_and_noted(world: DeploymentWorld) -> None:
    await world.have(deployment_document(selector={}, metadata={"generation": 4}), replica_set_document(owner=None))
    assert await world.sync() == ["PUT deployments/web/status"]
    assert world.api.one(DEPLOYMENTS, "web").status.observed_generation == 4
    message = "This deployment is selecting all pods. A non-empty selector is required."
    assert world.events == [f"Warning SelectingAll: {message}"]
    await world.deliver()
    assert await world.sync() == []


@pytest.mark.row("D-034")
async def test_not_even_that_note_is_needed(world: DeploymentWorld) -> None:
    await world.have(deployment_document(selector={}))
    world.api.fail("PUT", "deployments/web/status", refusal(409, "Conflict"))
    assert await world.sync() == ["PUT deployments/web/status"]


@pytest.mark.row("D-035")
async def test_an_invalid_selector_is_an_error_and_none_selects_nothing(world: DeploymentWorld) -> None:
    odd = {"matchExpressions": [{"key": "app", "operator": "Odd"}]}
    await world.have(
        deployment_document(selector=odd),
        deployment_document("nil", selector=None, paused=True, deadline=None),
        replica_set_document(owner=None),
    )
    with pytest.raises(ValueError, match=r"^deployment ns/web has invalid label selector: "):
        await world.sync()
    assert world.api.calls == []
    assert await world.sync("nil") == ["PUT deployments/nil/status"]


@pytest.mark.row("D-038")
async def test_an_unknown_strategy_is_an_error(world: DeploymentWorld) -> None:
    await world.have(deployment_document(strategy="Odd"))
    with pytest.raises(ValueError, match=r"^unexpected deployment strategy type: Odd$"):
        await world.sync()


@pytest.mark.row("D-040", "D-041", "D-042")
async def test_what_no_longer_matches_is_released_and_what_others_control_left_alone(world: DeploymentWorld) -> None:
    await world.have(
        deployment_document(paused=True, deadline=None),
        replica_set_document("mine"),
        labelled(replica_set_document("former"), app="db"),
        labelled(replica_set_document("foreign-orphan", owner=None), app="db"),
        replica_set_document("theirs", owner="other"),
    )
    calls = await world.sync()
    assert [call for call in calls if "status" not in call and "GET" not in call][:1] == ["PATCH replicasets/former"]
    assert world.api.calls[0].body == {
        "metadata": {"uid": "uid-former", "ownerReferences": [{"$patch": "delete", "uid": "uid-web"}]}
    }
    assert not any("foreign-orphan" in call or "theirs" in call for call in calls)


@pytest.mark.row("D-043", "D-044", "D-046", "D-050")
async def test_a_matching_orphan_is_adopted_after_one_look_past_the_cache(world: DeploymentWorld) -> None:
    """What is adopted stays as it was cached, so writing it in the same sync ends in a conflict."""
    await world.have(
        deployment_document(replicas=5),
        replica_set_document("one", owner=None, age=9),
        replica_set_document("two", owner=None, replicas=0),
    )
    with pytest.raises(Exception, match="modified"):
        await world.sync()
    calls = [str(call) for call in world.api.calls]
    assert calls == ["GET deployments/web", "PATCH replicasets/one", "PATCH replicasets/two", "PUT replicasets/one"]
    assert world.api.calls[1].body == {"metadata": {"ownerReferences": [owner_reference()], "uid": "uid-one"}}


@pytest.mark.row("D-044", "D-045", "D-049")
async def test_adoption_is_off_when_the_deployment_turns_out_to_be_going_or_another(world: DeploymentWorld) -> None:
    await world.have(
        deployment_document(), replica_set_document("one", owner=None), labelled(replica_set_document("out"), app="db")
    )
    api = world.api
    api.change(DEPLOYMENTS, "web", lambda d: d["metadata"].update(deletionTimestamp=format_time(START)))
    with pytest.raises(
        AggregateError, match=r"^can't adopt ReplicaSet ns/one \(uid-one\): ns/web has just been deleted at "
    ):
        await world.sync()
    assert [str(call) for call in api.calls] == ["GET deployments/web", "PATCH replicasets/out"]
    api.change(DEPLOYMENTS, "web", lambda d: d["metadata"].update(uid="new"))
    message = "can't recheck DeletionTimestamp: original Deployment ns/web is gone: got uid new, wanted uid-web"
    with pytest.raises(AggregateError) as caught:
        await world.sync()
    assert str(caught.value) == f"can't adopt ReplicaSet ns/one (uid-one): {message}"


@pytest.mark.row("D-047", "D-048")
@pytest.mark.parametrize(
    ("adoption", "release"),
    [(refusal(404, "NotFound"), refusal(404, "NotFound")), (refusal(404, "NotFound"), refusal(422, "Invalid"))],
)
async def test_replica_sets_that_are_gone_meanwhile_are_neither_adopted_nor_released(
    world: DeploymentWorld, adoption: Exception, release: Exception
) -> None:
    """What was not adopted is not counted either."""
    await world.have(
        deployment_document(paused=True, deadline=None),
        replica_set_document("orphan", owner=None),
        labelled(replica_set_document("former"), app="db"),
    )
    world.api.fail("PATCH", "replicasets/orphan", adoption)
    world.api.fail("PATCH", "replicasets/former", release)
    assert (await world.sync())[1:] == [
        "PATCH replicasets/orphan",
        "PATCH replicasets/former",
        "PUT deployments/web/status",
    ]
    assert world.api.one(DEPLOYMENTS, "web").status.replicas == 0


@pytest.mark.row("D-047", "D-048", "D-049")
async def test_other_failures_to_adopt_or_release_are_collected_and_end_the_sync(world: DeploymentWorld) -> None:
    await world.have(
        deployment_document(),
        replica_set_document("orphan", owner=None),
        labelled(replica_set_document("former"), app="db"),
    )
    world.api.fail("PATCH", "replicasets/orphan", refusal(422, "Invalid", "second controller"))
    world.api.fail("PATCH", "replicasets/former", refusal(409, "Conflict", "busy"))
    with pytest.raises(AggregateError, match=r"^\[second controller, busy\]$"):
        await world.sync()
    assert len(world.api.calls) == 3


@pytest.mark.row("D-041", "D-042", "D-043")
async def test_a_deployment_that_is_going_neither_adopts_nor_releases(world: DeploymentWorld) -> None:
    going = {"deletionTimestamp": format_time(START)}
    await world.have(
        deployment_document(metadata=going),
        replica_set_document("mine"),
        labelled(replica_set_document("former"), app="db"),
        replica_set_document("orphan", owner=None),
    )
    assert not any(call.startswith(("PATCH", "GET")) for call in await world.sync())


@pytest.mark.row("D-043")
async def test_a_replica_set_that_is_going_is_not_adopted_but_kept_if_owned(world: DeploymentWorld) -> None:
    going = {"deletionTimestamp": format_time(START)}
    await world.have(
        deployment_document(metadata=going),
        replica_set_document("orphan", owner=None, metadata=going),
        replica_set_document("mine", replicas=2, metadata=going),
    )
    await world.settle()
    assert world.api.one(DEPLOYMENTS, "web").status.replicas == 2


@pytest.mark.row("D-036", "D-037")
async def test_a_deployment_that_is_going_only_has_its_status_updated(world: DeploymentWorld) -> None:
    """Not scaled, not paused, not cleaned, not rolled back; but the annotations of its new ReplicaSet are."""
    going = {"deletionTimestamp": format_time(START)}
    await world.have(
        deployment_document(
            replicas=9, paused=True, history=0, annotations={"deprecated.deployment.rollback.to": "0"}, metadata=going
        ),
        replica_set_document("new"),
        replica_set_document("old", replicas=0, template={"metadata": {"labels": {"app": "web"}}, "spec": {}}),
    )
    assert await world.sync() == ["PUT replicasets/new", "PUT deployments/web/status"]
    await world.settle()
    assert {rs.metadata.name: rs.spec.replicas for rs in world.api.all(REPLICA_SETS)} == {"new": 3, "old": 0}


@pytest.mark.row("D-033", "D-141")
async def test_a_sync_changes_nothing_in_the_cache(world: DeploymentWorld) -> None:
    document = deployment_document(annotations={"a": "b"})
    document["spec"]["template"]["spec"]["fieldFromTheFuture"] = {"x": [1]}
    document["status"]["fieldFromTheFuture"] = 1
    await world.have(document, replica_set_document(annotations={"deployment.kubernetes.io/revision": "1"}))
    cached = world.deployments.store.get("ns/web"), world.replica_sets.store.get("ns/web-1")
    before = msgspec.json.encode(cached)
    await world.settle()
    assert msgspec.json.encode(cached) == before
    stored = world.api.one(DEPLOYMENTS, "web").document()
    assert stored["spec"]["template"] == document["spec"]["template"]
    assert stored["metadata"]["annotations"]["a"] == "b"
