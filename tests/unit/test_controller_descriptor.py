"""How the controllers are made."""

import pytest

from kcm.controller_descriptor import DESCRIPTORS, ControllerContext, ControllerDescriptor
from kcm.controllers.controller import Controller
from kcm.controllers.replicaset.replica_set import BURST_REPLICAS
from kcm.events.recorder import FakeRecorder
from kcm.features import FeatureGates
from kcm.informers.factory import SharedInformerFactory
from kcm.metrics import Metrics
from kcm.options import CONTROLLER_ALIASES, IMPLEMENTED_CONTROLLERS, Options, WorkerOptions
from tests.unit.fakes import FakeApi


def build(descriptor: ControllerDescriptor, informers: SharedInformerFactory, metrics: Metrics) -> Controller:
    context = ControllerContext(
        client=FakeApi(),
        recorder=FakeRecorder(),
        informers=informers,
        features=FeatureGates(),
        metrics=metrics,
    )
    return descriptor.build(context)


def by_name(name: str) -> ControllerDescriptor:
    return next(descriptor for descriptor in DESCRIPTORS if descriptor.name == name)


def test_what_is_said_to_be_there_is_there() -> None:
    assert tuple(descriptor.name for descriptor in DESCRIPTORS) == IMPLEMENTED_CONTROLLERS


@pytest.mark.row("R-001", "R-006", "D-005")
@pytest.mark.parametrize(
    ("name", "alias", "client"),
    [
        ("deployment-controller", "deployment", "deployment-controller"),
        ("replicaset-controller", "replicaset", "replicaset-controller"),
        ("replicationcontroller-controller", "replicationcontroller", "replication-controller"),
    ],
)
def test_names_aliases_and_the_names_of_clients_and_event_sources(name: str, alias: str, client: str) -> None:
    descriptor = by_name(name)
    assert CONTROLLER_ALIASES[alias] == name
    assert descriptor.client_name == client


@pytest.mark.row("R-002", "D-003")
def test_each_has_its_own_number_of_workers() -> None:
    options = Options(
        workers=WorkerOptions(
            concurrent_deployment_syncs=1,
            concurrent_replicaset_syncs=2,
            concurrent_rc_syncs=3,
            concurrent_statefulset_syncs=4,
        )
    )
    assert [by_name(name).workers(options) for name in IMPLEMENTED_CONTROLLERS[:3]] == [1, 2, 3]
    assert [by_name(name).workers(Options()) for name in IMPLEMENTED_CONTROLLERS[:3]] == [5, 5, 5]


@pytest.mark.row("R-005", "R-126", "R-139", "D-172")
async def test_each_has_its_own_queue_seen_in_the_metrics() -> None:
    informers, metrics = SharedInformerFactory(FakeApi()), Metrics()
    queues = {name: build(by_name(name), informers, metrics).queue for name in IMPLEMENTED_CONTROLLERS[:3]}
    assert [queue.name for queue in queues.values()] == ["deployment", "replicaset", "replicationmanager"]
    queues["replicaset-controller"].add("ns/a")
    assert [len(queue) for queue in queues.values()] == [0, 1, 0]
    text = metrics.render().decode()
    assert 'workqueue_depth{name="replicaset"} 1' in text
    assert 'workqueue_depth{name="replicationmanager"} 0' in text


@pytest.mark.row("R-007", "D-007")
async def test_informers_and_their_indexes_are_shared() -> None:
    informers, metrics = SharedInformerFactory(FakeApi()), Metrics()
    controllers = [build(descriptor, informers, metrics) for descriptor in DESCRIPTORS]
    assert len(controllers) == len(DESCRIPTORS)
    assert set(informers.unsynced) >= {"pods", "replicasets.apps", "deployments.apps", "replicationcontrollers"}
    assert len(informers.unsynced) == len(set(informers.unsynced))


@pytest.mark.row("R-004")
def test_a_burst_is_500() -> None:
    assert BURST_REPLICAS == 500


@pytest.mark.row("D-024", "R-005", "S-005")
async def test_a_failing_key_waits_5_ms_and_then_twice_as_long_each_time() -> None:
    informers, metrics = SharedInformerFactory(FakeApi()), Metrics()
    for descriptor in DESCRIPTORS:
        limiter = build(descriptor, informers, metrics).queue.limiter
        assert [limiter.when("ns/a") for _ in range(6)] == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.16])
        delays = [limiter.when(f"ns/{number}") for number in range(200)]
        assert delays[:90] == [0.005] * 90, "a burst of 100 for all keys together"
        assert delays[150] > 1, "then 10 a second"
