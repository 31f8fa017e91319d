"""Conditions of a Deployment, and whether its rollout is complete, moving or stuck.

Follows the other half of pkg/controller/deployment/util/deployment_util.go. Everything is pure: `now` is an argument.
"""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from kcm.api.types.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSetCondition
from kcm.controllers.deployment.util import MAX_INT32, int32

AVAILABLE = "Available"
PROGRESSING = "Progressing"
REPLICA_FAILURE = "ReplicaFailure"

# Reasons of Progressing
REPLICA_SET_UPDATED = "ReplicaSetUpdated"
FAILED_RS_CREATE = "ReplicaSetCreateError"
NEW_REPLICA_SET = "NewReplicaSetCreated"
FOUND_NEW_RS = "FoundNewReplicaSet"
NEW_RS_AVAILABLE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
PAUSED_DEPLOY = "DeploymentPaused"
RESUMED_DEPLOY = "DeploymentResumed"
# Reasons of Available
MINIMUM_REPLICAS_AVAILABLE = "MinimumReplicasAvailable"
MINIMUM_REPLICAS_UNAVAILABLE = "MinimumReplicasUnavailable"

_DISTANT_PAST = datetime.min.replace(tzinfo=UTC)


def new_deployment_condition(type_: str, status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    """A condition that holds from now on."""
    return DeploymentCondition(
        type=type_, status=status, last_update_time=now, last_transition_time=now, reason=reason, message=message
    )


def get_deployment_condition(status: DeploymentStatus, type_: str) -> DeploymentCondition | None:
    """The first condition of a type, if there is one."""
    return next((condition for condition in status.conditions if condition.type == type_), None)


def set_deployment_condition(status: DeploymentStatus, condition: DeploymentCondition) -> DeploymentStatus:
    """The status with a condition, last; unchanged if it has one of the same type, status and reason.

    The time of the last transition is kept as long as the condition's status stays.
    """
    current = get_deployment_condition(status, condition.type)
    if current is not None and current.status == condition.status:
        if current.reason == condition.reason:
            return status
        condition = replace(condition, last_transition_time=current.last_transition_time)
    others = remove_deployment_condition(status, condition.type).conditions
    return replace(status, conditions=(*others, condition))


def remove_deployment_condition(status: DeploymentStatus, type_: str) -> DeploymentStatus:
    """The status without conditions of a type."""
    return replace(status, conditions=tuple(c for c in status.conditions if c.type != type_))


def replica_set_to_deployment_condition(condition: ReplicaSetCondition) -> DeploymentCondition:
    """A ReplicaSet's condition as one of its Deployment."""
    return DeploymentCondition(
        type=condition.type,
        status=condition.status,
        last_update_time=condition.last_transition_time,
        last_transition_time=condition.last_transition_time,
        reason=condition.reason,
        message=condition.message,
    )


def has_progress_deadline(deployment: Deployment) -> bool:
    """Whether a rollout that does not move is to be reported."""
    return deployment.spec.progress_deadline_seconds not in (None, MAX_INT32)


def deadline(deployment: Deployment, since: DeploymentCondition) -> datetime | None:
    """When the time for progress runs out, counted from a condition's last update; None where no deadline is in force.

    A condition without that time is older than any deadline.
    """
    seconds = deployment.spec.progress_deadline_seconds
    if seconds is None or seconds == MAX_INT32:
        return None
    return (since.last_update_time or _DISTANT_PAST) + timedelta(seconds=seconds)


def deployment_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether all desired pods are of the new template and available, and no others are left."""
    sizes = {status.updated_replicas, status.replicas, status.available_replicas}
    return sizes == {deployment.spec.replicas} and status.observed_generation >= deployment.metadata.generation


def deployment_progressing(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether the new status is nearer to completion than the Deployment's own."""
    before = deployment.status
    return (
        status.updated_replicas > before.updated_replicas
        or int32(status.replicas - status.updated_replicas) < int32(before.replicas - before.updated_replicas)
        or status.ready_replicas > before.ready_replicas
        or status.available_replicas > before.available_replicas
    )


def deployment_timed_out(deployment: Deployment, status: DeploymentStatus, now: datetime) -> bool:
    """Whether the last progress lies longer back than the deadline allows, or was given up already.

    A rollout that was completed does not time out later.
    """
    condition = get_deployment_condition(status, PROGRESSING)
    if condition is None or condition.reason == NEW_RS_AVAILABLE:
        return False
    end = deadline(deployment, condition)
    return end is not None and (condition.reason == TIMED_OUT or end < now)
