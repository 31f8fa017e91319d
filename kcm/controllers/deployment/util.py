"""Sizes, annotations, revisions and order of a Deployment's ReplicaSets.

Follows pkg/controller/deployment/util/deployment_util.go. Everything is pure. Numbers are the reference's: sizes are 32-bit and
wrap, revisions are 64-bit, annotations are parsed as Go does, fractions are rounded half away from zero.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from kcm.api.intstr import IntOrStringError, scaled_value
from kcm.api.pod_template import equal_ignore_hash
from kcm.api.types.apps import Deployment, ReplicaSet, RollingUpdateDeployment
from kcm.controllers.pdqsort import pdqsort
from kcm.logs import get_logger

log = get_logger(__name__)

REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
REVISION_HISTORY_ANNOTATION = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS_ANNOTATION = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO_ANNOTATION = "deprecated.deployment.rollback.to"
#: Annotations that Deployment and ReplicaSet do not share.
SKIPPED_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION_ANNOTATION,
        REVISION_HISTORY_ANNOTATION,
        DESIRED_REPLICAS_ANNOTATION,
        MAX_REPLICAS_ANNOTATION,
        ROLLBACK_TO_ANNOTATION,
    }
)
#: Bytes that the list of a ReplicaSet's former revisions may take.
MAX_REVISION_HISTORY_LENGTH = 2000

RECREATE = "Recreate"
ROLLING_UPDATE = "RollingUpdate"

MAX_INT32 = 2**31 - 1
_DISTANT_PAST = datetime.min.replace(tzinfo=UTC)
_INTEGER = re.compile(r"([+-]?)([0-9]+)\Z", re.ASCII)


class UnsupportedStrategyError(ValueError):
    """A strategy type that this version does not know."""


# Numbers


def int32(value: int) -> int:
    """What Go's 32-bit arithmetic makes of a number."""
    return (value + 2**31) % 2**32 - 2**31


def int64(value: int) -> int:
    """What Go's 64-bit arithmetic makes of a number."""
    return (value + 2**63) % 2**64 - 2**63


def parse_int(text: str) -> int | None:
    """A signed 64-bit decimal as strconv.ParseInt reads it; None for anything else, blanks and underscores included."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 19:
        return None
    value = -int(digits) if match[1] == "-" else int(digits)
    return value if -(2**63) <= value < 2**63 else None


def get_non_negative_int32_from_annotation(replica_set: ReplicaSet, key: str) -> int | None:
    """An annotation's number from 0 to 2147483647, written without a sign; None when it is missing or anything else."""
    text = replica_set.metadata.annotations.get(key)
    if text is None:
        return None
    value = parse_int(text)
    if value is None or not 0 <= value <= MAX_INT32 or text[0] in "+-":
        log.info(
            "Could not convert the value with annotation key for the replica set",
            v=2,
            annotationValue=text,
            annotationKey=key,
            replicaSet=replica_set.metadata.key,
        )
        return None
    return value


def get_desired_replicas_annotation(replica_set: ReplicaSet) -> int | None:
    """What its Deployment wanted in all when this ReplicaSet was last scaled."""
    return get_non_negative_int32_from_annotation(replica_set, DESIRED_REPLICAS_ANNOTATION)


# Bounds of a rolling update


def is_rolling_update(deployment: Deployment) -> bool:
    """Whether pods are replaced gradually."""
    return deployment.spec.strategy.type == ROLLING_UPDATE


def resolve_fenceposts(max_surge: int | str | None, max_unavailable: int | str | None, desired: int) -> tuple[int, int]:
    """Both bounds in pods: surge rounded up, unavailability down, and at least one of them above zero.

    Raises:
        IntOrStringError: one of them is no number or percentage.
    """
    surge = scaled_value(0 if max_surge is None else max_surge, desired, round_up=True)
    unavailable = scaled_value(0 if max_unavailable is None else max_unavailable, desired, round_up=False)
    if surge == 0 and unavailable == 0:
        # Rounding down may have left both at zero, and then nothing could ever move.
        unavailable = 1
    return int32(surge), int32(unavailable)


def max_unavailable(deployment: Deployment) -> int:
    """How many pods may be unavailable, at most all; none unless rolling, or where the bounds are unreadable."""
    replicas = deployment.spec.replicas
    return min(_fenceposts(deployment)[1], replicas) if replicas else 0


def min_available(deployment: Deployment) -> int:
    """How many pods a rolling update keeps available."""
    return int32(deployment.spec.replicas - max_unavailable(deployment)) if is_rolling_update(deployment) else 0


def max_surge(deployment: Deployment) -> int:
    """How many pods there may be beyond the desired ones; none unless rolling, or where the bounds are unreadable."""
    return _fenceposts(deployment)[0]


def max_replicas(deployment: Deployment) -> int:
    """How many pods there may be at all."""
    return int32(deployment.spec.replicas + max_surge(deployment))


def _fenceposts(deployment: Deployment) -> tuple[int, int]:
    if not is_rolling_update(deployment):
        return 0, 0
    bounds = deployment.spec.strategy.rolling_update or RollingUpdateDeployment()
    try:
        return resolve_fenceposts(bounds.max_surge, bounds.max_unavailable, deployment.spec.replicas)
    except IntOrStringError:
        return 0, 0


def new_rs_new_replicas(deployment: Deployment, all_rss: Iterable[ReplicaSet], new_rs: ReplicaSet) -> int:
    """How large the new ReplicaSet should be: all at once, or as far as maxSurge allows next to the others.

    Raises:
        IntOrStringError: maxSurge is missing, or no number or percentage.
        UnsupportedStrategyError: neither Recreate nor RollingUpdate.
    """
    replicas, size = deployment.spec.replicas, new_rs.spec.replicas
    if deployment.spec.strategy.type == RECREATE:
        return replicas
    if not is_rolling_update(deployment):
        raise UnsupportedStrategyError(f"deployment type {deployment.spec.strategy.type} isn't supported")
    bounds = deployment.spec.strategy.rolling_update or RollingUpdateDeployment()
    surge = int32(scaled_value(bounds.max_surge, replicas, round_up=True))
    allowed, current = int32(replicas + surge), get_replica_count_for_replica_sets(all_rss)
    if current >= allowed:
        return size
    return int32(size + min(int32(allowed - current), int32(replicas - size)))


# Proportional scaling


def get_replica_set_proportion(replica_set: ReplicaSet, deployment: Deployment, to_add: int, added: int) -> int:
    """This ReplicaSet's share of the pods to add (or, if negative, to remove), within what is left of them."""
    if replica_set.spec.replicas == 0 or to_add in (0, added):
        return 0
    fraction, left = get_replica_set_fraction(replica_set, deployment), int32(to_add - added)
    return min(fraction, left) if to_add > 0 else max(fraction, left)


def get_replica_set_fraction(replica_set: ReplicaSet, deployment: Deployment) -> int:
    """By how much this ReplicaSet should grow to keep its share of the Deployment after a scaling."""
    size = replica_set.spec.replicas
    if deployment.spec.replicas == 0:
        return -size
    before = get_non_negative_int32_from_annotation(replica_set, MAX_REPLICAS_ANNOTATION) or deployment.status.replicas
    if before == 0:
        return 0
    return int32(_round_to_int32(int32(size * max_replicas(deployment)) / before) - size)


def _round_to_int32(value: float) -> int:
    """Half away from zero, in floating point as k8s.io/utils/integer does it."""
    return int(value - 0.5 if value < 0 else value + 0.5)


# Counts


def get_replica_count_for_replica_sets(replica_sets: Iterable[ReplicaSet]) -> int:
    """The pods that they want, summed."""
    return int32(sum(rs.spec.replicas for rs in replica_sets))


def get_actual_replica_count_for_replica_sets(replica_sets: Iterable[ReplicaSet]) -> int:
    """The pods that they have, summed."""
    return int32(sum(rs.status.replicas for rs in replica_sets))


def get_ready_replica_count_for_replica_sets(replica_sets: Iterable[ReplicaSet]) -> int:
    """Their ready pods, summed."""
    return int32(sum(rs.status.ready_replicas for rs in replica_sets))


def get_available_replica_count_for_replica_sets(replica_sets: Iterable[ReplicaSet]) -> int:
    """Their available pods, summed."""
    return int32(sum(rs.status.available_replicas for rs in replica_sets))


def get_terminating_replica_count_for_replica_sets(replica_sets: Iterable[ReplicaSet]) -> int | None:
    """Their terminating pods, summed; unknown as soon as one that was synced before does not tell."""
    total = 0
    for rs in replica_sets:
        if rs.status.terminating_replicas is not None:
            total += rs.status.terminating_replicas
        elif rs.status.observed_generation != 0:
            return None
    return int32(total)


# Annotations


def set_replicas_annotations(annotations: Mapping[str, str], deployment: Deployment) -> dict[str, str]:
    """A ReplicaSet's annotations with the sizes that a proportional scaling will need."""
    return {
        **annotations,
        DESIRED_REPLICAS_ANNOTATION: str(deployment.spec.replicas),
        MAX_REPLICAS_ANNOTATION: str(max_replicas(deployment)),
    }


def set_new_replica_set_annotations(
    deployment: Deployment,
    annotations: Mapping[str, str],
    new_revision: int,
    *,
    exists: bool,
    history_limit: int = MAX_REVISION_HISTORY_LENGTH,
) -> tuple[dict[str, str], bool]:
    """What the new ReplicaSet's annotations become, and whether that counts as a change.

    The Deployment's annotations are copied, but for `SKIPPED_ANNOTATIONS`; the revision is raised, never lowered, and a
    former one is noted in the history. A revision that is no number stays, and nothing counts as changed then.
    """
    copied = {key: value for key, value in deployment.metadata.annotations.items() if key not in SKIPPED_ANNOTATIONS}
    result = {**annotations, **copied}
    former = result.get(REVISION_ANNOTATION)
    number = parse_int(former) if former else 0
    if number is None:
        log.info("Updating replica set revision OldRevision not int", revision=former)
        return result, False
    if number < new_revision:
        if former is not None:
            history = result.get(REVISION_HISTORY_ANNOTATION, "")
            result[REVISION_HISTORY_ANNOTATION] = _append_revision(history, former, history_limit)
        result[REVISION_ANNOTATION] = str(new_revision)
    if not exists:
        result = set_replicas_annotations(result, deployment)
    return result, result != annotations


def _append_revision(history: str, revision: str, limit: int) -> str:
    revisions = history.split(",")
    if not revisions[0]:
        return revision
    length = len(history.encode()) + len(revision) + 1
    dropped = 0
    while length > limit and dropped < len(revisions):
        length -= len(revisions[dropped].encode()) + 1
        dropped += 1
    if length > limit:
        log.info("Not appending revision due to revision history length limit reached", revisionHistoryLimit=limit)
        return history
    return ",".join([*revisions[dropped:], revision])


def set_deployment_revision(deployment: Deployment, value: str) -> Deployment:
    """The Deployment with this revision annotation; the same object if it has it already."""
    annotations = deployment.metadata.annotations
    if annotations.get(REVISION_ANNOTATION, "") == value:
        return deployment
    metadata = replace(deployment.metadata, annotations={**annotations, REVISION_ANNOTATION: value})
    return replace(deployment, metadata=metadata)


def get_rollback_to(deployment: Deployment) -> int | None:
    """The revision that the deprecated annotation asks to go back to, 0 for the last one (rollback.go:getRollbackTo)."""
    return parse_int(deployment.metadata.annotations.get(ROLLBACK_TO_ANNOTATION, ""))


# Revisions


def revision(replica_set: ReplicaSet) -> int | None:
    """A ReplicaSet's revision, 0 without the annotation, None where it is no number."""
    text = replica_set.metadata.annotations.get(REVISION_ANNOTATION)
    return 0 if text is None else parse_int(text)


def max_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """The highest revision; unreadable ones do not count."""
    return max([0, *(revision(rs) or 0 for rs in replica_sets)])


def last_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    """The second highest revision, the highest again if two have it; 0 when there is none."""
    return sorted([0, 0, *(revision(rs) or 0 for rs in replica_sets)])[-2]


# Finding and sorting


def find_new_replica_set(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> ReplicaSet | None:
    """The oldest ReplicaSet with the Deployment's template."""
    candidates = by_creation(replica_sets)
    return next((rs for rs in candidates if equal_ignore_hash(rs, deployment)), None)


def find_old_replica_sets(replica_sets: Iterable[ReplicaSet], new_rs: ReplicaSet | None) -> list[ReplicaSet]:
    """All others, oldest first, even those with the same template."""
    return [rs for rs in by_creation(replica_sets) if new_rs is None or rs.metadata.uid != new_rs.metadata.uid]


def find_active_or_latest(new_rs: ReplicaSet | None, old_rss: Sequence[ReplicaSet]) -> ReplicaSet | None:
    """The only active ReplicaSet or, if none is, the newest; None when several are active or there is none at all."""
    active = filter_active_replica_sets([*old_rss, *([new_rs] if new_rs else [])])
    if len(active) == 1:
        return active[0]
    if active:
        return None
    return new_rs or next(iter(by_creation(old_rss, newest_first=True)), None)


def filter_active_replica_sets(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Those that want pods (controller_utils.go:FilterActiveReplicaSets)."""
    return [rs for rs in replica_sets if rs.spec.replicas > 0]


def is_saturated(deployment: Deployment, replica_set: ReplicaSet | None) -> bool:
    """Whether a ReplicaSet was meant to have all of the Deployment's pods, has them, and all are available."""
    if replica_set is None:
        return False
    desired = parse_int(replica_set.metadata.annotations.get(DESIRED_REPLICAS_ANNOTATION, ""))
    if desired is None:
        return False
    sizes = {replica_set.spec.replicas, int32(desired), replica_set.status.available_replicas}
    return sizes == {deployment.spec.replicas}


def by_creation(replica_sets: Iterable[ReplicaSet], *, newest_first: bool = False) -> list[ReplicaSet]:
    """Sorted by creation, then name (controller_utils.go:ReplicaSetsByCreationTimestamp)."""
    return sorted(replica_sets, key=_created, reverse=newest_first)


def by_size(replica_sets: Iterable[ReplicaSet], *, newest_first: bool) -> list[ReplicaSet]:
    """Largest first, ties by creation (controller_utils.go:ReplicaSetsBySizeOlder, ReplicaSetsBySizeNewer)."""
    return sorted(by_creation(replica_sets, newest_first=newest_first), key=lambda rs: -rs.spec.replicas)


def by_revision(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """Lowest revision first; equal and unreadable ones by creation.

    Unreadable ones among others make this no true order. What comes out then depends on the order given and on the algorithm,
    which is the reference's.
    """
    keys = [_ByRevision(rs) for rs in replica_sets]
    pdqsort(keys)
    return [key.replica_set for key in keys]


@dataclass(frozen=True, slots=True)
class _ByRevision:
    replica_set: ReplicaSet

    def __lt__(self, other: "_ByRevision") -> bool:
        mine, theirs = revision(self.replica_set), revision(other.replica_set)
        if mine is None or theirs is None or mine == theirs:
            return _created(self.replica_set) < _created(other.replica_set)
        return mine < theirs


def _created(replica_set: ReplicaSet) -> tuple[datetime, str]:
    return replica_set.metadata.creation_timestamp or _DISTANT_PAST, replica_set.metadata.name
