"""What a sync decides before it writes: status, scaling, clean-up, the new ReplicaSet's body.

Follows the pure half of pkg/controller/deployment/sync.go.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from kcm.api.pod_template import POD_TEMPLATE_HASH, template_document, with_hash_label
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from kcm.api.types.meta import Document, controller_reference
from kcm.controllers.deployment.conditions import (
    AVAILABLE,
    MINIMUM_REPLICAS_AVAILABLE,
    MINIMUM_REPLICAS_UNAVAILABLE,
    PAUSED_DEPLOY,
    PROGRESSING,
    RESUMED_DEPLOY,
    TIMED_OUT,
    get_deployment_condition,
    has_progress_deadline,
    new_deployment_condition,
    set_deployment_condition,
)
from kcm.controllers.deployment.util import (
    MAX_INT32,
    by_creation,
    by_revision,
    by_size,
    filter_active_replica_sets,
    find_active_or_latest,
    get_actual_replica_count_for_replica_sets,
    get_available_replica_count_for_replica_sets,
    get_desired_replicas_annotation,
    get_ready_replica_count_for_replica_sets,
    get_replica_count_for_replica_sets,
    get_replica_set_proportion,
    get_terminating_replica_count_for_replica_sets,
    int32,
    is_rolling_update,
    is_saturated,
    max_replicas,
    max_unavailable,
    set_new_replica_set_annotations,
)

#: The longest name that a ReplicaSet may have.
MAX_NAME_LENGTH = 253

#: A ReplicaSet and the size that it shall get.
Step = tuple[ReplicaSet, int]


class ScalePlan(NamedTuple):
    """Sizes to write, in this order."""

    steps: list[Step]
    #: Whether outdated annotations are written even where the size stays.
    force: bool = False


def calculate_status(
    deployment: Deployment,
    all_rss: Sequence[ReplicaSet],
    new_rs: ReplicaSet | None,
    *,
    now: datetime,
    terminating_replicas: bool,
) -> DeploymentStatus:
    """The counters and Available as they follow from the ReplicaSets; other conditions as they are stored.

    Args:
        deployment: The working copy.
        all_rss: The old ReplicaSets and the new one, as they were read at the start of the sync.
        new_rs: The new ReplicaSet, if there is one.
        now: The time that a changed condition gets.
        terminating_replicas: Whether terminating pods are counted.
    """
    available = get_available_replica_count_for_replica_sets(all_rss)
    status = DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=get_actual_replica_count_for_replica_sets(all_rss),
        updated_replicas=new_rs.status.replicas if new_rs is not None else 0,
        ready_replicas=get_ready_replica_count_for_replica_sets(all_rss),
        available_replicas=available,
        unavailable_replicas=max(0, int32(get_replica_count_for_replica_sets(all_rss) - available)),
        terminating_replicas=get_terminating_replica_count_for_replica_sets(all_rss) if terminating_replicas else None,
        collision_count=deployment.status.collision_count,
        conditions=deployment.status.conditions,
    )
    if available >= int32(deployment.spec.replicas - max_unavailable(deployment)):
        condition = new_deployment_condition(
            AVAILABLE, "True", MINIMUM_REPLICAS_AVAILABLE, "Deployment has minimum availability.", now
        )
    else:
        condition = new_deployment_condition(
            AVAILABLE, "False", MINIMUM_REPLICAS_UNAVAILABLE, "Deployment does not have minimum availability.", now
        )
    return set_deployment_condition(status, condition)


def paused_condition(deployment: Deployment, now: datetime) -> DeploymentCondition | None:
    """The Progressing condition that marks a pause or its end, if it is not there yet (sync.go:checkPausedConditions).

    It starts the deadline anew, so that the time of a pause does not count; a deadline that has passed is not hidden by it.
    """
    if not has_progress_deadline(deployment):
        return None
    current = get_deployment_condition(deployment.status, PROGRESSING)
    reason = current.reason if current is not None else ""
    paused = deployment.spec.paused
    if reason == TIMED_OUT or paused == (reason == PAUSED_DEPLOY):
        return None
    if paused:
        return new_deployment_condition(PROGRESSING, "Unknown", PAUSED_DEPLOY, "Deployment is paused", now)
    return new_deployment_condition(PROGRESSING, "Unknown", RESUMED_DEPLOY, "Deployment is resumed", now)


def is_scaling(deployment: Deployment, all_rss: Iterable[ReplicaSet]) -> bool:
    """Whether an active ReplicaSet was last scaled for another size of the Deployment (sync.go:isScalingEvent)."""
    return any(
        get_desired_replicas_annotation(rs) not in (None, deployment.spec.replicas)
        for rs in filter_active_replica_sets(all_rss)
    )


def plan_scale(deployment: Deployment, new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> ScalePlan:
    """How a scaled or paused Deployment gets its size (sync.go:scale).

    A single ReplicaSet takes all. Once the new one has all pods available, old ones are scaled to nothing. In the middle
    of a rolling update, all grow or shrink in proportion, so that a broken template gets no larger share.
    """
    only = find_active_or_latest(new_rs, old_rss)
    if only is not None:
        return ScalePlan([(only, deployment.spec.replicas)])
    newest_first = by_creation(old_rss, newest_first=True)
    if is_saturated(deployment, new_rs):
        return ScalePlan([(rs, 0) for rs in filter_active_replica_sets(newest_first)])
    if is_rolling_update(deployment):
        active = filter_active_replica_sets([*newest_first, *([new_rs] if new_rs is not None else [])])
        return ScalePlan(plan_proportional_scaling(deployment, active), force=True)
    return ScalePlan([])


def plan_proportional_scaling(deployment: Deployment, active: Sequence[ReplicaSet]) -> list[Step]:
    """The sizes of several active ReplicaSets after a scaling, in the order in which they are written.

    Larger ones come first; of equals the newer when growing, the older when shrinking. The first gets what rounding leaves.
    """
    allowed = max_replicas(deployment) if deployment.spec.replicas > 0 else 0
    to_add = int32(allowed - get_replica_count_for_replica_sets(active))
    if to_add == 0:
        return [(rs, rs.spec.replicas) for rs in active]
    added = 0
    steps: list[Step] = []
    for rs in by_size(active, newest_first=to_add > 0):
        proportion = get_replica_set_proportion(rs, deployment, to_add, added)
        steps.append((rs, int32(rs.spec.replicas + proportion)))
        added = int32(added + proportion)
    if steps:
        first, size = steps[0]
        steps[0] = (first, max(0, int32(size + to_add - added)))
    return steps


def plan_cleanup(deployment: Deployment, old_rss: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """The old ReplicaSets to delete: of those beyond the limit, lowest revisions first, the ones without any pods."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == MAX_INT32:
        return []
    alive = [rs for rs in old_rss if rs.metadata.deletion_timestamp is None]
    surplus = len(alive) - limit
    return [rs for rs in by_revision(alive)[: max(0, surplus)] if _is_settled_at_zero(rs)]


def _is_settled_at_zero(rs: ReplicaSet) -> bool:
    no_pods = rs.spec.replicas == 0 and rs.status.replicas == 0
    return no_pods and rs.metadata.generation <= rs.status.observed_generation


def generate_replica_set_name(deployment_name: str, pod_template_hash: str) -> str:
    """`<deployment>-<hash>`, the Deployment's part cut where that is longer than a name may be."""
    room = MAX_NAME_LENGTH - 1 - len(pod_template_hash)
    return f"{deployment_name[:room] if room > 0 else deployment_name}-{pod_template_hash}"


def new_replica_set_document(
    deployment: Deployment, name: str, pod_template_hash: str, *, size: int, revision: int
) -> Document:
    """The body that creates a new ReplicaSet: the Deployment's template and selector as they are, plus the hash label."""
    meta = deployment.metadata
    template = with_hash_label(template_document(deployment), pod_template_hash)
    selector: Document = deployment.document()["spec"].get("selector") or {}
    match_labels = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: pod_template_hash}
    annotations, _ = set_new_replica_set_annotations(deployment, {}, revision, exists=False)
    spec: Document = {
        "replicas": size,
        "selector": {**selector, "matchLabels": match_labels},
        "template": template,
    }
    if deployment.spec.min_ready_seconds:
        spec["minReadySeconds"] = deployment.spec.min_ready_seconds
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(DEPLOYMENTS.api_version, DEPLOYMENTS.kind, meta)],
        },
        "spec": spec,
    }
