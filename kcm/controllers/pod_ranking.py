"""Which pods go first when some must go. Follows pkg/controller/controller_utils.go:ActivePodsWithRanks.

The order is not a consistent one: within one class of age the UID decides and later steps are not asked. What each step
needs is computed once a pod, so that comparing is cheap.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from kcm.api.types.core import DELETION_COST_ANNOTATION, Pod
from kcm.controllers.pdqsort import pdqsort
from kcm.controllers.pod_utils import is_active, is_ready, ready_condition

_PHASE_ORDINAL = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST = re.compile(r"(?:(-)0*([0-9]{1,10})|[1-9][0-9]{0,9}|0)\Z", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """The cost in the pod's annotation; 0 for none or nonsense (helpers.go:GetDeletionCostFromPodAnnotations)."""
    match = _COST.match(annotations.get(DELETION_COST_ANNOTATION, ""))
    if match is None:
        return 0
    cost = -int(match[2]) if match[1] else int(match[0])
    return cost if -(2**31) <= cost < 2**31 else 0


def logarithmic_age(since: datetime, now: datetime) -> int:
    """The age's binary logarithm in whole numbers, counted in nanoseconds; -1 for what is not in the past."""
    nanoseconds = (now - since) // _MICROSECOND * 1000
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


class Candidate:
    """A pod with all that its place in the order depends on; `a < b` means that a goes before b."""

    __slots__ = (
        "assigned",
        "cost",
        "created",
        "created_class",
        "phase",
        "pod",
        "rank",
        "ready",
        "ready_class",
        "ready_since",
        "restarts",
    )

    def __init__(self, pod: Pod, rank: int, now: datetime, *, by_cost: bool = True) -> None:
        self.pod = pod
        self.rank = rank
        self.assigned = bool(pod.spec.node_name)
        self.phase = _PHASE_ORDINAL.get(pod.status.phase, 0)
        self.ready = is_ready(pod)
        self.cost = deletion_cost(pod.metadata.annotations) if by_cost else 0
        condition = ready_condition(pod) if self.ready else None
        self.ready_since = condition.last_transition_time if condition else None
        self.ready_class = logarithmic_age(self.ready_since, now) if self.ready_since else 0
        self.restarts = _restarts(pod)
        self.created = pod.metadata.creation_timestamp
        self.created_class = logarithmic_age(self.created, now) if self.created else 0

    def __lt__(self, other: "Candidate") -> bool:
        if self.assigned != other.assigned:
            return other.assigned
        if self.phase != other.phase:
            return self.phase < other.phase
        if self.ready != other.ready:
            return other.ready
        if self.cost != other.cost:
            return self.cost < other.cost
        if self.rank != other.rank:
            return self.rank > other.rank
        if self.ready and self.ready_since != other.ready_since:
            if self.ready_since is None or other.ready_since is None:
                return self.ready_since is None
            if self.ready_class == other.ready_class:
                return self.pod.metadata.uid < other.pod.metadata.uid
            return self.ready_class < other.ready_class
        if self.restarts != other.restarts:
            return self.restarts > other.restarts
        if self.created != other.created:
            if self.created is None or other.created is None:
                return self.created is None
            if self.created_class == other.created_class:
                return self.pod.metadata.uid < other.pod.metadata.uid
            return self.created_class < other.created_class
        return False


def _restarts(pod: Pod) -> tuple[int, int]:
    regular = max((status.restart_count for status in pod.status.container_statuses), default=0)
    if not pod.status.init_container_statuses:
        return regular, 0
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    return regular, max((s.restart_count for s in pod.status.init_container_statuses if s.name in sidecars), default=0)


def pods_to_delete(
    pods: Sequence[Pod], related: Iterable[Pod], count: int, now: datetime, *, by_cost: bool = True
) -> list[Pod]:
    """Choose the pods that go first (replica_set.go:getPodsToDelete); in the given order if all must go.

    Args:
        pods: The active pods to choose from.
        related: Pods of all ReplicaSets with the same owner; a pod's rank is how many active ones share its node.
        count: How many to choose, at most `len(pods)`.
        now: The instant that ages are measured at.
        by_cost: Whether the deletion cost annotation counts (gate PodDeletionCost).
    """
    if count >= len(pods):
        return list(pods)
    on_node = Counter(pod.spec.node_name for pod in related if is_active(pod))
    candidates = [Candidate(pod, on_node[pod.spec.node_name], now, by_cost=by_cost) for pod in pods]
    pdqsort(candidates)
    return [candidate.pod for candidate in candidates[:count]]


def deletion_age_ratios(pods: Iterable[Pod], chosen: Iterable[Pod], now: datetime) -> list[int]:
    """Age of each ready chosen pod as a whole multiple of the youngest ready pod's age, for the metric.

    Follows replica_set.go:reportSortingDeletionAgeRatioMetric; an age of 0 ms counts as 1.
    """
    births = [pod.metadata.creation_timestamp for pod in pods if is_ready(pod)]
    youngest = max((born for born in births if born is not None), default=None)
    if youngest is None:
        return []
    milliseconds = timedelta(milliseconds=1)
    least = max(1, (now - youngest) // milliseconds)
    return [
        (now - pod.metadata.creation_timestamp) // milliseconds // least
        for pod in chosen
        if pod.metadata.creation_timestamp is not None and is_ready(pod)
    ]
