"""Replacing pods gradually, within maxSurge and maxUnavailable. Follows pkg/controller/deployment/rolling.go."""

from collections.abc import Sequence
from typing import NamedTuple

from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.controllers.deployment.conditions import deployment_complete
from kcm.controllers.deployment.decisions import Step
from kcm.controllers.deployment.progress import sync_rollout_status
from kcm.controllers.deployment.sync import API_ERRORS, DeploymentSync
from kcm.controllers.deployment.util import (
    by_creation,
    filter_active_replica_sets,
    get_available_replica_count_for_replica_sets,
    get_replica_count_for_replica_sets,
    int32,
    min_available,
    new_rs_new_replicas,
)
from kcm.logs import get_logger

log = get_logger(__name__)


class CleanupPlan(NamedTuple):
    """Old ReplicaSets to shrink by their unavailable pods, in this order."""

    steps: list[Step]
    #: Whether the plan ends at a ReplicaSet whose available pods outnumber those that it wants; nothing may follow then.
    cut_short: bool = False


async def rollout_rolling(sync: DeploymentSync, rs_list: Sequence[ReplicaSet]) -> None:
    """Take one step: the new ReplicaSet up or, if it cannot grow, old ones down."""
    new_rs, old_rss = await sync.get_or_create_new_replica_set(rs_list)
    size = plan_new_replica_set(sync.deployment, new_rs, old_rss)
    scaled, _ = await sync.scale_replica_set(new_rs, size)
    if not scaled:
        scaled = await _reconcile_old_replica_sets(sync, new_rs, old_rss)
    if not scaled and deployment_complete(sync.deployment, sync.deployment.status):
        await sync.cleanup_deployment(old_rss)
    await sync_rollout_status(sync, new_rs, old_rss)


def plan_new_replica_set(deployment: Deployment, new_rs: ReplicaSet, old_rss: Sequence[ReplicaSet]) -> int:
    """The size of the new ReplicaSet: at most the Deployment's, else as large as maxSurge allows.

    Raises:
        IntOrStringError: maxSurge is missing, or no number or percentage.
    """
    if new_rs.spec.replicas >= deployment.spec.replicas:
        return deployment.spec.replicas
    return new_rs_new_replicas(deployment, [*old_rss, new_rs], new_rs)


async def _reconcile_old_replica_sets(sync: DeploymentSync, new_rs: ReplicaSet, old_rss: Sequence[ReplicaSet]) -> bool:
    """Shrink old ReplicaSets, and say whether that was done.

    A failed write ends it and counts as nothing done, but does not fail the sync: the ReplicaSet's next event brings the
    next try. What was written before it stays written.
    """
    active = filter_active_replica_sets(old_rss)
    max_cleanup = max_scaled_down(sync.deployment, new_rs, old_rss) if active else 0
    if max_cleanup <= 0:
        return False
    cleanup = plan_unhealthy_cleanup(active, max_cleanup)
    latest = {rs.metadata.uid: rs for rs in active}
    scaled = False
    try:
        for replica_set, size in cleanup.steps:
            _, latest[replica_set.metadata.uid] = await sync.scale_replica_set(replica_set, size)
            scaled = True
        if cleanup.cut_short:
            return False
        # Decided on what the first step left behind.
        for replica_set, size in plan_old_scale_down(sync.deployment, new_rs, list(latest.values())):
            await sync.scale_replica_set(replica_set, size)
            scaled = True
    except API_ERRORS as error:
        log.info("Could not scale down old replica sets", v=2, deployment=sync.deployment.metadata.key, err=error)
        return False
    return scaled


def max_scaled_down(deployment: Deployment, new_rs: ReplicaSet, old_rss: Sequence[ReplicaSet]) -> int:
    """How many old pods may go now, healthy or not.

    The new ReplicaSet's unavailable pods are counted out, so that they do not cost old pods beyond maxUnavailable.
    """
    all_pods = get_replica_count_for_replica_sets([*old_rss, new_rs])
    new_unavailable = new_rs.spec.replicas - new_rs.status.available_replicas
    return int32(all_pods - min_available(deployment) - new_unavailable)


def plan_unhealthy_cleanup(old_rss: Sequence[ReplicaSet], max_cleanup: int) -> CleanupPlan:
    """First of all remove pods that are not available anyway, oldest ReplicaSet first (rolling.go:cleanupUnhealthyReplicas).

    Going down, a ReplicaSet removes unavailable pods first; left alone they would block the rollout until its deadline.
    """
    steps: list[Step] = []
    left = max_cleanup
    for rs in by_creation(old_rss):
        size, available = rs.spec.replicas, rs.status.available_replicas
        if left <= 0:
            break
        if size in (0, available):
            continue
        if available > size:
            # Its status lags behind a scale-down: how many of its pods are unavailable is not known.
            return CleanupPlan(steps, cut_short=True)
        surplus = min(left, size - available)
        steps.append((rs, size - surplus))
        left -= surplus
    return CleanupPlan(steps)


def plan_old_scale_down(deployment: Deployment, new_rs: ReplicaSet, old_rss: Sequence[ReplicaSet]) -> list[Step]:
    """Then remove available pods that are not needed, oldest first (rolling.go:scaleDownOldReplicaSetsForRollingUpdate)."""
    available = get_available_replica_count_for_replica_sets([*old_rss, new_rs])
    left = available - min_available(deployment)
    steps: list[Step] = []
    for rs in by_creation(old_rss):
        if left <= 0:
            break
        surplus = min(rs.spec.replicas, left)
        if surplus > 0:
            steps.append((rs, rs.spec.replicas - surplus))
            left -= surplus
    return steps
