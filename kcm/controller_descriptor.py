"""Which controllers there are and how each is built. Follows cmd/kube-controller-manager/app/controller_descriptor.go."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kcm.api.client import Client
from kcm.api.pod_template import equal_with_defaults
from kcm.api.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from kcm.consistency import ConsistencyStore, NoConsistencyStore, RealConsistencyStore, VersionReader
from kcm.controllers.controller import Controller
from kcm.controllers.deployment.deployment_controller import DeploymentController
from kcm.controllers.pod_control import RealPodControl
from kcm.controllers.replicaset.replica_set import ReplicaSetController
from kcm.controllers.replication.conversion import REPLICATION_CONTROLLERS
from kcm.controllers.statefulset.stateful_set import StatefulSetController
from kcm.events.recorder import EventRecorder
from kcm.features import FeatureGates
from kcm.informers.factory import SharedInformerFactory
from kcm.informers.shared_informer import SharedInformer
from kcm.metrics import Metrics
from kcm.options import Options
from kcm.workqueue.queue import Queue


@dataclass(frozen=True, kw_only=True)
class ControllerContext:
    """What a controller is built from; client and recorder are its own, the rest is shared."""

    client: Client
    recorder: EventRecorder
    informers: SharedInformerFactory
    features: FeatureGates
    metrics: Metrics

    def queue(self, name: str) -> Queue:
        """A work queue with the default limiter, seen in the metrics under this name."""
        return Queue(name, metrics=self.metrics.workqueue.for_queue(name))

    def consistency(self, gate: str, *informers: SharedInformer[Any]) -> ConsistencyStore:
        """What holds a sync back until these caches have seen its last writes; with the gate off, nothing does."""
        if not self.features.enabled(gate):
            return NoConsistencyStore()
        return RealConsistencyStore({informer.resource.group_resource: _reader(informer) for informer in informers})


@dataclass(frozen=True, kw_only=True)
class ControllerDescriptor:
    """One controller: its canonical name, the name of its client and event source, and how to build and size it."""

    name: str
    client_name: str
    build: Callable[[ControllerContext], Controller]
    workers: Callable[[Options], int]


def _reader(informer: SharedInformer[Any]) -> VersionReader:
    return lambda: informer.store.resource_version


def _deployment(context: ControllerContext) -> Controller:
    return DeploymentController(
        client=context.client,
        recorder=context.recorder,
        deployments=context.informers.informer(DEPLOYMENTS),
        replica_sets=context.informers.informer(REPLICA_SETS),
        pods=context.informers.informer(PODS),
        queue=context.queue("deployment"),
        sync_metrics=context.metrics.sync,
        terminating_replicas=context.features.enabled("DeploymentReplicaSetTerminatingReplicas"),
    )


def _replica_set(context: ControllerContext) -> Controller:
    replica_sets, pods = context.informers.informer(REPLICA_SETS), context.informers.informer(PODS)
    consistency = context.consistency("StaleControllerConsistencyReplicaSet", pods, replica_sets)
    context.metrics.replica_set.register()
    controller = ReplicaSetController(
        client=context.client,
        replica_sets=replica_sets,
        pods=pods,
        pod_control=RealPodControl(context.client, context.recorder),
        queue=context.queue("replicaset"),
        consistency=consistency,
        metrics=context.metrics.replica_set,
        sync_metrics=context.metrics.sync,
        terminating_replicas=context.features.enabled("DeploymentReplicaSetTerminatingReplicas"),
        pod_deletion_cost=context.features.enabled("PodDeletionCost"),
    )
    context.metrics.expectations.watch(controller.name, controller.expectations.overdue)
    return controller


def _replication_controller(context: ControllerContext) -> Controller:
    controller = ReplicaSetController(
        name="replicationcontroller-controller",
        resource=REPLICATION_CONTROLLERS,
        client=context.client,
        replica_sets=context.informers.informer(REPLICATION_CONTROLLERS),
        pods=context.informers.informer(PODS),
        pod_control=RealPodControl(context.client, context.recorder),
        queue=context.queue("replicationmanager"),
        consistency=NoConsistencyStore(),
        metrics=context.metrics.replica_set,
        sync_metrics=context.metrics.sync,
        terminating_replicas=False,
        pod_deletion_cost=context.features.enabled("PodDeletionCost"),
    )
    context.metrics.expectations.watch(controller.name, controller.expectations.overdue)
    return controller


def _stateful_set(context: ControllerContext) -> Controller:
    stateful_sets, pods = context.informers.informer(STATEFUL_SETS), context.informers.informer(PODS)
    claims = context.informers.informer(PERSISTENT_VOLUME_CLAIMS)
    consistency = context.consistency("StaleControllerConsistencyStatefulSet", pods, claims, stateful_sets)
    context.metrics.stateful_set.register()
    semantic = context.features.enabled("StatefulSetSemanticRevisionComparison")
    return StatefulSetController(
        client=context.client,
        stateful_sets=stateful_sets,
        pods=pods,
        claims=claims,
        revisions=context.informers.informer(CONTROLLER_REVISIONS),
        recorder=context.recorder,
        queue=context.queue("statefulset"),
        consistency=consistency,
        metrics=context.metrics.stateful_set,
        sync_metrics=context.metrics.sync,
        max_unavailable=context.features.enabled("MaxUnavailableStatefulSet"),
        recreate=context.features.enabled("StatefulSetRecreateStrategy"),
        same_template=equal_with_defaults if semantic else None,
    )


#: The controllers that kcm has, in the order in which they are built.
DESCRIPTORS = (
    ControllerDescriptor(
        name="deployment-controller",
        client_name="deployment-controller",
        build=_deployment,
        workers=lambda options: options.workers.concurrent_deployment_syncs,
    ),
    ControllerDescriptor(
        name="replicaset-controller",
        client_name="replicaset-controller",
        build=_replica_set,
        workers=lambda options: options.workers.concurrent_replicaset_syncs,
    ),
    ControllerDescriptor(
        name="replicationcontroller-controller",
        client_name="replication-controller",
        build=_replication_controller,
        workers=lambda options: options.workers.concurrent_rc_syncs,
    ),
    ControllerDescriptor(
        name="statefulset-controller",
        client_name="statefulset-controller",
        build=_stateful_set,
        workers=lambda options: options.workers.concurrent_statefulset_syncs,
    ),
)
