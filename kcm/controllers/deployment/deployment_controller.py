"""The Deployment controller: which keys are synced when, and what one sync does.

Follows pkg/controller/deployment/deployment_controller.go. The controller owns ReplicaSets, never pods; it watches pods only
to learn that the last one of a Recreate Deployment's old ReplicaSets is gone.
"""

from collections.abc import Sequence

from kcm.api.client import Client
from kcm.api.errors import is_namespace_terminating
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.selectors import SelectorError, selector_of
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.core import Pod
from kcm.api.types.meta import LabelSelector
from kcm.clock import REAL, Clock
from kcm.controllers.controller import (
    POD_CONTROLLER_INDEX,
    Controller,
    SyncMetrics,
    pod_controller_index,
    pods_of,
    split_key,
)
from kcm.controllers.deployment.recreate import PodMap, rollout_recreate
from kcm.controllers.deployment.rollback import rollback
from kcm.controllers.deployment.rolling import rollout_rolling
from kcm.controllers.deployment.sync import DeploymentSync
from kcm.controllers.deployment.util import (
    RECREATE,
    UnsupportedStrategyError,
    get_rollback_to,
    is_rolling_update,
)
from kcm.controllers.owners import last_known, resolve, selecting
from kcm.controllers.ref_manager import RefManager, fetch_same, recheck_deletion_timestamp
from kcm.events.recorder import EventRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Tombstone
from kcm.workqueue.queue import Queue

#: How often a failing key is tried again before it is dropped until its next event: 5 ms, doubled each time, to 82 s.
MAX_RETRIES = 15


class DeploymentController(Controller):
    """Rolls each Deployment's pods over to its template by making and scaling ReplicaSets."""

    def __init__(
        self,
        *,
        client: Client,
        deployments: SharedInformer[Deployment],
        replica_sets: SharedInformer[ReplicaSet],
        pods: SharedInformer[Pod],
        recorder: EventRecorder,
        queue: Queue,
        sync_metrics: SyncMetrics | None = None,
        clock: Clock = REAL,
        terminating_replicas: bool = True,
    ) -> None:
        super().__init__("deployment-controller", queue, [deployments, replica_sets, pods], metrics=sync_metrics)
        self._client = client
        self._deployments = deployments.store
        self._replica_sets = replica_sets.store
        self._pods = pods.store
        self._recorder = recorder
        self._clock = clock
        self._counts_terminating = terminating_replicas
        pods.add_index(POD_CONTROLLER_INDEX, pod_controller_index)
        deployments.add_handler(
            on_add=self._enqueue, on_update=self._deployment_updated, on_delete=self._deployment_deleted
        )
        replica_sets.add_handler(
            on_add=self._replica_set_added,
            on_update=self._replica_set_updated,
            on_delete=self._replica_set_deleted,
        )
        pods.add_handler(on_delete=self._pod_deleted)

    # Handlers: what happened to objects decides which keys are synced.

    def _enqueue(self, deployment: Deployment) -> None:
        self.queue.add(deployment.metadata.key)

    def _deployment_updated(self, _old: Deployment, new: Deployment) -> None:
        self._enqueue(new)

    def _deployment_deleted(self, deleted: Deployment | Tombstone[Deployment]) -> None:
        self._enqueue(last_known(deleted))

    def _replica_set_added(self, replica_set: ReplicaSet) -> None:
        if replica_set.metadata.deletion_timestamp is not None:
            self._replica_set_deleted(replica_set)
        elif replica_set.metadata.controller is None:
            self._enqueue_matching(replica_set)
        else:
            self._enqueue_owner(replica_set)

    def _replica_set_updated(self, old: ReplicaSet, new: ReplicaSet) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return
        passed_on = old.metadata.controller != new.metadata.controller
        if passed_on:
            self._enqueue_owner(old)
        if new.metadata.controller is not None:
            self._enqueue_owner(new)
        elif passed_on or old.metadata.labels != new.metadata.labels:
            self._enqueue_matching(new)

    def _replica_set_deleted(self, deleted: ReplicaSet | Tombstone[ReplicaSet]) -> None:
        self._enqueue_owner(last_known(deleted))

    def _pod_deleted(self, deleted: Pod | Tombstone[Pod]) -> None:
        meta = last_known(deleted).metadata
        replica_set = resolve(self._replica_sets, REPLICA_SETS.kind, meta.namespace, meta.controller)
        deployment = None if replica_set is None else self._owner_of(replica_set)
        if deployment is not None and deployment.spec.strategy.type == RECREATE:
            self._enqueue(deployment)

    def _owner_of(self, replica_set: ReplicaSet) -> Deployment | None:
        meta = replica_set.metadata
        return resolve(self._deployments, DEPLOYMENTS.kind, meta.namespace, meta.controller)

    def _enqueue_owner(self, replica_set: ReplicaSet) -> None:
        if (deployment := self._owner_of(replica_set)) is not None:
            self._enqueue(deployment)

    def _enqueue_matching(self, orphan: ReplicaSet) -> None:
        meta = orphan.metadata
        matching = selecting(self._deployments.list(meta.namespace), meta.labels)
        if len(matching) > 1:
            self._log.info(
                "user error! more than one deployment is selecting replica set",
                v=4,
                replicaSet=meta.key,
                deployment=matching[0].metadata.key,
            )
        for deployment in matching:
            self._enqueue(deployment)

    # Sync

    def handle_error(self, key: str, error: Exception) -> None:
        """Try a failing key again, at most `MAX_RETRIES` times in a row."""
        if is_namespace_terminating(error):
            self.queue.forget(key)  # nothing can be made there any more, and nothing needs to be
        elif self.queue.num_requeues(key) < MAX_RETRIES:
            self._log.info("Error syncing deployment", v=2, deployment=key, err=error)
            self.queue.add_rate_limited(key)
        else:
            self._log.error("Unhandled Error", err=error)
            self._log.info("Dropping deployment out of the queue", v=2, deployment=key, err=error)
            self.queue.forget(key)

    async def sync(self, key: str) -> None:
        """Take a Deployment's next step.

        Raises:
            ValueError: the key, the selector, the strategy or one of its bounds is invalid.
            StatusError: a request was refused.
            TransportError: a request got no answer.
            AggregateError: ReplicaSets could not be adopted or released.
        """
        split_key(key)
        deployment = self._deployments.get(key)
        if deployment is None:
            self._log.info("Deployment has been deleted", v=2, deployment=key)
            return
        sync = DeploymentSync(
            deployment=deployment,
            client=self._client,
            recorder=self._recorder,
            queue=self.queue,
            replica_sets=self._replica_sets,
            clock=self._clock,
            terminating_replicas=self._counts_terminating,
        )
        if deployment.spec.selector == LabelSelector():
            await sync.refuse_selecting_all()
            return
        # Claimed once and used throughout, so that the sync decides on one state of the world.
        rs_list = await self._claim_replica_sets(deployment)
        if deployment.metadata.deletion_timestamp is not None:
            await sync.sync_status_only(rs_list)
            return
        await sync.check_paused_conditions()
        if deployment.spec.paused:
            await sync.scale_without_rollout(rs_list)
        elif (to := get_rollback_to(deployment)) is not None:
            await rollback(sync, rs_list, to)
        elif await sync.is_scaling_event(rs_list):
            await sync.scale_without_rollout(rs_list)
        elif deployment.spec.strategy.type == RECREATE:
            await rollout_recreate(sync, rs_list, self._pods_of(rs_list))
        elif is_rolling_update(deployment):
            await rollout_rolling(sync, rs_list)
        else:
            raise UnsupportedStrategyError(f"unexpected deployment strategy type: {deployment.spec.strategy.type}")

    async def _claim_replica_sets(self, deployment: Deployment) -> list[ReplicaSet]:
        meta = deployment.metadata
        try:
            selector = selector_of(deployment.spec.selector)
        except SelectorError as error:
            raise SelectorError(f"deployment {meta.key} has invalid label selector: {error}") from error

        async def patch(namespace: str, name: str, body: bytes) -> ReplicaSet:
            return await self._client.patch(REPLICA_SETS, namespace, name, body)

        fetch = fetch_same(lambda: self._client.get(DEPLOYMENTS, meta.namespace, meta.name), DEPLOYMENTS.kind, meta)
        manager = RefManager(
            owner=meta,
            owner_api_version=DEPLOYMENTS.api_version,
            owner_kind=DEPLOYMENTS.kind,
            kind=REPLICA_SETS.kind,
            selector=selector,
            patch=patch,
            can_adopt=recheck_deletion_timestamp(fetch),
        )
        return await manager.claim(self._replica_sets.list(meta.namespace))

    def _pods_of(self, rs_list: Sequence[ReplicaSet]) -> PodMap:
        return {rs.metadata.uid: pods_of(self._pods, REPLICA_SETS.kind, rs.metadata) for rs in rs_list}
