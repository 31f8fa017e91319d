"""Ending all old pods before any new one starts. Follows pkg/controller/deployment/recreate.go."""

from collections.abc import Mapping, Sequence

from kcm.api.types.apps import ReplicaSet
from kcm.api.types.core import Pod
from kcm.controllers.deployment.conditions import deployment_complete
from kcm.controllers.deployment.progress import sync_rollout_status
from kcm.controllers.deployment.sync import DeploymentSync
from kcm.controllers.deployment.util import filter_active_replica_sets, get_actual_replica_count_for_replica_sets

#: Pods by the uid of the ReplicaSet that controls them.
PodMap = Mapping[str, Sequence[Pod]]


async def rollout_recreate(sync: DeploymentSync, rs_list: Sequence[ReplicaSet], pods: PodMap) -> None:
    """Take one step: old ReplicaSets to nothing; when their pods have ended, the new one to its full size."""
    existing, old_rss = await sync.get_all_replica_sets_and_sync_revision(rs_list)
    active = filter_active_replica_sets(old_rss)
    for replica_set in active:
        await sync.scale_replica_set(replica_set, 0)
    if active or old_pods_running(existing, old_rss, pods):
        await sync_rollout_status(sync, existing, old_rss)
        return

    new_rs = existing
    if new_rs is None:
        new_rs, old_rss = await sync.get_or_create_new_replica_set(rs_list)
    await sync.scale_replica_set(new_rs, sync.deployment.spec.replicas)
    if deployment_complete(sync.deployment, sync.deployment.status):
        await sync.cleanup_deployment(old_rss)
    await sync_rollout_status(sync, new_rs, old_rss)


def old_pods_running(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet], pods: PodMap) -> bool:
    """Whether a pod that is not the new ReplicaSet's may still run: by an old one's status, or as seen in the cache.

    A pod that is being deleted runs until it is gone; one whose state is unknown may run.
    """
    if get_actual_replica_count_for_replica_sets(old_rss) > 0:
        return True
    new_uid = new_rs.metadata.uid if new_rs is not None else None
    return any(
        pod.status.phase not in {"Failed", "Succeeded"}
        for uid, owned in pods.items()
        if uid != new_uid
        for pod in owned
    )
