"""One sync of one Deployment: its working copy, its new ReplicaSet, scaling, clean-up, status.

Follows pkg/controller/deployment/sync.go. The working copy keeps the resourceVersion that it was read with, whatever is written
in the meantime: that version, and the ones of the ReplicaSets, are all that protects against acting on a stale cache. A second
write of the same object in one sync is therefore refused with a conflict, and the sync is tried again; this is normal.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from kcm.api.client import Client
from kcm.api.errors import (
    Status,
    StatusError,
    TransportError,
    is_already_exists,
    is_namespace_terminating,
    is_not_found,
)
from kcm.api.pod_template import compute_hash, equal_ignore_hash
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.apps import (
    Deployment,
    DeploymentStatus,
    ReplicaSet,
    ReplicaSetSpec,
    deployment_document,
    replica_set_document,
)
from kcm.clock import Clock
from kcm.controllers.deployment.conditions import (
    FAILED_RS_CREATE,
    FOUND_NEW_RS,
    NEW_REPLICA_SET,
    PROGRESSING,
    get_deployment_condition,
    has_progress_deadline,
    new_deployment_condition,
    set_deployment_condition,
)
from kcm.controllers.deployment.decisions import (
    calculate_status,
    generate_replica_set_name,
    is_scaling,
    new_replica_set_document,
    paused_condition,
    plan_cleanup,
    plan_scale,
)
from kcm.controllers.deployment.util import (
    REVISION_ANNOTATION,
    by_creation,
    find_new_replica_set,
    find_old_replica_sets,
    get_rollback_to,
    int32,
    int64,
    max_revision,
    new_rs_new_replicas,
    set_deployment_revision,
    set_new_replica_set_annotations,
    set_replicas_annotations,
)
from kcm.events.recorder import NORMAL, WARNING, EventRecorder, reference_to
from kcm.informers.store import Indexer
from kcm.logs import get_logger
from kcm.workqueue.queue import Queue

log = get_logger(__name__)

#: What a request may fail with, where the reference looks at its error.
API_ERRORS = (StatusError, TransportError)


@dataclass(kw_only=True)
class DeploymentSync:
    """The working copy of a Deployment for the length of one sync, and what is read and written through.

    Every method that writes raises StatusError or TransportError when a write fails, unless it says otherwise.
    """

    #: As read from the cache; replaced as its status and annotations change, with the resourceVersion it was read with.
    deployment: Deployment
    client: Client
    recorder: EventRecorder
    queue: Queue
    #: The cache, for the one look-up that cannot use the list made at the start.
    replica_sets: Indexer[ReplicaSet]
    clock: Clock
    #: Whether terminating pods are counted in the status (gate DeploymentReplicaSetTerminatingReplicas).
    terminating_replicas: bool = True

    def event(self, type_: str, reason: str, message: str) -> None:
        """Record an event on the Deployment."""
        self.recorder.event(reference_to(DEPLOYMENTS, self.deployment.metadata), type_, reason, message)

    # What is done at the start of every sync, and instead of a rollout

    async def refuse_selecting_all(self) -> None:
        """Say that a selector that selects everything is not acted on, and that it was seen."""
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self.event(WARNING, "SelectingAll", message)
        status, generation = self.deployment.status, self.deployment.metadata.generation
        if status.observed_generation < generation:
            with suppress(*API_ERRORS):
                await self.update_status(replace(status, observed_generation=generation))

    async def check_paused_conditions(self) -> None:
        """Note in the status that the rollout was paused or resumed."""
        condition = paused_condition(self.deployment, self.clock.now())
        if condition is not None:
            await self.update_status(set_deployment_condition(self.deployment.status, condition))

    async def is_scaling_event(self, rs_list: Sequence[ReplicaSet]) -> bool:
        """Whether the Deployment was scaled since its ReplicaSets were; writes as `get_all_replica_sets_and_sync_revision`."""
        new_rs, old_rss = await self.get_all_replica_sets_and_sync_revision(rs_list)
        return is_scaling(self.deployment, all_replica_sets(old_rss, new_rs))

    async def sync_status_only(self, rs_list: Sequence[ReplicaSet]) -> None:
        """Bring the status of a Deployment up to date that is being deleted."""
        new_rs, old_rss = await self.get_all_replica_sets_and_sync_revision(rs_list)
        await self._sync_deployment_status(new_rs, old_rss)

    async def scale_without_rollout(self, rs_list: Sequence[ReplicaSet]) -> None:
        """Scale a Deployment that is paused or was scaled; no ReplicaSet is made (sync.go:sync)."""
        new_rs, old_rss = await self.get_all_replica_sets_and_sync_revision(rs_list)
        plan = plan_scale(self.deployment, new_rs, old_rss)
        for replica_set, size in plan.steps:
            await self.scale_replica_set(replica_set, size, force=plan.force)
        if self.deployment.spec.paused and get_rollback_to(self.deployment) is None:
            await self.cleanup_deployment(by_creation(old_rss, newest_first=True))
        await self._sync_deployment_status(new_rs, old_rss)

    # The new ReplicaSet

    async def get_all_replica_sets_and_sync_revision(
        self, rs_list: Sequence[ReplicaSet]
    ) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
        """The new ReplicaSet, if it exists, and the old ones, oldest first.

        Where they lag behind, the new one's annotations and minReadySeconds are written, else the Deployment's revision.
        """
        existing = find_new_replica_set(self.deployment, rs_list)
        old_rss = find_old_replica_sets(rs_list, existing)
        if existing is None:
            return None, old_rss
        return await self._sync_existing_replica_set(existing, old_rss), old_rss

    async def get_or_create_new_replica_set(self, rs_list: Sequence[ReplicaSet]) -> tuple[ReplicaSet, list[ReplicaSet]]:
        """As above, but a missing new ReplicaSet is made.

        Raises:
            IntOrStringError: maxSurge is missing, or no number or percentage.
            UnsupportedStrategyError: neither Recreate nor RollingUpdate.
        """
        new_rs, old_rss = await self.get_all_replica_sets_and_sync_revision(rs_list)
        return new_rs or await self._create_new_replica_set(old_rss), old_rss

    async def _sync_existing_replica_set(self, existing: ReplicaSet, old_rss: Sequence[ReplicaSet]) -> ReplicaSet:
        deployment = self.deployment
        annotations, changed = set_new_replica_set_annotations(
            deployment, existing.metadata.annotations, _next_revision(old_rss), exists=True
        )
        new_rs = _changed(existing, annotations=annotations)
        min_ready = deployment.spec.min_ready_seconds
        if changed or existing.spec.min_ready_seconds != min_ready:
            return await self._update_replica_set(_changed(new_rs, min_ready_seconds=min_ready))

        updated = set_deployment_revision(deployment, annotations.get(REVISION_ANNOTATION, ""))
        if has_progress_deadline(deployment) and get_deployment_condition(deployment.status, PROGRESSING) is None:
            message = f'Found new replica set "{existing.metadata.name}"'
            updated = self._with_progressing(updated, "True", FOUND_NEW_RS, message)
        if updated is not deployment:
            await self._put_status(updated)
        return new_rs

    async def _create_new_replica_set(self, old_rss: Sequence[ReplicaSet]) -> ReplicaSet:
        deployment, meta = self.deployment, self.deployment.metadata
        revision = _next_revision(old_rss)
        pod_template_hash = compute_hash(deployment, deployment.status.collision_count)
        name = generate_replica_set_name(meta.name, pod_template_hash)
        size = new_rs_new_replicas(deployment, old_rss, ReplicaSet(spec=ReplicaSetSpec(replicas=0)))
        body = new_replica_set_document(deployment, name, pod_template_hash, size=size, revision=revision)
        created = True
        try:
            new_rs = await self.client.create(REPLICA_SETS, meta.namespace, body)
        except API_ERRORS as error:
            existing = await self._creation_failed(name, error)
            if existing is None:
                raise
            new_rs, created = existing, False
        if created and size > 0:
            self._scaling_event("up", new_rs.metadata.name, 0, size)

        updated = set_deployment_revision(deployment, str(revision))
        needs_update = updated is not deployment
        if created and has_progress_deadline(deployment):
            message = f'Created new replica set "{new_rs.metadata.name}"'
            updated = self._with_progressing(updated, "True", NEW_REPLICA_SET, message)
            needs_update = True
        if needs_update:
            await self._put_status(updated)
        return new_rs

    async def _creation_failed(self, name: str, error: StatusError | TransportError) -> ReplicaSet | None:
        """Give the ReplicaSet that was meant if it is there already; else report the failure."""
        deployment, meta = self.deployment, self.deployment.metadata
        if is_already_exists(error):
            existing = self.replica_sets.get(f"{meta.namespace}/{name}")
            if existing is None:
                # The cache lags behind, so this is not known to be a collision: look again in the next sync.
                message = f'replicaset.apps "{name}" not found'
                raise StatusError(Status(message=message, reason="NotFound", code=404)) from error
            owner = existing.metadata.controller
            if owner is not None and owner.uid == meta.uid and equal_ignore_hash(deployment, existing):
                return existing
            await self._bump_collision_count()
        elif not is_namespace_terminating(error):
            await self._report_failed_creation(f'Failed to create new replica set "{name}": {error}')
        return None

    async def _bump_collision_count(self) -> None:
        count = self.deployment.status.collision_count or 0
        try:
            await self.update_status(replace(self.deployment.status, collision_count=int32(count + 1)))
        except API_ERRORS:
            return  # the next sync meets the same collision
        log.info(
            "Found a hash collision for deployment - bumping collisionCount to resolve it",
            v=2,
            deployment=self.deployment.metadata.key,
            oldCollisionCount=count,
            newCollisionCount=count + 1,
        )

    async def _report_failed_creation(self, message: str) -> None:
        if has_progress_deadline(self.deployment):
            try:
                await self._put_status(self._with_progressing(self.deployment, "False", FAILED_RS_CREATE, message))
            except API_ERRORS as error:
                log.info("Could not note the failed creation", v=4, deployment=self.deployment.metadata.key, err=error)
        self.event(WARNING, FAILED_RS_CREATE, message)

    def _with_progressing(self, deployment: Deployment, status: str, reason: str, message: str) -> Deployment:
        condition = new_deployment_condition(PROGRESSING, status, reason, message, self.clock.now())
        return replace(deployment, status=set_deployment_condition(deployment.status, condition))

    # Scaling and clean-up

    async def scale_replica_set(
        self, replica_set: ReplicaSet, size: int, *, force: bool = False
    ) -> tuple[bool, ReplicaSet]:
        """Set a ReplicaSet's size, and with it the annotations about the Deployment's size.

        Args:
            replica_set: As last seen; its resourceVersion guards the write.
            size: The pods that it shall have.
            force: Write outdated annotations even if the size stays.

        Returns:
            Whether the size changed, and the ReplicaSet as it is now.
        """
        old_size = replica_set.spec.replicas
        annotations = set_replicas_annotations(replica_set.metadata.annotations, self.deployment)
        if old_size == size and not (force and annotations != replica_set.metadata.annotations):
            return False, replica_set
        updated = await self._update_replica_set(_changed(replica_set, annotations=annotations, replicas=size))
        if old_size == size:
            return False, updated
        self._scaling_event("up" if old_size < size else "down", updated.metadata.name, old_size, size)
        return True, updated

    async def cleanup_deployment(self, old_rss: Sequence[ReplicaSet]) -> None:
        """Delete old ReplicaSets without pods that are beyond revisionHistoryLimit; the first failure ends it."""
        for replica_set in plan_cleanup(self.deployment, old_rss):
            meta = replica_set.metadata
            log.info(
                "Trying to cleanup replica set for deployment",
                v=4,
                replicaSet=meta.key,
                deployment=self.deployment.metadata.key,
            )
            try:
                await self.client.delete(REPLICA_SETS, meta.namespace, meta.name)
            except StatusError as error:
                if not is_not_found(error):
                    raise

    def _scaling_event(self, direction: str, name: str, old_size: int, size: int) -> None:
        message = f"Scaled {direction} replica set {name} from {old_size} to {size}"
        self.event(NORMAL, "ScalingReplicaSet", message)

    # Writing

    async def update_status(self, status: DeploymentStatus) -> None:
        """Give the working copy a status and PUT it."""
        await self._put_status(replace(self.deployment, status=status))

    async def _sync_deployment_status(self, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> None:
        status = calculate_status(
            self.deployment,
            all_replica_sets(old_rss, new_rs),
            new_rs,
            now=self.clock.now(),
            terminating_replicas=self.terminating_replicas,
        )
        if status != self.deployment.status:
            await self.update_status(status)

    async def _put_status(self, deployment: Deployment) -> None:
        self.deployment = deployment
        meta = deployment.metadata
        body = deployment_document(deployment)
        await self.client.update(DEPLOYMENTS, meta.namespace, meta.name, body, subresource="status")

    async def _update_replica_set(self, replica_set: ReplicaSet) -> ReplicaSet:
        meta = replica_set.metadata
        return await self.client.update(REPLICA_SETS, meta.namespace, meta.name, replica_set_document(replica_set))


def all_replica_sets(old_rss: Sequence[ReplicaSet], new_rs: ReplicaSet | None) -> list[ReplicaSet]:
    """Old ones in their order, then the new one if there is one."""
    return [*old_rss, *([new_rs] if new_rs is not None else [])]


def _next_revision(old_rss: Sequence[ReplicaSet]) -> int:
    return int64(max_revision(old_rss) + 1)


def _changed(
    replica_set: ReplicaSet,
    *,
    annotations: dict[str, str] | None = None,
    replicas: int | None = None,
    min_ready_seconds: int | None = None,
) -> ReplicaSet:
    meta, spec = replica_set.metadata, replica_set.spec
    return replace(
        replica_set,
        metadata=meta if annotations is None else replace(meta, annotations=annotations),
        spec=replace(
            spec,
            replicas=spec.replicas if replicas is None else replicas,
            min_ready_seconds=spec.min_ready_seconds if min_ready_seconds is None else min_ready_seconds,
        ),
    )
