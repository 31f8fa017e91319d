"""ReplicationControllers, the other face of the ReplicaSet controller."""

import json
from typing import Any

import msgspec
import pytest

from kcm.api.resources import PODS
from kcm.api.types.meta import Document, LabelSelector
from kcm.consistency import NoConsistencyStore
from kcm.controllers.pod_control import RealPodControl
from kcm.controllers.replicaset.replica_set import ReplicaSetController
from kcm.controllers.replication.conversion import REPLICATION_CONTROLLERS
from kcm.events.recorder import FakeRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.workqueue.queue import Queue
from tests.clocks import FakeClock
from tests.unit.fakes import NAMESPACE, FakeApi, owner_reference, pod_document, pod_template, refusal

KEY = f"{NAMESPACE}/rc"


def replication_controller(*, replicas: int = 2, **spec: Any) -> Document:
    meta = {"name": "rc", "namespace": NAMESPACE, "uid": "uid-rc", "generation": 1}
    body = {"replicas": replicas, "selector": {"app": "web"}, "template": pod_template(), **spec}
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": meta,
        "spec": body,
        "status": {"replicas": 0},
    }


class World:
    def __init__(self) -> None:
        self.api = FakeApi(FakeClock())
        self.recorder = FakeRecorder()
        replication_controllers, pods = (
            SharedInformer(self.api, REPLICATION_CONTROLLERS),
            SharedInformer(self.api, PODS),
        )
        self.informers: list[SharedInformer[Any]] = [replication_controllers, pods]
        self.queue = Queue("")
        self.controller = ReplicaSetController(
            name="replicationcontroller-controller",
            resource=REPLICATION_CONTROLLERS,
            client=self.api,
            replica_sets=replication_controllers,
            pods=pods,
            pod_control=RealPodControl(self.api, self.recorder),
            queue=self.queue,
            consistency=NoConsistencyStore(),
            clock=FakeClock(),
            terminating_replicas=False,
        )

    async def sync(self, *objects: tuple[Any, Document]) -> list[str]:
        for resource, document in objects:
            self.api.seed(resource, document)
        await self.api.deliver(self.informers)
        self.api.calls.clear()
        await self.controller.sync(KEY)
        return [str(call) for call in self.api.calls]


@pytest.mark.row("R-133")
def test_a_plain_selector_means_match_labels_and_none_matches_nothing() -> None:
    document = replication_controller()
    decoded = REPLICATION_CONTROLLERS.decode(msgspec.json.encode(document))
    assert decoded.spec.selector == LabelSelector(match_labels={"app": "web"})
    del document["spec"]["selector"]
    assert REPLICATION_CONTROLLERS.decode(msgspec.json.encode(document)).spec.selector is None


@pytest.mark.row("R-132", "R-140")
def test_what_is_kept_is_the_replication_controller_itself() -> None:
    document = replication_controller(newer={"field": 1})
    document["metadata"]["managedFields"] = [{"manager": "somebody"}]
    kept = json.loads(REPLICATION_CONTROLLERS.decode(msgspec.json.encode(document)).raw)
    del document["metadata"]["managedFields"]
    assert kept == document
    with pytest.raises(msgspec.ValidationError):
        REPLICATION_CONTROLLERS.decode(b'{"spec": {"replicas": "many"}}')


@pytest.mark.row("R-134", "R-135", "R-132")
async def test_pods_events_and_status_are_the_replication_controllers() -> None:
    w = World()
    calls = await w.sync((REPLICATION_CONTROLLERS, replication_controller()))
    assert calls == ["POST pods", "POST pods", "PUT replicationcontrollers/rc/status"]
    reference = w.api.calls[0].body["metadata"]["ownerReferences"][0]
    assert (reference["apiVersion"], reference["kind"], reference["name"]) == ("v1", "ReplicationController", "rc")
    about = w.recorder.occurrences[0].about
    assert (about.api_version, about.kind, about.name) == ("v1", "ReplicationController", "rc")
    body = w.api.calls[2].body
    assert body["spec"]["selector"] == {"app": "web"}
    assert "terminatingReplicas" not in body["status"]


@pytest.mark.row("R-137")
async def test_a_failure_becomes_a_condition() -> None:
    w = World()
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "quota"))
    with pytest.raises(Exception, match="quota"):
        await w.sync((REPLICATION_CONTROLLERS, replication_controller()))
    condition = w.api.one(REPLICATION_CONTROLLERS, "rc").status.conditions[0]
    assert (condition.type, condition.reason) == ("ReplicaFailure", "FailedCreate")


@pytest.mark.row("R-177")
async def test_one_without_a_template_says_why_it_makes_no_pods() -> None:
    w = World()
    document = replication_controller()
    del document["spec"]["template"]
    with pytest.raises(Exception, match="unable to create pods, no labels"):
        await w.sync((REPLICATION_CONTROLLERS, document))
    assert w.recorder.occurrences == []
    assert w.api.one(REPLICATION_CONTROLLERS, "rc").status.conditions[0].message == "unable to create pods, no labels"


@pytest.mark.row("R-136")
async def test_no_pods_are_related_even_under_a_common_owner() -> None:
    w = World()
    document = replication_controller(replicas=0)
    document["metadata"]["ownerReferences"] = [owner_reference("app", kind="Application")]
    pod = pod_document("related", owner=None)
    pod["metadata"]["labels"] = {"app": "web"}
    await w.sync((REPLICATION_CONTROLLERS, document), (PODS, pod))
    assert w.controller._related_pods(w.api.one(REPLICATION_CONTROLLERS, "rc")) == []


@pytest.mark.row("R-019", "R-138")
@pytest.mark.parametrize(
    ("labels", "selector", "wakes"),
    [({"app": "web"}, {"app": "web"}, True), ({}, {"app": "web"}, False), ({"app": "web"}, {}, False)],
)
async def test_orphans_wake_whoever_selects_them(
    labels: dict[str, str], selector: dict[str, str], *, wakes: bool
) -> None:
    w = World()
    w.api.seed(REPLICATION_CONTROLLERS, replication_controller(selector=selector))
    await w.api.deliver(w.informers)
    w.queue.done(await w.queue.get())
    pod = pod_document("orphan", owner=None)
    pod["metadata"]["labels"] = labels
    w.api.seed(PODS, pod)
    await w.api.deliver(w.informers)
    assert bool(len(w.queue)) is wakes
