"""The controller of ReplicaSets, and of ReplicationControllers in ReplicaSet form.

Follows pkg/controller/replicaset/replica_set.go. One implementation has two faces: the resource says where objects are read and
written, and its decoder turns a ReplicationController into the form of a ReplicaSet.
"""

from collections.abc import Sequence
from typing import Protocol

from kcm.api.client import Client
from kcm.api.errors import is_namespace_terminating, is_not_found
from kcm.api.resources import PODS, REPLICA_SETS, Resource
from kcm.api.selectors import Selector, SelectorError, selector_of
from kcm.api.types.apps import ReplicaSet, ReplicaSetStatus, status_document
from kcm.api.types.core import Pod
from kcm.api.types.meta import controller_reference
from kcm.clock import REAL, Clock
from kcm.consistency import ConsistencyError, ConsistencyStore
from kcm.controllers.controller import (
    POD_CONTROLLER_INDEX,
    Controller,
    SyncMetrics,
    pod_controller_index,
    pods_of,
    split_key,
)
from kcm.controllers.owners import last_known, resolve, selecting, valid_selector
from kcm.controllers.pod_control import PodControl, pod_body
from kcm.controllers.pod_ranking import deletion_age_ratios, pods_to_delete
from kcm.controllers.pod_utils import is_active, is_ready, is_terminating, min_next_availability_check
from kcm.controllers.ref_manager import RefManager, fetch_same, recheck_deletion_timestamp
from kcm.controllers.replicaset.replica_set_utils import calculate_status, needs_update
from kcm.controllers.slow_start import run_all, slow_start_batch
from kcm.events.recorder import reference_to
from kcm.expectations import ControllerExpectations
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Tombstone
from kcm.logs import get_logger
from kcm.workqueue.queue import Queue

log = get_logger(__name__)

#: The most pods that one sync creates or deletes.
BURST_REPLICAS = 500
CONTROLLER_UID_INDEX = "controllerUID"


class ReplicaSetMetrics(Protocol):
    """What this controller tells of itself."""

    def sorting_deletion_age_ratio(self, ratio: float) -> None:
        """A pod was chosen for deletion that is this many times as old as the youngest."""

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """A sync was refused because a cache was older than an own write."""


class NoReplicaSetMetrics:
    """Tells nobody."""

    def sorting_deletion_age_ratio(self, ratio: float) -> None:
        """Drop it."""

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """Drop it."""


class ReplicaSetController(Controller):
    """Keeps as many pods as each ReplicaSet wants.

    Args:
        name: Canonical name of the controller.
        resource: What stands for ReplicaSets.
        client: Reads and writes them.
        replica_sets: Their informer.
        pods: The informer of pods.
        pod_control: Writes pods.
        queue: Keys to sync.
        consistency: Holds a sync back until the caches have seen its last writes.
        metrics: Told what is peculiar to this controller.
        sync_metrics: Told of syncs.
        clock: Ages, availability and the expiry of expectations.
        burst_replicas: The most pods that one sync creates or deletes.
        terminating_replicas: Whether the status counts terminating pods (gate DeploymentReplicaSetTerminatingReplicas).
        pod_deletion_cost: Whether the deletion cost annotation counts (gate PodDeletionCost).
    """

    def __init__(
        self,
        *,
        name: str = "replicaset-controller",
        resource: Resource[ReplicaSet] = REPLICA_SETS,
        client: Client,
        replica_sets: SharedInformer[ReplicaSet],
        pods: SharedInformer[Pod],
        pod_control: PodControl,
        queue: Queue,
        consistency: ConsistencyStore,
        metrics: ReplicaSetMetrics | None = None,
        sync_metrics: SyncMetrics | None = None,
        clock: Clock = REAL,
        burst_replicas: int = BURST_REPLICAS,
        terminating_replicas: bool = True,
        pod_deletion_cost: bool = True,
    ) -> None:
        super().__init__(name, queue, [pods, replica_sets], metrics=sync_metrics)
        self._resource = resource
        self._client = client
        self._replica_sets = replica_sets.store
        self._pods = pods.store
        self._pod_control = pod_control
        self._consistency = consistency
        self._replica_set_metrics: ReplicaSetMetrics = metrics or NoReplicaSetMetrics()
        self._clock = clock
        self._burst = burst_replicas
        self._counts_terminating = terminating_replicas
        self._by_cost = pod_deletion_cost
        self.expectations = ControllerExpectations(clock=clock)
        pods.add_index(POD_CONTROLLER_INDEX, pod_controller_index)
        replica_sets.add_index(CONTROLLER_UID_INDEX, _controller_uid)
        replica_sets.add_handler(
            on_add=self._enqueue, on_update=self._replica_set_updated, on_delete=self._replica_set_deleted
        )
        pods.add_handler(on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_deleted)

    # Handlers: what happened to objects decides which keys are synced.

    def _enqueue(self, replica_set: ReplicaSet) -> None:
        self.queue.add(replica_set.metadata.key)

    def _replica_set_updated(self, old: ReplicaSet, new: ReplicaSet) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._replica_set_deleted(Tombstone(old.metadata.key, old))
        if old.spec.replicas != new.spec.replicas:
            wanted = {"oldReplicas": old.spec.replicas, "newReplicas": new.spec.replicas}
            self._log.info("Another number of pods is wanted", v=4, replicaSet=new.metadata.key, **wanted)
        self._enqueue(new)

    def _replica_set_deleted(self, deleted: ReplicaSet | Tombstone[ReplicaSet]) -> None:
        replica_set = last_known(deleted)
        self._consistency.clear(replica_set.metadata.key, replica_set.metadata.uid)
        self.expectations.delete(replica_set.metadata.key)
        self._enqueue(replica_set)

    def _pod_added(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._pod_deleted(pod)
        elif pod.metadata.controller is None:
            self._enqueue_matching(pod)
        elif (replica_set := self._owner_of(pod)) is not None:
            self.expectations.creation_observed(replica_set.metadata.key)
            self._enqueue(replica_set)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return
        relabelled = old.metadata.labels != new.metadata.labels
        if new.metadata.deletion_timestamp is not None:
            # The deletion counts from here on: waiting until the pod is gone would keep its replacement back.
            self._pod_deleted(new)
            if relabelled:
                self._pod_deleted(old)
            return
        passed_on = old.metadata.controller != new.metadata.controller
        if passed_on and (former := self._owner_of(old)) is not None:
            self._enqueue(former)
        if new.metadata.controller is None:
            if relabelled or passed_on:
                self._enqueue_matching(new)
        elif (replica_set := self._owner_of(new)) is not None:
            self._enqueue(replica_set)
            if replica_set.spec.min_ready_seconds > 0 and not is_ready(old) and is_ready(new):
                self.queue.add_after(replica_set.metadata.key, replica_set.spec.min_ready_seconds)

    def _pod_deleted(self, deleted: Pod | Tombstone[Pod]) -> None:
        pod = last_known(deleted)
        if (replica_set := self._owner_of(pod)) is not None:
            self.expectations.deletion_observed(replica_set.metadata.key, pod.metadata.key)
            self._enqueue(replica_set)

    def _owner_of(self, pod: Pod) -> ReplicaSet | None:
        return resolve(self._replica_sets, self._resource.kind, pod.metadata.namespace, pod.metadata.controller)

    def _enqueue_matching(self, orphan: Pod) -> None:
        matching = selecting(self._replica_sets.list(orphan.metadata.namespace), orphan.metadata.labels)
        if len(matching) > 1:
            self._log.error(
                "user error! more than one ReplicaSet is selecting pods", labels=str(orphan.metadata.labels)
            )
        for replica_set in matching:
            self._enqueue(replica_set)

    # Sync

    async def sync(self, key: str) -> None:
        """Create or delete what is missing or too much, and write the status."""
        split_key(key)
        try:
            self._consistency.ensure_ready(key)
        except ConsistencyError as error:
            self._replica_set_metrics.stale_sync_skip(group=error.group, resource=error.resource)
            raise
        replica_set = self._replica_sets.get(key)
        if replica_set is None:
            self._consistency.clear(key, "")
            self.expectations.delete(key)
            return
        # The order matters: a pod that arrives after this check must be among those that are listed below.
        may_manage = self.expectations.satisfied(key)
        try:
            selector = selector_of(replica_set.spec.selector)
        except SelectorError as error:
            self._log.error("Error converting pod selector to selector", replicaSet=key, err=error)
            return

        owned_or_orphaned = pods_of(self._pods, self._resource.kind, replica_set.metadata, orphans=True)
        active = await self._claim(replica_set, selector, [pod for pod in owned_or_orphaned if is_active(pod)])
        terminating = (
            sum(_claimed(pod, replica_set, selector) for pod in owned_or_orphaned if is_terminating(pod))
            if self._counts_terminating
            else None
        )
        failure = None
        if may_manage and replica_set.metadata.deletion_timestamp is None:
            failure = await self._manage(replica_set, active)

        now = self._clock.now()
        written = await self._write_status(
            replica_set, calculate_status(replica_set, active, terminating, failure, now)
        )
        self._consistency.wrote_at(
            key, replica_set.metadata.uid, self._resource.group_resource, written.metadata.resource_version
        )
        if failure is not None:
            raise failure
        if written.spec.min_ready_seconds > 0 and written.status.ready_replicas != written.status.available_replicas:
            check = min_next_availability_check(active, written.spec.min_ready_seconds, now, self._clock)
            self.queue.add_after(key, written.spec.min_ready_seconds if check is None else check)

    async def _claim(self, replica_set: ReplicaSet, selector: Selector, pods: Sequence[Pod]) -> list[Pod]:
        meta = replica_set.metadata

        async def patch(namespace: str, name: str, body: bytes) -> Pod:
            pod = await self._pod_control.patch(namespace, name, body)
            self._wrote_pod(pod)
            return pod

        fetch = fetch_same(
            lambda: self._client.get(self._resource, meta.namespace, meta.name), self._resource.kind, meta
        )
        manager = RefManager(
            owner=meta,
            owner_api_version=self._resource.api_version,
            owner_kind=self._resource.kind,
            kind=PODS.kind,
            selector=selector,
            patch=patch,
            can_adopt=recheck_deletion_timestamp(fetch),
        )
        return await manager.claim(pods)

    async def _manage(self, replica_set: ReplicaSet, active: Sequence[Pod]) -> Exception | None:
        surplus = len(active) - replica_set.spec.replicas
        if surplus < 0:
            return await self._create(replica_set, min(-surplus, self._burst))
        if surplus > 0:
            return await self._delete(replica_set, active, min(surplus, self._burst))
        return None

    async def _create(self, replica_set: ReplicaSet, count: int) -> Exception | None:
        meta = replica_set.metadata
        about = reference_to(self._resource, replica_set.metadata)
        self.expectations.expect_creations(meta.key, count)
        created = 0
        try:
            self._log.info("Too few replicas", v=2, replicaSet=meta.key, need=replica_set.spec.replicas, creating=count)
            reference = controller_reference(self._resource.api_version, self._resource.kind, meta)
            body = pod_body(replica_set.spec.template, meta.name, reference)

            async def create() -> None:
                try:
                    pod = await self._pod_control.create(meta.namespace, body, about)
                except Exception as error:
                    if not is_namespace_terminating(error):
                        raise
                else:
                    self._wrote_pod(pod)

            created, errors = await slow_start_batch([create] * count)
            failure = errors[0] if errors else None
        except Exception as error:  # noqa: BLE001 - goes into the status before it is raised
            failure = error
        finally:
            # What was not created will never be observed.
            for _ in range(count - created):
                self.expectations.creation_observed(meta.key)
        return failure

    async def _delete(self, replica_set: ReplicaSet, active: Sequence[Pod], count: int) -> Exception | None:
        meta = replica_set.metadata
        about = reference_to(self._resource, replica_set.metadata)
        self._log.info("Too many replicas", v=2, replicaSet=meta.key, need=replica_set.spec.replicas, deleting=count)
        now = self._clock.now()
        chosen = pods_to_delete(active, self._related_pods(replica_set), count, now, by_cost=self._by_cost)
        if count < len(active):
            for ratio in deletion_age_ratios(active, chosen, now):
                self._replica_set_metrics.sorting_deletion_age_ratio(ratio)
        self.expectations.expect_deletions(meta.key, [pod.metadata.key for pod in chosen])

        async def delete(pod: Pod) -> None:
            deleted = False
            try:
                await self._pod_control.delete(meta.namespace, pod.metadata.name, about)
                deleted = True
            except Exception as error:
                if not is_not_found(error):
                    raise
            finally:
                if not deleted:
                    self.expectations.deletion_observed(meta.key, pod.metadata.key)

        errors = await run_all([lambda pod=pod: delete(pod) for pod in chosen])  # type: ignore[misc]
        return errors[0] if errors else None

    def _related_pods(self, replica_set: ReplicaSet) -> list[Pod]:
        """Pods matched by any ReplicaSet with the same controlling owner (replica_set.go:getIndirectlyRelatedPods)."""
        owner = replica_set.metadata.controller
        if owner is None or self._resource is not REPLICA_SETS:
            return []
        related: dict[str, Pod] = {}
        for sibling in self._replica_sets.by_index(CONTROLLER_UID_INDEX, owner.uid):
            if (selector := valid_selector(sibling)) is None:
                continue
            for pod in self._pods.list(sibling.metadata.namespace):
                if selector.matches(pod.metadata.labels):
                    related.setdefault(pod.metadata.uid, pod)
        return list(related.values())

    async def _write_status(self, replica_set: ReplicaSet, status: ReplicaSetStatus) -> ReplicaSet:
        """PUT the status if it says something new, once more on a fresh read if that fails; give the resulting object."""
        if not needs_update(replica_set, status):
            return replica_set
        meta = replica_set.metadata
        # The generation that was acted on, not that of a later read: a spec change in between was not seen.
        document = status_document(status) | {"observedGeneration": meta.generation}
        body = replica_set.document()
        for last_try in (False, True):
            body["status"] = document
            try:
                return await self._client.update(self._resource, meta.namespace, meta.name, body, subresource="status")
            except Exception:
                if last_try:
                    raise
            body = (await self._client.get(self._resource, meta.namespace, meta.name)).document()
        raise AssertionError("unreachable")

    def _wrote_pod(self, pod: Pod) -> None:
        owner = pod.metadata.controller
        if owner is not None:
            key = f"{pod.metadata.namespace}/{owner.name}"
            self._consistency.wrote_at(key, owner.uid, PODS.group_resource, pod.metadata.resource_version)


def _controller_uid(replica_set: ReplicaSet) -> tuple[str, ...]:
    owner = replica_set.metadata.controller
    return (owner.uid,) if owner is not None else ()


def _claimed(pod: Pod, replica_set: ReplicaSet, selector: Selector) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.uid == replica_set.metadata.uid and selector.matches(pod.metadata.labels)
