"""The demo's StatefulSet, as watches show it: pods start from the lowest ordinal on and are replaced from the highest down."""

from dataclasses import dataclass, field

from kcm.api.types.apps import StatefulSet
from kcm.api.types.core import Pod

REVISION_LABEL = "controller-revision-hash"


def ready(pod: Pod) -> bool:
    """Whether a pod could serve and stays."""
    serves = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
    return serves and pod.metadata.deletion_timestamp is None


def _ordinal(pod: Pod) -> int:
    return int(pod.metadata.name.rpartition("-")[2])


@dataclass
class OrderedRollout:
    """A StatefulSet and its pods, and whatever happened out of order."""

    stateful_set: StatefulSet | None = None
    pods: list[Pod] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether it has what it wants, all of it new."""
        if self.stateful_set is None:
            return False
        spec, status = self.stateful_set.spec, self.stateful_set.status
        observed = status.observed_generation >= self.stateful_set.metadata.generation
        counts = {status.replicas, status.ready_replicas, status.updated_replicas, len(self.pods)}
        return observed and counts == {spec.replicas} and status.current_revision == status.update_revision

    def look(self, stateful_set: StatefulSet | None, pods: list[Pod]) -> None:
        """Take in what is there now, and note each new pod whose turn it was not."""
        self.stateful_set = stateful_set
        self.pods = sorted(pods, key=_ordinal)
        for pod in self.pods:
            if pod.metadata.uid not in self._seen:
                self._seen.add(pod.metadata.uid)
                self._check(pod)

    def _check(self, pod: Pod) -> None:
        if self.stateful_set is None:
            return
        waiting = [other.metadata.name for other in self.pods if _ordinal(other) < _ordinal(pod) and not ready(other)]
        if waiting:
            self.violations.append(f"{pod.metadata.name} came before {', '.join(waiting)} was ready")
        new = pod.metadata.labels.get(REVISION_LABEL)
        stale = [
            other.metadata.name
            for other in self.pods
            if _ordinal(other) > _ordinal(pod)
            and not (ready(other) and other.metadata.labels.get(REVISION_LABEL) == new)
        ]
        if stale:
            self.violations.append(f"{pod.metadata.name} was replaced before {', '.join(stale)}")

    def __str__(self) -> str:
        newest = self.stateful_set.status.update_revision if self.stateful_set else ""
        marks = []
        for pod in self.pods:
            mark = "✓" if ready(pod) else "…"
            marks.append(
                f"{pod.metadata.name} {mark}{'' if pod.metadata.labels.get(REVISION_LABEL) == newest else ' old'}"
            )
        return "  ".join(marks) or "no pod yet"
