"""The StatefulSet controller: which keys are synced when, and what one sync looks at.

Follows pkg/controller/statefulset/stateful_set.go. Claims and revisions are cached, but nothing that happens to them wakes a
StatefulSet; a sync that waits for one goes on with the next event of the StatefulSet or of its pods.
"""

from collections.abc import Awaitable, Callable

from kcm.api.client import Client
from kcm.api.resources import PODS, STATEFUL_SETS
from kcm.api.selectors import Selector, SelectorError, selector_of
from kcm.api.types.apps import ControllerRevision, StatefulSet
from kcm.api.types.core import PersistentVolumeClaim, Pod
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
from kcm.controllers.history import CONTROLLER_REVISION_INDEX, History, controller_revision_index
from kcm.controllers.owners import last_known, resolve, selecting
from kcm.controllers.pod_utils import is_ready, min_next_availability_check
from kcm.controllers.ref_manager import AdoptionError, RefManager, fetch_same, recheck_deletion_timestamp
from kcm.controllers.statefulset.revisions import Comparison, RevisionControl
from kcm.controllers.statefulset.stateful_pod_control import StatefulPodControl
from kcm.controllers.statefulset.stateful_set_control import (
    NoStatefulSetMetrics,
    StatefulSetControl,
    StatefulSetMetrics,
)
from kcm.controllers.statefulset.stateful_set_status_updater import StatefulSetStatusUpdater
from kcm.controllers.statefulset.stateful_set_utils import is_member_of
from kcm.events.recorder import EventRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Tombstone
from kcm.workqueue.queue import Queue


class StatefulSetController(Controller):
    """Keeps for each StatefulSet one pod per ordinal, with its claims, made and replaced in order.

    Args:
        client: Reads and writes.
        stateful_sets: Their informer.
        pods: The informer of pods.
        claims: The informer of claims.
        revisions: The informer of ControllerRevisions.
        recorder: Told of what happens to pods and claims.
        queue: Keys to sync.
        consistency: Holds a sync back until the caches have seen its last writes (gate StaleControllerConsistencyStatefulSet).
        metrics: Told what is peculiar to this controller.
        sync_metrics: Told of syncs.
        clock: Availability.
        max_unavailable: Whether more than one pod may be updated at once (gate MaxUnavailableStatefulSet).
        recreate: Whether there is the strategy Recreate (gate StatefulSetRecreateStrategy).
        same_template: Compares templates where revisions differ in their bytes (gate StatefulSetSemanticRevisionComparison).
    """

    def __init__(
        self,
        *,
        client: Client,
        stateful_sets: SharedInformer[StatefulSet],
        pods: SharedInformer[Pod],
        claims: SharedInformer[PersistentVolumeClaim],
        revisions: SharedInformer[ControllerRevision],
        recorder: EventRecorder,
        queue: Queue,
        consistency: ConsistencyStore,
        metrics: StatefulSetMetrics | None = None,
        sync_metrics: SyncMetrics | None = None,
        clock: Clock = REAL,
        max_unavailable: bool = True,
        recreate: bool = False,
        same_template: Comparison | None = None,
    ) -> None:
        super().__init__(
            "statefulset-controller", queue, [pods, stateful_sets, claims, revisions], metrics=sync_metrics
        )
        self._client = client
        self._stateful_sets = stateful_sets.store
        self._pods = pods.store
        self._consistency = consistency
        self._stateful_set_metrics: StatefulSetMetrics = metrics or NoStatefulSetMetrics()
        self._clock = clock
        pods.add_index(POD_CONTROLLER_INDEX, pod_controller_index)
        revisions.add_index(CONTROLLER_REVISION_INDEX, controller_revision_index)
        history = History(client, revisions.store, STATEFUL_SETS)
        self._revisions = RevisionControl(history, same_template=same_template)
        self._control = StatefulSetControl(
            pod_control=StatefulPodControl(
                client=client, pods=pods.store, claims=claims.store, recorder=recorder, consistency=consistency
            ),
            status_updater=StatefulSetStatusUpdater(
                client=client, stateful_sets=stateful_sets.store, consistency=consistency
            ),
            revisions=self._revisions,
            recorder=recorder,
            metrics=metrics,
            max_unavailable=max_unavailable,
            recreate=recreate,
        )
        stateful_sets.add_handler(
            on_add=self._enqueue, on_update=self._stateful_set_updated, on_delete=self._stateful_set_deleted
        )
        pods.add_handler(on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_deleted)

    # Handlers: what happened to objects decides which keys are synced.

    def _enqueue(self, stateful_set: StatefulSet) -> None:
        self.queue.add(stateful_set.metadata.key)

    def _stateful_set_updated(self, old: StatefulSet, new: StatefulSet) -> None:
        before, now = old.status.replicas, new.status.replicas
        if before != now:
            about = {"statefulSet": new.metadata.key, "oldReplicas": before, "newReplicas": now}
            self._log.info("Observed updated replica count for StatefulSet", v=4, **about)
        self._enqueue(new)

    def _stateful_set_deleted(self, deleted: StatefulSet | Tombstone[StatefulSet]) -> None:
        self._enqueue(last_known(deleted))

    def _pod_added(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._pod_deleted(pod)
        elif pod.metadata.controller is None:
            self._enqueue_matching(pod)
        else:
            self._enqueue_owner(pod)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.metadata.resource_version == new.metadata.resource_version:
            return
        passed_on = old.metadata.controller != new.metadata.controller
        if passed_on:
            self._enqueue_owner(old)
        if new.metadata.controller is None:
            if passed_on or old.metadata.labels != new.metadata.labels:
                self._enqueue_matching(new)
            return
        owner = self._enqueue_owner(new)
        if owner is not None and owner.spec.min_ready_seconds > 0 and not is_ready(old) and is_ready(new):
            self.queue.add_after(owner.metadata.key, owner.spec.min_ready_seconds)

    def _pod_deleted(self, deleted: Pod | Tombstone[Pod]) -> None:
        self._enqueue_owner(last_known(deleted))

    def _enqueue_owner(self, pod: Pod) -> StatefulSet | None:
        """Have the StatefulSet that controls a pod synced, if there is one, and give it."""
        meta = pod.metadata
        owner = resolve(self._stateful_sets, STATEFUL_SETS.kind, meta.namespace, meta.controller)
        if owner is not None:
            self._enqueue(owner)
        return owner

    def _enqueue_matching(self, orphan: Pod) -> None:
        matching = selecting(self._stateful_sets.list(orphan.metadata.namespace), orphan.metadata.labels)
        if len(matching) > 1:
            self._log.error(
                "More than one StatefulSet is selecting pods with same labels",
                podLabels=str(orphan.metadata.labels),
                sets=[stateful_set.metadata.name for stateful_set in matching],
            )
        for stateful_set in matching:
            self._enqueue(stateful_set)

    # Sync

    async def sync(self, key: str) -> None:
        """Take a StatefulSet's next step.

        Raises:
            ValueError: the key is malformed.
            ConsistencyError: a cache has not seen the last sync's writes yet.
            Exception: what went wrong, as `StatefulSetControl.update` and adoption raise it.
        """
        split_key(key)
        try:
            self._consistency.ensure_ready(key)
        except ConsistencyError as error:
            self._stateful_set_metrics.stale_sync_skip(group=error.group, resource=error.resource)
            raise
        stateful_set = self._stateful_sets.get(key)
        if stateful_set is None:
            self._consistency.clear(key, "")
            self._log.info("StatefulSet has been deleted", v=0, key=key)
            return
        try:
            selector = selector_of(stateful_set.spec.selector)
        except SelectorError as error:
            self._log.error("Error converting StatefulSet selector", key=key, err=error)
            return
        await self._adopt_orphan_revisions(stateful_set)
        pods = await self._claim_pods(stateful_set, selector)

        now = self._clock.now()
        status = await self._control.update(stateful_set, pods, now)
        min_ready = stateful_set.spec.min_ready_seconds
        if min_ready > 0 and status.ready_replicas != status.available_replicas:
            check = min_next_availability_check(pods, min_ready, now, self._clock)
            self.queue.add_after(key, min_ready if check is None else check)

    async def _adopt_orphan_revisions(self, stateful_set: StatefulSet) -> None:
        revisions = self._revisions.list(stateful_set)
        orphans = [revision for revision in revisions if revision.metadata.controller is None]
        if not orphans:
            return
        try:
            await recheck_deletion_timestamp(self._fetch(stateful_set))()
        except AdoptionError as error:
            raise AdoptionError(f"can't adopt ControllerRevisions: {error}") from error
        await self._revisions.adopt(stateful_set, orphans)

    async def _claim_pods(self, stateful_set: StatefulSet, selector: Selector) -> list[Pod]:
        async def patch(namespace: str, name: str, body: bytes) -> Pod:
            pod = await self._client.patch(PODS, namespace, name, body)
            if (owner := pod.metadata.controller) is not None:
                version = pod.metadata.resource_version
                self._consistency.wrote_at(f"{namespace}/{owner.name}", owner.uid, PODS.group_resource, version)
            return pod

        manager = RefManager(
            owner=stateful_set.metadata,
            owner_api_version=STATEFUL_SETS.api_version,
            owner_kind=STATEFUL_SETS.kind,
            kind=PODS.kind,
            selector=selector,
            patch=patch,
            can_adopt=recheck_deletion_timestamp(self._fetch(stateful_set)),
            may_belong=lambda pod: is_member_of(stateful_set, pod),
        )
        return await manager.claim(pods_of(self._pods, STATEFUL_SETS.kind, stateful_set.metadata, orphans=True))

    def _fetch(self, stateful_set: StatefulSet) -> Callable[[], Awaitable[StatefulSet]]:
        """Make a read of the StatefulSet past the cache."""
        meta = stateful_set.metadata
        return fetch_same(lambda: self._client.get(STATEFUL_SETS, meta.namespace, meta.name), STATEFUL_SETS.kind, meta)
