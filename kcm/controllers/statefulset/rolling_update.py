"""Which pods a rolling update deletes next. Follows stateful_set_control.go:updateStatefulSetAfterInvariantEstablished.

All of it is pure: slots in, the pods to delete out, in the order in which they are to go. An old pod is one of another
revision than the update revision. The partition counts slots, not ordinals.
"""

from collections.abc import Sequence
from datetime import datetime

from kcm.api.types.core import Pod
from kcm.controllers.pod_utils import is_available
from kcm.controllers.statefulset.stateful_set_utils import is_terminating, is_unavailable, pod_revision


def count_unavailable(replicas: Sequence[Pod], min_ready_seconds: int, now: datetime) -> int:
    """How many slots have no available pod."""
    return sum(is_unavailable(pod, min_ready_seconds, now) for pod in replicas)


def pods_to_update(
    replicas: Sequence[Pod],
    *,
    revision: str,
    partition: int,
    max_unavailable: int,
    parallel: bool,
    min_ready_seconds: int,
    now: datetime,
) -> list[Pod]:
    """The old pods to delete while no more than `max_unavailable` slots are to be unavailable.

    OrderedReady takes the highest ones. Parallel takes all that are unavailable anyway, since keeping them helps nobody, and
    then, as far as the bound allows, the highest of the others.
    """
    budget = max(0, max_unavailable - count_unavailable(replicas, min_ready_seconds, now))
    old = [pod for pod in reversed(replicas[partition:]) if _is_old(pod, revision)]
    if not parallel:
        return old[:budget]
    useless = [pod for pod in old if not is_available(pod, min_ready_seconds, now)]
    useful = [pod for pod in old if is_available(pod, min_ready_seconds, now)]
    return useless + useful[:budget]


def next_pod_to_update(
    replicas: Sequence[Pod], *, revision: str, partition: int, min_ready_seconds: int, now: datetime
) -> list[Pod]:
    """The highest old pod if all above it are available, in a list; this is all there is without MaxUnavailableStatefulSet."""
    for pod in reversed(replicas[partition:]):
        if _is_old(pod, revision):
            return [pod]
        if is_unavailable(pod, min_ready_seconds, now):
            return []
    return []


def _is_old(pod: Pod, revision: str) -> bool:
    """Whether the pod is to be replaced and is not on its way out."""
    return pod_revision(pod) != revision and not is_terminating(pod)
