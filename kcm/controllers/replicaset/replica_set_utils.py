"""What a ReplicaSet's status says. Follows pkg/controller/replicaset/replica_set_utils.go."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kcm.api.types.apps import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from kcm.api.types.core import Pod
from kcm.controllers.pod_utils import is_available, is_ready

REPLICA_FAILURE = "ReplicaFailure"


def get_condition(status: ReplicaSetStatus, type_: str) -> ReplicaSetCondition | None:
    """The condition of a type, if there is one."""
    return next((condition for condition in status.conditions if condition.type == type_), None)


def set_condition(status: ReplicaSetStatus, condition: ReplicaSetCondition) -> ReplicaSetStatus:
    """The status with a condition, last; unchanged if it has one of the same type, status and reason."""
    current = get_condition(status, condition.type)
    if current is not None and (current.status, current.reason) == (condition.status, condition.reason):
        return status
    others = remove_condition(status, condition.type).conditions
    return msgspec.structs.replace(status, conditions=(*others, condition))


def remove_condition(status: ReplicaSetStatus, type_: str) -> ReplicaSetStatus:
    """The status without conditions of a type."""
    return msgspec.structs.replace(status, conditions=tuple(c for c in status.conditions if c.type != type_))


def calculate_status(
    replica_set: ReplicaSet,
    active: Sequence[Pod],
    terminating: int | None,
    failure: Exception | None,
    now: datetime,
) -> ReplicaSetStatus:
    """The status that follows from the pods as they were before this sync acted.

    Args:
        replica_set: As read from the cache.
        active: Its active pods.
        terminating: How many of its pods are being deleted; None where that is not counted.
        failure: Why this sync could not create or delete pods; None also when it did not try.
        now: The instant that availability is measured at.
    """
    wanted = replica_set.spec.template.metadata.labels.items()
    ready = [pod for pod in active if is_ready(pod)]
    status = replica_set.status
    if failure is None:
        status = remove_condition(status, REPLICA_FAILURE)
    elif get_condition(status, REPLICA_FAILURE) is None:
        difference = len(active) - replica_set.spec.replicas
        reason = "FailedCreate" if difference < 0 else "FailedDelete" if difference > 0 else ""
        condition = ReplicaSetCondition(
            type=REPLICA_FAILURE, status="True", last_transition_time=now, reason=reason, message=str(failure)
        )
        status = set_condition(status, condition)
    return msgspec.structs.replace(
        status,
        replicas=len(active),
        fully_labeled_replicas=sum(wanted <= pod.metadata.labels.items() for pod in active),
        ready_replicas=len(ready),
        available_replicas=sum(is_available(pod, replica_set.spec.min_ready_seconds, now) for pod in ready),
        terminating_replicas=terminating,
    )


def needs_update(replica_set: ReplicaSet, status: ReplicaSetStatus) -> bool:
    """Whether the status has to be written: it differs, or the spec's generation moved."""
    observed = msgspec.structs.replace(status, observed_generation=replica_set.status.observed_generation)
    moved = replica_set.metadata.generation != replica_set.status.observed_generation
    return moved or observed != replica_set.status
