"""Facts about pods. Follows pkg/api/v1/pod/util.go and the pod helpers of pkg/controller/controller_utils.go."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kcm.api.types.core import Pod, PodCondition
from kcm.clock import Clock

_ENDED = frozenset({"Succeeded", "Failed"})


def is_active(pod: Pod) -> bool:
    """Whether the pod has not ended and is not being deleted."""
    return pod.status.phase not in _ENDED and pod.metadata.deletion_timestamp is None


def is_terminating(pod: Pod) -> bool:
    """Whether the pod is being deleted but has not ended."""
    return pod.status.phase not in _ENDED and pod.metadata.deletion_timestamp is not None


def ready_condition(pod: Pod) -> PodCondition | None:
    """The pod's first condition of type Ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition
    return None


def is_ready(pod: Pod) -> bool:
    """Whether the Ready condition is True."""
    condition = ready_condition(pod)
    return condition is not None and condition.status == "True"


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod has been ready for at least that long."""
    condition = ready_condition(pod)
    if condition is None or condition.status != "True":
        return False
    if min_ready_seconds == 0:
        return True
    since = condition.last_transition_time
    return since is not None and since + timedelta(seconds=min_ready_seconds) <= now


def next_availability_check(pod: Pod, min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until a ready pod becomes available, or None if it never will by waiting or already is."""
    condition = ready_condition(pod)
    if (
        condition is None
        or condition.status != "True"
        or min_ready_seconds <= 0
        or condition.last_transition_time is None
    ):
        return None
    left = (condition.last_transition_time + timedelta(seconds=min_ready_seconds) - now).total_seconds()
    return left if left > 0 else None


def min_next_availability_check(
    pods: Iterable[Pod], min_ready_seconds: int, evaluated: datetime, clock: Clock
) -> float | None:
    """Seconds from now until the next pod becomes available, as seen at the instant of the last status.

    0 if that moment has passed since; None if no pod will (controller_utils.go:FindMinNextPodAvailabilityCheck).
    """
    soonest: tuple[float, Pod] | None = None
    for pod in pods:
        left = next_availability_check(pod, min_ready_seconds, evaluated)
        if left is not None and (soonest is None or left < soonest[0]):
            soonest = left, pod
    if soonest is None:
        return None
    return next_availability_check(soonest[1], min_ready_seconds, clock.now()) or 0.0
