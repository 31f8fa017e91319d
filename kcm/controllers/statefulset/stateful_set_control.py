"""What one sync does with a StatefulSet's pods. Follows pkg/controller/statefulset/stateful_set_control.go.

In OrderedReady mode one thing happens at a time: slots are gone through in order, and the first one that is not as it should be
ends the sync. In Parallel mode all slots are treated at once, in batches that grow while nothing fails, and nothing waits.
Either way pods without a slot go next, and old pods last.

The status tells of the pods as they were before the sync acted, but for the deletions of a rolling update.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

import msgspec

from kcm.api.errors import AggregateError
from kcm.api.resources import STATEFUL_SETS
from kcm.api.types.apps import StatefulSet, StatefulSetStatus
from kcm.api.types.core import Pod
from kcm.controllers.pod_utils import is_available
from kcm.controllers.slow_start import slow_start_batch
from kcm.controllers.statefulset.revisions import RevisionControl, Revisions
from kcm.controllers.statefulset.rolling_update import count_unavailable, next_pod_to_update, pods_to_update
from kcm.controllers.statefulset.stateful_pod_control import StatefulPodControl
from kcm.controllers.statefulset.stateful_set_status import (
    RECREATE_IN_PROGRESS,
    complete_update,
    count_replicas,
    inconsistent_status,
    set_progressing,
)
from kcm.controllers.statefulset.stateful_set_status_updater import StatefulSetStatusUpdater
from kcm.controllers.statefulset.stateful_set_utils import (
    ON_DELETE,
    PARALLEL,
    RECREATE,
    assign_slots,
    identity_matches,
    is_created,
    is_running_and_ready,
    is_terminal,
    is_terminating,
    max_unavailable,
    new_pod_document,
    ordinal_of,
    pod_revision,
    starts_at_current,
    storage_matches,
    template_of,
    unborn_pod,
)
from kcm.events.recorder import WARNING, EventRecorder, reference_to
from kcm.logs import get_logger

log = get_logger(__name__)

#: The most pods that are treated at once.
MAX_BATCH_SIZE = 500

#: Treats one pod; says whether OrderedReady goes no further in this sync.
Step = Callable[[Pod], Awaitable[bool]]


class StatefulSetMetrics(Protocol):
    """What this controller tells of itself."""

    def max_unavailable(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """So many pods of a StatefulSet may be unavailable in a rolling update."""

    def unavailable_replicas(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """So many slots of a StatefulSet had no available pod when a rolling update was to go on."""

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """A sync was refused because a cache was older than an own write."""


class NoStatefulSetMetrics:
    """Tells nobody."""

    def max_unavailable(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """Drop it."""

    def unavailable_replicas(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """Drop it."""

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """Drop it."""


class UnknownStrategyError(Exception):
    """A StatefulSet wants Recreate, which has to be switched on."""


class StatefulSetControl:
    """Brings the pods of StatefulSets nearer to their specs.

    Args:
        pod_control: Writes pods and claims.
        status_updater: Writes statuses.
        revisions: Chooses what pods are made from.
        recorder: Told of what cannot be done.
        metrics: Told of rolling updates.
        max_unavailable: Whether more than one pod may be updated at once (gate MaxUnavailableStatefulSet).
        recreate: Whether there is the strategy Recreate (gate StatefulSetRecreateStrategy).
    """

    def __init__(
        self,
        *,
        pod_control: StatefulPodControl,
        status_updater: StatefulSetStatusUpdater,
        revisions: RevisionControl,
        recorder: EventRecorder,
        metrics: StatefulSetMetrics | None = None,
        max_unavailable: bool = True,
        recreate: bool = False,
    ) -> None:
        self.pod_control = pod_control
        self.revisions = revisions
        self.metrics: StatefulSetMetrics = metrics or NoStatefulSetMetrics()
        self.has_max_unavailable = max_unavailable
        self.has_recreate = recreate
        self._status_updater = status_updater
        self._recorder = recorder

    async def update(self, stateful_set: StatefulSet, pods: Sequence[Pod], now: datetime) -> StatefulSetStatus:
        """Act on a StatefulSet and its claimed pods, write its status, and delete surplus history.

        Args:
            stateful_set: As cached.
            pods: Those that it controls.
            now: The instant that availability is measured at.

        Returns:
            The status, written or not.

        Raises:
            Exception: what kept the sync from doing all it should; the status is written nevertheless where there is one.
            AggregateError: several such things.
        """
        revisions = self.revisions.list(stateful_set)
        chosen = status = None
        errors: list[Exception] = []
        try:
            chosen = await self.revisions.choose(stateful_set, revisions)
            status = await self._perform(stateful_set, chosen, pods, now)
        except Exception as error:  # noqa: BLE001 - history is cut nevertheless, and then it is raised
            errors.append(error)
        try:
            await self.revisions.truncate(stateful_set, pods, revisions, chosen)
        except Exception as error:  # noqa: BLE001 - raised together with the other
            errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors or status is None:
            raise AggregateError(_flat(errors)) from errors[0]
        return status

    async def _perform(
        self, stateful_set: StatefulSet, chosen: Revisions, pods: Sequence[Pod], now: datetime
    ) -> StatefulSetStatus:
        """Act and write the status; an error of acting is raised once the status is written."""
        meta = stateful_set.metadata
        turn = Turn(self, stateful_set, chosen, pods, now)
        if stateful_set.spec.update_strategy.type == RECREATE and not self.has_recreate:
            text = f"statefulset {meta.key} uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled"
            self._recorder.event(reference_to(STATEFUL_SETS, meta), WARNING, "UnknownStrategy", text)
            raise UnknownStrategyError(text)
        failure = None
        if meta.deletion_timestamp is None:
            try:
                await turn.run()
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error
        try:
            status = await self._write_status(stateful_set, turn.status(), now)
        except Exception as error:
            if failure is None:
                raise
            log.error("Could not update status", statefulSet=meta.key, err=error)
        if failure is not None:
            raise failure
        return status

    async def _write_status(
        self, stateful_set: StatefulSet, status: StatefulSetStatus, now: datetime
    ) -> StatefulSetStatus:
        """Complete the update if it is, and PUT the status if it says something new."""
        meta = stateful_set.metadata
        status = complete_update(stateful_set, status, now, recreate=self.has_recreate)
        if self.has_max_unavailable:
            self.metrics.max_unavailable(
                namespace=meta.namespace,
                name=meta.name,
                pod_management_policy=stateful_set.spec.pod_management_policy,
                pods=max_unavailable(stateful_set),
            )
        if inconsistent_status(stateful_set, status):
            await self._status_updater.update(stateful_set, status)
        log.info(
            "Updated status",
            v=4,
            statefulSet=meta.key,
            replicas=status.replicas,
            readyReplicas=status.ready_replicas,
            currentReplicas=status.current_replicas,
            updatedReplicas=status.updated_replicas,
        )
        return status


class Turn:
    """One sync's work on the pods of one StatefulSet, and what it has come to.

    Raises:
        RevisionError: no pod can be made from a chosen revision.
    """

    def __init__(
        self,
        control: StatefulSetControl,
        stateful_set: StatefulSet,
        chosen: Revisions,
        pods: Sequence[Pod],
        now: datetime,
    ) -> None:
        self._control = control
        self._pods = control.pod_control
        self._set = stateful_set
        self._now = now
        self._claimed = pods
        self._parallel = stateful_set.spec.pod_management_policy == PARALLEL
        self._min_ready = stateful_set.spec.min_ready_seconds
        self._current = chosen.current.metadata.name
        self._update = chosen.update.metadata.name
        # Where both have one name the update revision counts: it may just have been renumbered, its data is the same.
        self._templates = {self._current: template_of(chosen.current), self._update: template_of(chosen.update)}
        self._slots = assign_slots(stateful_set, pods, self._unborn)
        self._first_unavailable = self._slots.first_unavailable(self._min_ready, now)
        #: Pods that the rolling update deleted.
        self._updating = 0
        self._status = StatefulSetStatus(
            observed_generation=stateful_set.metadata.generation,
            current_revision=self._current,
            update_revision=self._update,
            collision_count=chosen.collision_count,
            conditions=stateful_set.status.conditions,
        )

    def status(self) -> StatefulSetStatus:
        """The status that follows; for a StatefulSet that is being deleted all of its pods count, whatever their names."""
        deleted = self._set.metadata.deletion_timestamp is not None
        pods = self._claimed if deleted else (*self._slots.replicas, *self._slots.condemned)
        status = count_replicas(self._status, pods, self._min_ready, self._now)
        return msgspec.structs.replace(status, current_replicas=status.current_replicas - self._updating)

    async def run(self) -> None:
        """Go as far as this sync goes.

        Raises:
            Exception: what ended it.
        """
        strategy = self._set.spec.update_strategy.type
        replicas, condemned = self._slots.replicas, self._slots.condemned
        if strategy == RECREATE and not await self._recreate():
            return
        for pods, step in (
            (replicas, self._process_replica),
            (condemned, self._fix_claims),
            (condemned, self._process_condemned),
        ):
            if await self._for_all(pods, step):
                return
        if strategy not in {ON_DELETE, RECREATE}:
            await self._roll()

    def _unborn(self, ordinal: int) -> Pod:
        revision = self._current if starts_at_current(self._set, ordinal) else self._update
        return unborn_pod(self._set, self._templates[revision], revision, ordinal)

    async def _for_all(self, pods: Sequence[Pod], step: Step, *, at_once: bool = False) -> bool:
        """Take a step with each pod, one after another or in batches; give whether the sync ends here.

        Raises:
            AggregateError: some steps of a batch failed.
        """
        if not self._parallel and not at_once:
            for pod in pods:
                if await step(pod):
                    return True
            return False
        _, errors = await slow_start_batch([partial(step, pod) for pod in pods], largest=MAX_BATCH_SIZE)
        if errors:
            raise AggregateError(errors) from errors[0]
        return False

    async def _process_replica(self, pod: Pod) -> bool:
        """Bring one slot nearer to what it should be."""
        if is_terminal(pod):
            if not is_terminating(pod):
                await self._pods.delete(self._set, pod)
            return True  # made again once it is gone
        if not is_created(pod):
            if self._pods.has_stale_claim(self._set, pod):
                return True
            revision = pod_revision(pod)
            body = new_pod_document(self._set, self._templates[revision], revision, ordinal_of(pod))
            await self._pods.create(self._set, pod, body)
            if not self._parallel:
                return True
        if pod.status.phase == "Pending":
            log.info("StatefulSet is triggering PVC creation for pending Pod", v=4, pod=pod.metadata.key)
            await self._pods.create_missing_claims(self._set, pod)
        if not self._parallel and (is_terminating(pod) or not self._is_fine(pod)):
            log.info("StatefulSet is waiting for Pod", v=4, statefulSet=self._set.metadata.key, pod=pod.metadata.key)
            return True
        claims_match = self._pods.claims_match(self._set, pod)
        if not (claims_match and identity_matches(self._set, pod) and storage_matches(self._set, pod)):
            await self._pods.update(self._set, pod)
        return False

    async def _fix_claims(self, pod: Pod) -> bool:
        """Have the claims of a pod that will be deleted go with it, or stay."""
        await self._pods.fix_claims(self._set, pod)
        return False

    async def _process_condemned(self, pod: Pod) -> bool:
        """Delete a pod that has no slot any more, if it is its turn."""
        if is_terminating(pod):
            return True
        about = {"statefulSet": self._set.metadata.key, "pod": pod.metadata.key}
        if not (self._parallel or pod is self._first_unavailable or self._is_fine(pod)):
            log.info("StatefulSet is waiting for Pod prior to scale down", v=4, **about)
            return True
        log.info("Pod of StatefulSet is terminating for scale down", v=2, **about)
        await self._pods.delete(self._set, pod)
        return True

    async def _roll(self) -> None:
        """Delete the old pods that may go now."""
        meta, spec = self._set.metadata, self._set.spec
        rolling = spec.update_strategy.rolling_update
        replicas, partition = self._slots.replicas, rolling.partition if rolling else 0
        if self._control.has_max_unavailable:
            most = max_unavailable(self._set)
            self._control.metrics.unavailable_replicas(
                namespace=meta.namespace,
                name=meta.name,
                pod_management_policy=spec.pod_management_policy,
                pods=count_unavailable(replicas, self._min_ready, self._now),
            )
            chosen = pods_to_update(
                replicas,
                revision=self._update,
                partition=partition,
                max_unavailable=most,
                parallel=self._parallel,
                min_ready_seconds=self._min_ready,
                now=self._now,
            )
        else:
            chosen = next_pod_to_update(
                replicas,
                revision=self._update,
                partition=partition,
                min_ready_seconds=self._min_ready,
                now=self._now,
            )
        for pod in chosen:
            log.info("Pod of StatefulSet is terminating for update", v=2, statefulSet=meta.key, pod=pod.metadata.key)
            await self._pods.delete(self._set, pod)
            self._updating += 1

    async def _recreate(self) -> bool:
        """Delete all old pods, and give whether there are none left."""
        pods = (*self._slots.replicas, *self._slots.condemned)
        await self._for_all(pods, self._delete_old, at_once=True)
        if any(map(self._is_old, pods)):
            self._progress("Deleting old revision pods")
            return False
        if self._current != self._update:
            self._progress("Waiting for new-revision pods to be created")
        return True

    async def _delete_old(self, pod: Pod) -> bool:
        """Delete a pod that is to be made again."""
        if self._is_old(pod) and not is_terminating(pod):
            await self._pods.delete(self._set, pod)
        return False

    def _is_old(self, pod: Pod) -> bool:
        return is_created(pod) and pod_revision(pod) != self._update

    def _is_fine(self, pod: Pod) -> bool:
        return is_running_and_ready(pod) and is_available(pod, self._min_ready, self._now)

    def _progress(self, message: str) -> None:
        self._status = set_progressing(self._status, "True", RECREATE_IN_PROGRESS, message, self._now)


def _flat(errors: Sequence[Exception]) -> list[Exception]:
    """The errors, with the parts of aggregates in their places."""
    flat: list[Exception] = []
    for error in errors:
        flat += error.errors if isinstance(error, AggregateError) else [error]
    return flat
