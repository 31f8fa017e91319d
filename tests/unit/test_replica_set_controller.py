"""The ReplicaSet controller against an API server in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kcm.api.errors import StatusError
from kcm.api.resources import PODS, REPLICA_SETS
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document, format_time
from kcm.consistency import NoConsistencyStore, RealConsistencyStore
from kcm.controllers.pod_control import RealPodControl
from kcm.controllers.replicaset.replica_set import ReplicaSetController
from kcm.events.recorder import FakeRecorder
from kcm.expectations import ControllerExpectations
from kcm.informers.shared_informer import SharedInformer
from kcm.logs import capture
from kcm.workqueue.queue import Queue
from tests.clocks import START, FakeClock
from tests.unit.fakes import (
    NAMESPACE,
    FakeApi,
    owner_reference,
    pod_document,
    refusal,
    replica_set_document,
)

KEY = f"{NAMESPACE}/web-1"
#: What the server calls a pod that was made from generateName.
CREATE = "POST pods"


class NotingQueue(Queue):
    """Notes delays instead of waiting for them."""

    def __init__(self, delays: list[float]) -> None:
        super().__init__("")
        self._noted = delays

    def add_after(self, key: str, seconds: float) -> None:
        assert key == KEY
        self._noted.append(seconds)


class World:
    """A server, caches that lag as far as the test lets them, and the controller."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.recorder = FakeRecorder()
        self.replica_sets = SharedInformer(self.api, REPLICA_SETS)
        self.pods = SharedInformer(self.api, PODS)
        self.queue = Queue("")
        consistent = options.pop("consistent", False)
        readers = {
            "pods": lambda: self.pods.store.resource_version,
            "replicasets.apps": lambda: self.replica_sets.store.resource_version,
        }
        self.controller = ReplicaSetController(
            client=self.api,
            replica_sets=self.replica_sets,
            pods=self.pods,
            pod_control=RealPodControl(self.api, self.recorder),
            queue=self.queue,
            consistency=RealConsistencyStore(readers) if consistent else NoConsistencyStore(),
            clock=self.clock,
            **options,
        )

    async def deliver(self) -> None:
        await self.api.deliver([self.replica_sets, self.pods])

    async def sync(self) -> list[str]:
        """Sync once, and give the requests made."""
        self.api.calls.clear()
        await self.controller.sync(KEY)
        return self.api.take_calls()

    def queued(self) -> bool:
        """Whether the key waits; it is taken out."""
        waiting = len(self.queue) > 0
        self.queue = self.controller.queue = Queue("")
        return waiting

    def note_delays(self) -> list[float]:
        """The delays of what is added to the queue from now on."""
        delays: list[float] = []
        queue = NotingQueue(delays)
        self.queue = self.controller.queue = queue
        return delays

    def add_pods(self, count: int, **options: Any) -> list[Pod]:
        start = len(self.api.all(PODS))
        return [self.api.seed(PODS, labelled(f"web-1-{start + number}", **options)) for number in range(count)]

    @property
    def events(self) -> list[str]:
        return [f"{event.type} {event.reason}: {event.message}" for event in self.recorder.occurrences]

    @property
    def status(self) -> Document:
        status: Document = self.api.one(REPLICA_SETS, "web-1").document()["status"]
        return status


def labelled(name: str, *, app: str = "web", ready: bool = True, deleted: bool = False, **options: Any) -> Document:
    """A pod that a ReplicaSet selects."""
    document = pod_document(name, **options)
    document["metadata"]["labels"] = {"app": app, "pod-template-hash": "web-1"}
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": format_time(START)}]
    document["status"]["conditions"] = conditions
    if deleted:
        document["metadata"]["deletionTimestamp"] = format_time(START)
    return document


async def world(replicas: int, pods: int = 0, **options: Any) -> World:
    """A world with one ReplicaSet, its pods, and caches that know them."""
    of_controller = {"burst_replicas", "consistent", "metrics", "terminating_replicas"} & options.keys()
    made = World(**{key: options.pop(key) for key in of_controller})
    status = {"replicas": pods, **options.pop("status", {})}
    made.api.seed(REPLICA_SETS, replica_set_document(replicas=replicas, status=status, **options))
    made.add_pods(pods)
    await made.deliver()
    return made


@pytest.mark.row("R-071", "R-105", "R-115")
async def test_what_is_missing_is_created_and_counted_only_once_seen() -> None:
    w = await world(3)
    assert await w.sync() == [CREATE, CREATE, CREATE, "PUT replicasets/web-1/status"]
    assert w.status["replicas"] == 0
    await w.deliver()
    assert await w.sync() == ["PUT replicasets/web-1/status"]
    assert w.status["replicas"] == 3
    await w.deliver()
    assert await w.sync() == []


@pytest.mark.row("R-058", "R-180", "R-037")
async def test_nothing_is_created_while_creations_are_not_seen_yet() -> None:
    w = await world(2, pods=1)
    assert CREATE in await w.sync()
    assert CREATE not in await w.sync()
    await w.deliver()
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(replicas=3))
    await w.deliver()
    w.api.fail("POST", "pods", refusal(500, "InternalError"))
    with pytest.raises(StatusError):
        await w.sync()
    assert CREATE in await w.sync(), "a creation that failed is not waited for"


@pytest.mark.row("R-004", "R-151", "R-182")
async def test_a_sync_creates_and_deletes_no_more_than_a_burst() -> None:
    w = await world(12, burst_replicas=5)
    created = []
    for _ in range(3):
        created.append((await w.sync()).count(CREATE))
        await w.deliver()
    assert created == [5, 5, 2]
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(replicas=0))
    await w.deliver()
    deletes = [call for call in await w.sync() if call.startswith("DELETE")]
    assert len(deletes) == 5


@pytest.mark.row("R-082", "R-085", "R-086")
async def test_what_is_too_much_is_deleted_by_name_without_preconditions() -> None:
    w = await world(1, pods=3)
    w.api.calls.clear()
    await w.controller.sync(KEY)
    deletes = [call for call in w.api.calls if call.method == "DELETE"]
    assert len(deletes) == 2
    assert all(call.body == {"kind": "DeleteOptions", "apiVersion": "v1"} for call in deletes)
    assert [event.partition(":")[0] for event in w.events] == ["Normal SuccessfulDelete"] * 2


@pytest.mark.row("R-088", "R-089", "R-109")
async def test_a_vanished_pod_is_no_failure_and_another_failure_is() -> None:
    w = await world(0, pods=2)
    w.api.fail("DELETE", "pods/web-1-0", refusal(404, "NotFound"))
    w.api.fail("DELETE", "pods/web-1-1", refusal(500, "InternalError", "no way"))
    with pytest.raises(Exception, match=r"^unable to delete pods: no way$"):
        await w.sync()
    assert w.events == ["Warning FailedDelete: Error deleting: no way"]
    assert [(c["reason"], c["message"]) for c in w.status["conditions"]] == [
        ("FailedDelete", "unable to delete pods: no way")
    ]
    assert w.controller.expectations.satisfied(KEY), "neither deletion is waited for"


@pytest.mark.row("R-074", "R-076", "R-081", "R-061")
async def test_a_refused_creation_stops_the_start_and_shows_in_the_status() -> None:
    w = await world(10)
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "exceeded quota"), times=100)
    with pytest.raises(StatusError, match="exceeded quota"):
        await w.sync()
    assert w.events == ["Warning FailedCreate: Error creating: exceeded quota"]
    assert [(c["type"], c["reason"]) for c in w.status["conditions"]] == [("ReplicaFailure", "FailedCreate")]
    assert w.controller.expectations.satisfied(KEY)
    w.api.fail("PUT", "replicasets/web-1/status", refusal(500, "InternalError", "status first"), times=2)
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(replicas=11))
    await w.deliver()
    with pytest.raises(StatusError, match="status first"):
        await w.sync()


@pytest.mark.row("R-075")
async def test_a_terminating_namespace_is_not_a_failure() -> None:
    w = await world(3)
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "going", "NamespaceTerminating"), times=100)
    calls = await w.sync()
    assert calls.count(CREATE) == 3
    assert w.events == []
    assert "conditions" not in w.status
    assert not w.controller.expectations.satisfied(KEY)


@pytest.mark.row("R-115", "R-184", "R-172")
async def test_a_failed_status_write_is_tried_once_more_on_a_fresh_read() -> None:
    w = await world(1, pods=1, status={"replicas": 0})
    w.api.fail("PUT", "replicasets/web-1/status", refusal(409, "Conflict"))
    assert await w.sync() == [
        "PUT replicasets/web-1/status",
        "GET replicasets/web-1",
        "PUT replicasets/web-1/status",
    ]
    w = await world(1, pods=1, status={"replicas": 0})
    w.api.fail("PUT", "replicasets/web-1/status", refusal(409, "Conflict", "second"), times=2)
    with pytest.raises(StatusError, match="second"):
        await w.sync()
    assert w.api.take_calls().count("PUT replicasets/web-1/status") == 2
    w = await world(1, pods=1, status={"replicas": 0})
    w.api.fail("PUT", "replicasets/web-1/status", refusal(409, "Conflict"))
    w.api.fail("GET", "replicasets/web-1", refusal(500, "InternalError", "unreadable"))
    with pytest.raises(StatusError, match="unreadable"):
        await w.sync()


@pytest.mark.row("R-059", "R-060", "R-190")
async def test_one_that_is_being_deleted_only_gets_its_status() -> None:
    w = await world(3, metadata={"deletionTimestamp": format_time(START)}, status={"replicas": 7})
    w.api.seed(PODS, labelled("orphan", owner=None))
    await w.deliver()
    assert await w.sync() == ["PUT replicasets/web-1/status"]
    assert w.status["replicas"] == 0


@pytest.mark.row("R-039", "R-040", "R-108", "R-142")
async def test_ended_and_terminating_pods_are_replaced_and_the_latter_counted() -> None:
    w = await world(1)
    w.add_pods(1, phase="Failed")
    w.add_pods(1, deleted=True)
    w.api.seed(PODS, labelled("orphan", owner=None, deleted=True))
    await w.deliver()
    calls = await w.sync()
    assert calls.count(CREATE) == 1
    assert not [call for call in calls if call.startswith("PATCH")]
    assert w.status["terminatingReplicas"] == 1


@pytest.mark.row("R-108", "R-204")
async def test_terminating_pods_are_not_counted_with_the_gate_off() -> None:
    w = await world(0, terminating_replicas=False, status={"terminatingReplicas": 3})
    await w.sync()
    assert "terminatingReplicas" not in w.status


@pytest.mark.row("R-054", "R-208")
async def test_surplus_orphans_are_adopted_and_deleted_in_one_sync() -> None:
    w = await world(2)
    for number in range(3):
        w.api.seed(PODS, labelled(f"orphan-{number}", owner=None))
    await w.deliver()
    calls = await w.sync()
    assert calls[0] == "GET replicasets/web-1"
    assert [call.split()[0] for call in calls[1:]] == ["PATCH"] * 3 + ["DELETE", "PUT"]


@pytest.mark.row("R-056", "R-057")
async def test_nothing_is_done_for_one_that_is_gone_or_selects_nonsense() -> None:
    w = World()
    assert await w.sync() == []
    selector = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    w = await world(3, selector=selector)
    assert await w.sync() == []


@pytest.mark.row("R-118", "R-119", "R-120")
async def test_the_next_pod_to_become_available_wakes_its_owner() -> None:
    w = await world(1, pods=1, minReadySeconds=30)
    delays = w.note_delays()
    w.clock.seconds = 10
    await w.sync()
    assert w.status["readyReplicas"] == 1
    assert delays == [20.0]
    w.api.change(PODS, "web-1-0", lambda doc: doc["status"]["conditions"][0].pop("lastTransitionTime"))
    await w.deliver()
    delays.clear()
    await w.sync()
    assert delays == [30]


@pytest.mark.row("R-064", "R-065", "R-070", "R-171")
async def test_a_cache_older_than_an_own_write_is_not_acted_on() -> None:
    w = await world(2, consistent=True)
    await w.sync()
    with pytest.raises(Exception, match=r"read version: \d+ is not as new as written version: \d+ for group resource"):
        await w.sync()
    assert w.api.take_calls() == []
    await w.deliver()
    await w.sync()


@pytest.mark.row("R-016", "R-186", "R-015")
async def test_a_recreated_one_starts_without_expectations() -> None:
    w = await world(3)
    await w.sync()
    w.api.remove(REPLICA_SETS, "web-1")
    w.api.seed(REPLICA_SETS, replica_set_document(replicas=2, metadata={"uid": "another"}))
    await w.deliver()
    assert (await w.sync()).count(CREATE) == 2


def _touch(doc: Document) -> None:
    doc["metadata"].setdefault("annotations", {})["touched"] = "yes"


def _relabel(doc: Document) -> None:
    doc["metadata"]["labels"]["more"] = "yes"


def _release(doc: Document) -> None:
    doc["metadata"]["ownerReferences"] = []


def _give_away(doc: Document) -> None:
    doc["metadata"]["ownerReferences"] = [owner_reference("elsewhere", kind="ReplicaSet")]


@pytest.mark.row("R-018", "R-019", "R-020", "R-021")
@pytest.mark.parametrize(
    ("pod", "wakes"),
    [
        (labelled("p"), True),
        (labelled("p", owner="other"), False),
        (labelled("p", owner=None), True),
        (labelled("p", owner=None, app="other"), False),
        (pod_document("p", owner=None), False),
        (labelled("p", deleted=True), True),
    ],
)
async def test_which_new_pods_wake_whom(pod: Document, *, wakes: bool) -> None:
    w = await world(0)
    w.queued()
    w.api.seed(PODS, pod)
    await w.deliver()
    assert w.queued() is wakes


@pytest.mark.row("R-022", "R-024", "R-025", "R-027", "R-187")
@pytest.mark.parametrize(
    ("pod", "edit", "wakes"),
    [
        (labelled("p"), _touch, True),
        (labelled("p"), _release, True),
        (labelled("p"), _give_away, True),
        (labelled("p", owner=None), _touch, False),
        (labelled("p", owner=None), _relabel, True),
        (labelled("p", owner="other"), _relabel, False),
        (labelled("p", owner="other"), _release, True),
    ],
)
async def test_which_changed_pods_wake_whom(pod: Document, edit: Callable[[Document], None], *, wakes: bool) -> None:
    w = await world(0)
    w.api.seed(PODS, pod)
    await w.deliver()
    w.queued()
    w.api.change(PODS, "p", edit)
    await w.deliver()
    assert w.queued() is wakes
    for known in w.pods.store:
        w.controller._pod_updated(known, known)
    assert not w.queued(), "a resync says nothing new"


@pytest.mark.row("R-017", "R-023", "R-028", "R-033", "R-183")
async def test_a_deletion_counts_once_when_it_begins() -> None:
    w = await world(0, pods=2)
    await w.sync()
    assert not w.controller.expectations.satisfied(KEY)
    w.api.changes.clear()
    gone, other = w.pods.store
    ending = labelled(gone.metadata.name, deleted=True)
    ending["metadata"]["resourceVersion"] = "900"
    terminating = PODS.decode(msgspec.json.encode(ending))
    w.controller._pod_updated(gone, terminating)
    w.controller._pod_deleted(terminating)
    assert not w.controller.expectations.satisfied(KEY), "one pod counts once"
    w.controller._pod_deleted(other)
    assert w.controller.expectations.satisfied(KEY)


@pytest.mark.row("R-026")
async def test_a_pod_that_becomes_ready_wakes_its_owner_again_later() -> None:
    w = await world(1, minReadySeconds=30)
    w.api.seed(PODS, labelled("p", ready=False))
    await w.deliver()
    delays = w.note_delays()
    w.api.change(PODS, "p", lambda doc: doc["status"]["conditions"][0].update(status="True"))
    await w.deliver()
    w.api.change(PODS, "p", _touch)
    await w.deliver()
    assert delays == [30]


# More of what a sync does


class Metrics:
    def __init__(self) -> None:
        self.ratios: list[float] = []
        self.skips: list[tuple[str, str]] = []

    def sorting_deletion_age_ratio(self, ratio: float) -> None:
        self.ratios.append(ratio)

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        self.skips.append((group, resource))


@pytest.mark.row("R-012", "R-013", "R-014")
async def test_every_event_of_a_replica_set_wakes_it() -> None:
    w = await world(1)
    assert w.queued(), "added"
    known = w.replica_sets.store.get(KEY)
    assert known is not None
    w.controller._replica_set_updated(known, known)
    assert w.queued(), "a resync, although nothing changed"
    w.controller.expectations.expect_creations(KEY, 3)
    again = msgspec.structs.replace(known, metadata=msgspec.structs.replace(known.metadata, uid="another"))
    w.controller._replica_set_updated(known, again)
    assert w.queued()
    assert w.controller.expectations.get(KEY) is None, "another object of the same name"


@pytest.mark.row("R-038")
async def test_expectations_that_expire_wake_nobody_but_are_no_longer_waited_for() -> None:
    w = await world(2)
    await w.sync()
    w.queued()
    w.clock.seconds += 301
    assert not w.queued()
    assert CREATE in await w.sync()


@pytest.mark.row("R-053", "R-158")
async def test_creations_and_adoptions_are_remembered_until_the_cache_has_them() -> None:
    w = await world(1, consistent=True, status={"terminatingReplicas": 0, "replicas": 1})
    w.api.seed(PODS, labelled("orphan", owner=None))
    await w.deliver()
    assert "PATCH pods/orphan" in await w.sync()
    with pytest.raises(Exception, match=r"for group resource pods$"):
        await w.sync()
    await w.deliver()
    await w.sync()


@pytest.mark.row("R-090", "R-091", "R-191")
async def test_pods_of_siblings_are_related_each_once() -> None:
    w = await world(0)
    for name in ("web-2", "web-3"):
        document = replica_set_document(name, owner="other" if name == "web-3" else "web")
        document["spec"]["selector"] = {"matchLabels": {"app": name}}
        if name == "web-2":
            document["metadata"]["deletionTimestamp"] = format_time(START)
        w.api.seed(REPLICA_SETS, document)
        w.api.seed(PODS, labelled(f"of-{name}", app=name, owner=name))
    w.api.seed(PODS, labelled("both", owner="elsewhere"))
    await w.deliver()
    one = w.replica_sets.store.get(KEY)
    assert one is not None
    assert {pod.metadata.name for pod in w.controller._related_pods(one)} == {"both", "of-web-2"}
    alone = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, owner_references=()))
    assert w.controller._related_pods(alone) == []


@pytest.mark.row("R-111")
async def test_a_sync_that_waits_for_its_creations_takes_the_failure_back() -> None:
    failing = {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]}
    w = await world(2, status=failing)
    w.controller.expectations.expect_creations(KEY, 1)
    assert await w.sync() == ["PUT replicasets/web-1/status"]
    assert "conditions" not in w.status


@pytest.mark.row("R-114")
async def test_the_generation_that_was_synced_is_written_also_on_a_fresh_read() -> None:
    w = await world(0)
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(paused=True))
    await w.deliver()
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(minReadySeconds=7))
    assert await w.sync() == [
        "PUT replicasets/web-1/status",
        "GET replicasets/web-1",
        "PUT replicasets/web-1/status",
    ]
    assert w.status["observedGeneration"] == 2
    assert w.api.one(REPLICA_SETS, "web-1").metadata.generation == 3


@pytest.mark.row("R-055", "R-116")
async def test_only_the_status_of_a_replica_set_is_written_and_the_cache_stays_as_it_was() -> None:
    w = await world(2, pods=3)
    before = w.replica_sets.store.get(KEY)
    assert before is not None
    raw = before.raw
    calls = [call for call in await w.sync() if "replicasets" in call]
    assert calls == ["PUT replicasets/web-1/status"]
    assert w.replica_sets.store.get(KEY) is before
    assert before.raw == raw
    body = w.api.one(REPLICA_SETS, "web-1").document()
    assert body["metadata"]["ownerReferences"] == [owner_reference("web")]


@pytest.mark.row("R-121")
@pytest.mark.looptime
async def test_the_earliest_wake_up_wins() -> None:
    queue = Queue("")
    queue.add_after(KEY, 30)
    queue.add_after(KEY, 10)
    queue.add_after(KEY, 20)
    loop = asyncio.get_running_loop()
    started = loop.time()
    queue.done(await queue.get())
    assert loop.time() - started == pytest.approx(10)
    queue.shut_down()


@pytest.mark.row("R-123", "R-125")
async def test_metrics_tell_of_ages_at_deletion_and_of_refused_syncs() -> None:
    metrics = Metrics()
    w = await world(1, consistent=True, metrics=metrics)
    for name in ("old", "young"):
        pod = labelled(name)
        pod["metadata"]["creationTimestamp"] = format_time(START)
        w.api.seed(PODS, pod)
    w.clock.seconds += 400
    await w.deliver()
    await w.sync()
    assert metrics.ratios == [1]
    with pytest.raises(Exception, match="read version"):
        await w.sync()
    assert metrics.skips == [("apps", "replicasets")]


@pytest.mark.row("R-155")
async def test_a_name_that_is_taken_is_a_failure_like_any_other() -> None:
    w = await world(2)
    w.api.fail("POST", "pods", refusal(409, "AlreadyExists", "taken"))
    with pytest.raises(StatusError, match="taken"):
        await w.sync()
    assert w.events == ["Warning FailedCreate: Error creating: taken"]
    assert w.controller.expectations.satisfied(KEY)


@pytest.mark.row("R-175")
async def test_an_empty_selector_claims_everything_but_wakes_for_no_orphan() -> None:
    w = await world(1, selector={})
    w.queued()
    w.api.seed(PODS, labelled("orphan", owner=None))
    await w.deliver()
    assert not w.queued()
    assert "PATCH pods/orphan" in await w.sync()


@pytest.mark.row("R-181")
async def test_a_pod_that_arrives_after_the_expectations_were_checked_is_counted() -> None:
    w = await world(1)

    class Late(ControllerExpectations):
        def satisfied(self, key: str) -> bool:
            answer = super().satisfied(key)
            w.pods.store.put(PODS.decode(msgspec.json.encode(labelled("late"))))
            return answer

    w.controller.expectations = Late(clock=w.clock)
    assert CREATE not in await w.sync()


@pytest.mark.row("R-211")
async def test_ranking_leaves_the_cache_alone() -> None:
    w = await world(1, pods=4)
    before = list(w.pods.store)
    await w.sync()
    assert list(w.pods.store) == before


@pytest.mark.row("R-176")
async def test_one_pod_is_wanted_unless_said_otherwise_and_only_another_number_is_told() -> None:
    w = await world(1)
    w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].pop("replicas"))
    with capture() as records:
        await w.deliver()
        w.api.change(REPLICA_SETS, "web-1", lambda doc: doc["spec"].update(replicas=3))
        await w.deliver()
    told = [record for record in records if record.message == "Another number of pods is wanted"]
    assert [(record.pairs["oldReplicas"], record.pairs["newReplicas"]) for record in told] == [(1, 3)]
