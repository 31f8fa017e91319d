"""What a StatefulSet's status says. Follows the status parts of pkg/controller/statefulset/stateful_set_{control,utils}.go."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from kcm.api.types.apps import StatefulSet, StatefulSetCondition, StatefulSetStatus
from kcm.api.types.core import Pod
from kcm.controllers.pod_utils import is_available
from kcm.controllers.statefulset.stateful_set_utils import (
    RECREATE,
    is_created,
    is_running_and_ready,
    is_terminating,
    pod_revision,
)

PROGRESSING = "Progressing"
RECREATE_IN_PROGRESS, RECREATE_COMPLETED = "RecreateInProgress", "RecreateCompleted"


def count_replicas(
    status: StatefulSetStatus, pods: Iterable[Pod], min_ready_seconds: int, now: datetime
) -> StatefulSetStatus:
    """The status with counters of these pods as they were before the sync acted; it already names both revisions."""
    replicas = ready = available = current = updated = 0
    for pod in pods:
        created = is_created(pod)
        replicas += created
        if is_running_and_ready(pod):
            ready += 1
            available += is_available(pod, min_ready_seconds, now)
        if created and not is_terminating(pod):
            revision = pod_revision(pod)
            current += revision == status.current_revision
            updated += revision == status.update_revision
    return msgspec.structs.replace(
        status,
        replicas=replicas,
        ready_replicas=ready,
        available_replicas=available,
        current_replicas=current,
        updated_replicas=updated,
    )


def complete_update(
    stateful_set: StatefulSet, status: StatefulSetStatus, now: datetime, *, recreate: bool
) -> StatefulSetStatus:
    """The status with the update revision as the current one if all pods are ready and of that revision.

    Args:
        stateful_set: Whose status it is.
        status: As counted.
        now: When a condition changes that does.
        recreate: Whether the strategy Recreate is known (gate StatefulSetRecreateStrategy).
    """
    counters = {status.updated_replicas, status.ready_replicas, status.replicas}
    if counters != {stateful_set.spec.replicas}:
        return status
    status = msgspec.structs.replace(
        status, current_replicas=status.updated_replicas, current_revision=status.update_revision
    )
    progressing = any(condition.type == PROGRESSING for condition in status.conditions)
    if recreate and progressing and stateful_set.spec.update_strategy.type == RECREATE:
        return set_progressing(status, "False", RECREATE_COMPLETED, "All pods recreated successfully", now)
    return status


def inconsistent_status(stateful_set: StatefulSet, status: StatefulSetStatus) -> bool:
    """Whether a status has to be written: it has seen a newer generation, or differs in more than collisions."""
    stored = stateful_set.status
    alike = msgspec.structs.replace(
        status, observed_generation=stored.observed_generation, collision_count=stored.collision_count
    )
    return status.observed_generation > stored.observed_generation or alike != stored


def set_progressing(
    status: StatefulSetStatus, value: str, reason: str, message: str, now: datetime
) -> StatefulSetStatus:
    """The status with a condition Progressing; the time of the last transition stays while the value does."""
    known = next((condition for condition in status.conditions if condition.type == PROGRESSING), None)
    if known is None:
        condition = StatefulSetCondition(
            type=PROGRESSING, status=value, last_transition_time=now, reason=reason, message=message
        )
        return msgspec.structs.replace(status, conditions=(*status.conditions, condition))
    if (known.status, known.reason, known.message) == (value, reason, message):
        return status
    since = known.last_transition_time if known.status == value else now
    changed = msgspec.structs.replace(known, status=value, reason=reason, message=message, last_transition_time=since)
    conditions = tuple(changed if condition is known else condition for condition in status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)
