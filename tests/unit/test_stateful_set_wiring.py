"""How the StatefulSet controller is made, started and measured."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from kcm.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.controller_descriptor import DESCRIPTORS, ControllerContext, ControllerDescriptor
from kcm.controllers.controller import POD_CONTROLLER_INDEX
from kcm.controllers.history import CONTROLLER_REVISION_INDEX
from kcm.controllers.statefulset.stateful_set import StatefulSetController
from kcm.events.recorder import FakeRecorder
from kcm.features import FeatureGates
from kcm.informers.factory import SharedInformerFactory
from kcm.informers.store import Indexer
from kcm.metrics import Metrics
from kcm.options import CONTROLLER_ALIASES, Options, WorkerOptions
from tests.unit.fakes import FakeApi
from tests.unit.stateful_set_world import make_revision, make_stateful_pod

GATES = (
    "MaxUnavailableStatefulSet",
    "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison",
    "StatefulSetRecreateStrategy",
)


def descriptor() -> ControllerDescriptor:
    return next(descriptor for descriptor in DESCRIPTORS if descriptor.name == "statefulset-controller")


class Made:
    """The controller as the process makes it, with these gates set."""

    def __init__(self, **gates: bool) -> None:
        self.api = FakeApi()
        self.informers = SharedInformerFactory(self.api)
        self.metrics = Metrics()
        context = ControllerContext(
            client=self.api,
            recorder=FakeRecorder(),
            informers=self.informers,
            features=FeatureGates(gates),
            metrics=self.metrics,
        )
        controller = descriptor().build(context)
        assert isinstance(controller, StatefulSetController)
        self.controller = controller


@pytest.mark.row("S-001", "S-006")
def test_names() -> None:
    assert CONTROLLER_ALIASES["statefulset"] == descriptor().name
    assert descriptor().client_name == "statefulset-controller"


@pytest.mark.row("S-002", "S-007", "S-008")
async def test_the_informers_and_their_indexes() -> None:
    made = Made()
    resources = {"pods", "statefulsets.apps", "persistentvolumeclaims", "controllerrevisions.apps"}
    assert set(made.informers.unsynced) == resources
    pods, revisions = made.informers.informer(PODS).store, made.informers.informer(CONTROLLER_REVISIONS).store
    pod, revision = make_stateful_pod(0), make_revision()
    pods.put(pod)
    revisions.put(revision)
    assert pods.by_index(POD_CONTROLLER_INDEX, "ns/StatefulSet/web/uid-web") == [pod]
    assert revisions.by_index(CONTROLLER_REVISION_INDEX, "ns/StatefulSet/web/uid-web") == [revision]


@pytest.mark.row("S-003")
def test_workers() -> None:
    assert descriptor().workers(Options()) == 5
    options = Options(workers=WorkerOptions(concurrent_statefulset_syncs=2))
    assert descriptor().workers(options) == 2
    assert Options(workers=WorkerOptions(concurrent_statefulset_syncs=0)).validate() != []


@pytest.mark.row("S-004")
async def test_no_worker_starts_before_all_four_caches_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    synced: list[str] = []

    async def sync(key: str) -> None:
        synced.append(key)

    monkeypatch.setattr(made.controller, "sync", sync)
    made.controller.queue.add("ns/web")
    run = asyncio.create_task(made.controller.run(1))
    fills: list[Callable[[], Awaitable[None]]] = [
        lambda: made.informers.informer(PODS).replace(Indexer()),
        lambda: made.informers.informer(STATEFUL_SETS).replace(Indexer()),
        lambda: made.informers.informer(PERSISTENT_VOLUME_CLAIMS).replace(Indexer()),
        lambda: made.informers.informer(CONTROLLER_REVISIONS).replace(Indexer()),
    ]
    for fill in fills:
        for _ in range(5):
            await asyncio.sleep(0)
        assert synced == []
        await fill()
    for _ in range(5):
        await asyncio.sleep(0)
    assert synced == ["ns/web"]
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.mark.row("S-005")
async def test_the_queue_has_the_default_limits_and_a_name() -> None:
    made = Made()
    assert made.controller.queue.name == "statefulset"
    made.controller.queue.add("ns/web")
    assert 'workqueue_depth{name="statefulset"} 1' in made.metrics.render().decode()


@pytest.mark.row("S-011")
def test_the_gates() -> None:
    gates = FeatureGates()
    assert [gates.enabled(gate) for gate in GATES] == [True, True, True, False]


@pytest.mark.row("S-194")
def test_metrics_have_no_series_before_the_first_value_and_keep_them() -> None:
    metrics = Metrics()
    metrics.stateful_set.register()
    names = ("statefulset_max_unavailable", "statefulset_unavailable_replicas", "stale_sync_skips_total")
    series = re.compile(rf"^statefulset_controller_({'|'.join(names)})\{{", re.MULTILINE)
    assert series.findall(metrics.render().decode()) == []
    about = {"namespace": "ns", "name": "web", "pod_management_policy": "OrderedReady"}
    metrics.stateful_set.max_unavailable(pods=2, **about)
    metrics.stateful_set.unavailable_replicas(pods=1, **about)
    metrics.stateful_set.stale_sync_skip(group="", resource="pods")
    assert sorted(series.findall(metrics.render().decode())) == sorted(names)


@pytest.mark.looptime
@pytest.mark.row("S-041")
async def test_a_delayed_key_keeps_its_earliest_deadline_and_runs_at_once_too() -> None:
    queue = Made().controller.queue
    loop = asyncio.get_running_loop()
    began = loop.time()
    for seconds in (30, 20, 25):
        queue.add_after("ns/web", seconds)
    queue.add("ns/web")
    times = []
    for _ in range(2):
        key = await queue.get()
        times.append(loop.time() - began)
        queue.done(key)
    assert times == [0, 20]
    await asyncio.sleep(30)
    assert len(queue) == 0
