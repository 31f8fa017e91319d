"""Sizes, annotations, revisions and order of a Deployment's ReplicaSets."""

from collections.abc import Callable

import pytest

from kcm.api.intstr import IntOrStringError
from kcm.api.types.apps import ReplicaSet
from kcm.controllers.deployment import util
from kcm.controllers.deployment.util import (
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
    REVISION_HISTORY_ANNOTATION,
    SKIPPED_ANNOTATIONS,
)
from tests.unit.fakes import make_deployment, make_replica_set, pod_template

HUGE = 3546343826724305832


def names(replica_sets: list[ReplicaSet]) -> list[str]:
    return [rs.metadata.name for rs in replica_sets]


def with_revision(name: str, value: str | None, *, age: float = 0) -> ReplicaSet:
    return make_replica_set(name, age=age, annotations={} if value is None else {REVISION_ANNOTATION: value})


# Numbers


@pytest.mark.row("D-054")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("0" * 5000 + "1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("9" * 5000, None),
        ("", None),
        ("-", None),
        (" 1", None),
        ("1 ", None),
        ("1\n", None),
        ("1_000", None),
        ("0x1", None),
        ("1.0", None),
        ("٣", None),
    ],
)
def test_integers_are_read_as_go_reads_them(text: str, value: int | None) -> None:
    assert util.parse_int(text) == value
    assert util.revision(with_revision("rs", text)) == value


@pytest.mark.row("D-068")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("13", 13),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("4294967296", None),
        ("-1", None),
        ("-0", None),
        ("+1", None),
        ("", None),
        (" 1", None),
        ("invalid", None),
    ],
)
def test_sizes_in_annotations_have_no_sign_and_fit_into_31_bits(text: str, value: int | None) -> None:
    rs = make_replica_set(annotations={DESIRED_REPLICAS_ANNOTATION: text, "other": "2"})
    assert util.get_desired_replicas_annotation(rs) == value
    assert util.get_non_negative_int32_from_annotation(rs, "missing") is None


def test_sums_and_differences_wrap_as_in_go() -> None:
    assert util.int32(2**31) == -(2**31)
    assert util.int32(-(2**31) - 1) == 2**31 - 1
    assert util.int64(2**63) == -(2**63)
    assert util.max_replicas(make_deployment(replicas=2**31 - 1, max_surge=1)) == -(2**31)


# Bounds


@pytest.mark.row("D-092", "D-093")
@pytest.mark.parametrize(
    ("surge", "unavailable", "desired", "expected"),
    [
        ("0%", "0%", 0, (0, 1)),
        ("39%", "39%", 10, (4, 3)),
        (None, "39%", 10, (0, 3)),
        ("39%", None, 10, (4, 0)),
        (None, None, 10, (0, 1)),
        (0, 0, 10, (0, 1)),
        ("1%", "1%", 1, (1, 0)),
        (3, 2, 10, (3, 2)),
    ],
)
def test_surge_is_rounded_up_and_unavailability_down_and_one_of_them_is_not_zero(
    surge: int | str | None, unavailable: int | str | None, desired: int, expected: tuple[int, int]
) -> None:
    assert util.resolve_fenceposts(surge, unavailable, desired) == expected


@pytest.mark.row("D-092")
@pytest.mark.parametrize(("surge", "unavailable"), [("oops", "39%"), ("55%", "urg"), ("5", 1)])
def test_a_bound_that_is_no_number_or_percentage_is_an_error(surge: str, unavailable: int | str) -> None:
    with pytest.raises(IntOrStringError):
        util.resolve_fenceposts(surge, unavailable, 10)


@pytest.mark.row("D-094", "D-095", "D-096")
@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, 1, 5, (1, 5, 5)),
        (10, 1, 10, (1, 10, 0)),
        (5, 1, 10, (1, 5, 0)),
        (0, 4, 10, (4, 0, 0)),
        (10, 1, "60%", (1, 6, 4)),
        (5, 1, "100%", (1, 5, 0)),
        (5, 99, 1, (99, 1, 4)),
        (5, "oops", 1, (0, 0, 5)),
        (5, 1, "oops", (0, 0, 5)),
        (5, None, None, (0, 1, 4)),
    ],
)
def test_the_bounds_of_a_rolling_update(
    replicas: int, surge: int | str | None, unavailable: int | str | None, expected: tuple[int, int, int]
) -> None:
    deployment = make_deployment(replicas=replicas, max_surge=surge, max_unavailable=unavailable)
    bounds = (util.max_surge(deployment), util.max_unavailable(deployment), util.min_available(deployment))
    assert bounds == expected


@pytest.mark.row("D-094", "D-095", "D-096")
def test_other_strategies_have_no_bounds() -> None:
    deployment = make_deployment(replicas=10, strategy="Recreate")
    assert (util.max_surge(deployment), util.max_unavailable(deployment), util.min_available(deployment)) == (0, 0, 0)


@pytest.mark.row("D-097", "D-098")
@pytest.mark.parametrize(
    ("strategy", "replicas", "surge", "others", "size", "expected"),
    [
        ("RollingUpdate", 1, 1, 5, 5, 5),
        ("RollingUpdate", 6, 10, 5, 2, 6),
        ("RollingUpdate", 10, 2, 10, 0, 2),
        ("RollingUpdate", 10, 2, 5, 0, 7),
        ("RollingUpdate", 10, "25%", 10, 0, 3),
        ("Recreate", 3, 1, 5, 1, 3),
    ],
)
def test_the_new_replica_set_grows_as_far_as_surge_allows(
    *, strategy: str, replicas: int, surge: int | str, others: int, size: int, expected: int
) -> None:
    deployment = make_deployment(replicas=replicas, max_surge=surge, strategy=strategy)
    new_rs, old_rs = make_replica_set("new", replicas=size), make_replica_set("old", replicas=others)
    assert util.new_rs_new_replicas(deployment, [old_rs, new_rs], new_rs) == expected


@pytest.mark.row("D-097", "D-098")
def test_no_size_without_surge_or_with_an_unknown_strategy() -> None:
    rs = make_replica_set(replicas=0)
    with pytest.raises(IntOrStringError):
        util.new_rs_new_replicas(make_deployment(max_surge=None), [rs], rs)
    with pytest.raises(util.UnsupportedStrategyError, match=r"^deployment type Odd isn't supported$"):
        util.new_rs_new_replicas(make_deployment(strategy="Odd"), [rs], rs)


# Proportions


@pytest.mark.row("D-114")
@pytest.mark.parametrize(
    ("replicas", "surge", "in_status", "size", "before", "expected"),
    [
        (0, 0, 0, 10, None, -10),
        (10, 0, 0, 5, None, 0),
        (10, 0, 0, 5, "0", 0),
        (120, 0, 100, 50, None, 10),
        (120, 0, 100, 50, "0", 10),
        (120, 0, 100, 50, "nonsense", 10),
        (120, 0, 0, 50, "100", 10),
        (120, 10, 0, 50, "110", 9),
        (10, 0, 0, 6, "12", -1),
        (100, 10, 0, 50, "130", -8),
    ],
)
def test_a_replica_set_keeps_its_share_of_what_there_was(
    *, replicas: int, surge: int, in_status: int, size: int, before: str | None, expected: int
) -> None:
    deployment = make_deployment(
        replicas=replicas, max_surge=surge, max_unavailable=1, status={"replicas": in_status} if in_status else {}
    )
    rs = make_replica_set(replicas=size, annotations={} if before is None else {MAX_REPLICAS_ANNOTATION: before})
    assert util.get_replica_set_fraction(rs, deployment) == expected


@pytest.mark.row("D-115")
@pytest.mark.parametrize(
    ("size", "replicas", "before", "expected"),
    [
        (1, 5, "2", 2),  # 2.5 becomes 3
        (1, 1, "2", 0),  # 0.5 becomes 1
        (1, 7, "2", 3),  # 3.5 becomes 4
        (3, 5, "6", 0),  # 2.5 becomes 3
        (50000, 50000, "50000", -85899),  # the product is 2500000000 - 2^32 = -1794967296
    ],
)
def test_halves_are_rounded_away_from_zero_and_the_product_wraps(
    size: int, replicas: int, before: str, expected: int
) -> None:
    deployment = make_deployment(replicas=replicas, max_surge=0, max_unavailable=1)
    rs = make_replica_set(replicas=size, annotations={MAX_REPLICAS_ANNOTATION: before})
    assert util.get_replica_set_fraction(rs, deployment) == expected


@pytest.mark.row("D-113")
@pytest.mark.parametrize(
    ("size", "to_add", "added", "expected"),
    [
        (0, 5, 0, 0),
        (5, 0, 0, 0),
        (5, 3, 3, 0),
        (5, 5, 0, 5),
        (5, 5, 3, 2),
        (5, -3, 0, 5),
    ],
)
def test_a_share_is_bounded_by_what_is_left(size: int, to_add: int, added: int, expected: int) -> None:
    """The fraction of 5 of 10 is another 5 when 10 become 20."""
    deployment = make_deployment(replicas=20, max_surge=0, max_unavailable=1)
    rs = make_replica_set(replicas=size, annotations={MAX_REPLICAS_ANNOTATION: "10"})
    assert util.get_replica_set_proportion(rs, deployment, to_add, added) == expected


@pytest.mark.row("D-113")
def test_shrinking_takes_no_more_than_what_is_left() -> None:
    deployment = make_deployment(replicas=5, max_surge=0, max_unavailable=1)
    rs = make_replica_set(replicas=10, annotations={MAX_REPLICAS_ANNOTATION: "10"})
    assert util.get_replica_set_proportion(rs, deployment, -8, 0) == -5
    assert util.get_replica_set_proportion(rs, deployment, -8, -6) == -2


# Counts


def counted(size: int, actual: int, terminating: int | None, observed: int) -> ReplicaSet:
    status = {"replicas": actual, "terminatingReplicas": terminating, "observedGeneration": observed}
    return make_replica_set(replicas=size, status=status)


@pytest.mark.row("D-136")
def test_terminating_pods_are_unknown_as_soon_as_one_replica_set_does_not_tell() -> None:
    one, two = counted(1, 2, 3, 1), counted(2, 3, 1, 0)
    unsynced, silent = counted(3, 0, None, 0), counted(1, 1, None, 1)
    total = util.get_terminating_replica_count_for_replica_sets
    assert total([]) == 0
    assert total([one, two, unsynced]) == 4
    assert total([unsynced]) == 0
    assert total([one, silent]) is None


def test_sizes_and_counts_are_summed() -> None:
    sets = [counted(1, 2, None, 1), counted(2, 3, None, 1)]
    assert util.get_replica_count_for_replica_sets(sets) == 3
    assert util.get_actual_replica_count_for_replica_sets(sets) == 5
    assert util.get_ready_replica_count_for_replica_sets(sets) == 3
    assert util.get_available_replica_count_for_replica_sets(sets) == 3


# Annotations


@pytest.mark.row("D-061", "D-062")
def test_the_deployments_annotations_are_copied_but_for_those_of_its_own() -> None:
    deployment = make_deployment(annotations=dict.fromkeys(SKIPPED_ANNOTATIONS, "own") | {"a": "1", "b": ""})
    before = {"a": "0", "kept": "x", REVISION_ANNOTATION: "1", DESIRED_REPLICAS_ANNOTATION: "3"}
    annotations, changed = util.set_new_replica_set_annotations(deployment, before, 1, exists=True)
    assert changed
    assert annotations == before | {"a": "1", "b": ""}
    assert before["a"] == "0"
    assert util.set_new_replica_set_annotations(deployment, annotations, 1, exists=True) == (annotations, False)


@pytest.mark.row("D-062")
def test_the_annotations_that_are_not_shared() -> None:
    assert {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    } == SKIPPED_ANNOTATIONS


@pytest.mark.row("D-057", "D-067", "D-182")
def test_sizes_are_noted_on_creation_only() -> None:
    deployment = make_deployment(replicas=10, max_surge=3)
    assert util.set_new_replica_set_annotations(deployment, {}, 1, exists=False)[0] == {
        REVISION_ANNOTATION: "1",
        DESIRED_REPLICAS_ANNOTATION: "10",
        MAX_REPLICAS_ANNOTATION: "13",
    }
    assert util.set_new_replica_set_annotations(deployment, {}, 1, exists=True)[0] == {REVISION_ANNOTATION: "1"}


@pytest.mark.row("D-063", "D-065", "D-173")
@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        ({}, 1, {REVISION_ANNOTATION: "1"}),
        ({REVISION_ANNOTATION: "5"}, 3, {REVISION_ANNOTATION: "5"}),
        ({REVISION_ANNOTATION: "3"}, 3, {REVISION_ANNOTATION: "3"}),
        ({REVISION_ANNOTATION: "1"}, 3, {REVISION_ANNOTATION: "3", REVISION_HISTORY_ANNOTATION: "1"}),
        ({REVISION_ANNOTATION: ""}, 3, {REVISION_ANNOTATION: "3", REVISION_HISTORY_ANNOTATION: ""}),
        (
            {REVISION_ANNOTATION: "3", REVISION_HISTORY_ANNOTATION: "1"},
            5,
            {REVISION_ANNOTATION: "5", REVISION_HISTORY_ANNOTATION: "1,3"},
        ),
        (
            {REVISION_ANNOTATION: "3", REVISION_HISTORY_ANNOTATION: ",1,2"},
            5,
            {REVISION_ANNOTATION: "5", REVISION_HISTORY_ANNOTATION: "3"},
        ),
        (
            {REVISION_ANNOTATION: "1"},
            HUGE + 1,
            {REVISION_ANNOTATION: "3546343826724305833", REVISION_HISTORY_ANNOTATION: "1"},
        ),
    ],
)
def test_a_revision_is_only_raised_and_the_former_one_remembered(
    before: dict[str, str], target: int, after: dict[str, str]
) -> None:
    annotations, changed = util.set_new_replica_set_annotations(make_deployment(), before, target, exists=True)
    assert (annotations, changed) == (after, before != after)


@pytest.mark.row("D-064")
def test_an_unreadable_revision_stays_and_hides_other_changes() -> None:
    deployment = make_deployment(annotations={"a": "1"})
    before = {REVISION_ANNOTATION: "first"}
    annotations, changed = util.set_new_replica_set_annotations(deployment, before, 3, exists=True)
    assert annotations == {REVISION_ANNOTATION: "first", "a": "1"}
    assert not changed


@pytest.mark.row("D-066")
def test_the_history_drops_its_oldest_entries_to_stay_within_its_limit() -> None:
    annotations = {REVISION_ANNOTATION: "9"}
    for target in range(10, 21):
        annotations, _ = util.set_new_replica_set_annotations(
            make_deployment(), annotations, target, exists=True, history_limit=5
        )
    assert annotations[REVISION_HISTORY_ANNOTATION] == "18,19"


@pytest.mark.row("D-066")
def test_the_history_stays_where_even_the_new_entry_alone_is_too_long() -> None:
    def history(before: str, revision: str, limit: int) -> str:
        annotations = {REVISION_ANNOTATION: revision, REVISION_HISTORY_ANNOTATION: before}
        after, _ = util.set_new_replica_set_annotations(
            make_deployment(), annotations, 10**6, exists=True, history_limit=limit
        )
        return after[REVISION_HISTORY_ANNOTATION]

    assert history("1,2", "1234", 3) == "1,2"
    assert history("1,2", "1234", 4) == "1234"
    assert history("1,2", "1234", 6) == "2,1234"
    full = ",".join(["123"] * 500)
    assert len(full) == 1999
    assert history(full, "456", 2000) == full[4:] + ",456"


@pytest.mark.row("D-086")
def test_setting_the_revision_of_a_deployment_changes_nothing_else() -> None:
    deployment = make_deployment(annotations={"a": "1", REVISION_ANNOTATION: "2"})
    assert util.set_deployment_revision(deployment, "2") is deployment
    updated = util.set_deployment_revision(deployment, "3")
    assert updated.metadata.annotations == {"a": "1", REVISION_ANNOTATION: "3"}
    assert deployment.metadata.annotations[REVISION_ANNOTATION] == "2"
    assert util.set_deployment_revision(make_deployment(), "").metadata.annotations == {}


@pytest.mark.row("D-158")
@pytest.mark.parametrize(("text", "value"), [("0", 0), ("3", 3), ("-1", -1), ("", None), ("x", None), ("1.5", None)])
def test_a_rollback_request_is_a_number(text: str, value: int | None) -> None:
    assert util.get_rollback_to(make_deployment(annotations={util.ROLLBACK_TO_ANNOTATION: text})) == value
    assert util.get_rollback_to(make_deployment()) is None


# Revisions


@pytest.mark.row("D-054", "D-055", "D-173")
def test_the_highest_revision_skips_unreadable_ones() -> None:
    sets = [with_revision("a", str(HUGE)), with_revision("b", "x"), with_revision("c", ""), with_revision("d", None)]
    assert util.max_revision(sets) == HUGE
    assert util.max_revision(sets[1:]) == 0
    assert util.max_revision([with_revision("a", "-5")]) == 0


@pytest.mark.row("D-160")
@pytest.mark.parametrize(
    ("revisions", "last"),
    [
        ([], 0),
        (["5"], 0),
        (["5", "3", "4"], 4),
        (["5", "5", "1"], 5),
        (["5", "x"], 0),
        (["5", "-3"], 0),
        ([None, "1"], 0),
    ],
)
def test_the_last_revision_is_the_second_highest(revisions: list[str | None], last: int) -> None:
    assert util.last_revision([with_revision(f"rs-{i}", text) for i, text in enumerate(revisions)]) == last


# Finding and sorting


@pytest.mark.row("D-051", "D-053")
def test_the_new_replica_set_is_the_oldest_with_the_template_and_all_others_are_old() -> None:
    deployment = make_deployment()
    older = make_replica_set("old", template=pod_template("web:0"), age=90)
    younger, twin = make_replica_set("b", age=10), make_replica_set("a", age=10)
    rs_list = [younger, older, twin]
    new_rs = util.find_new_replica_set(deployment, rs_list)
    assert new_rs is twin
    assert util.find_old_replica_sets(rs_list, new_rs) == [older, younger]
    assert util.find_new_replica_set(deployment, [older]) is None
    assert util.find_old_replica_sets([younger, older], None) == [older, younger]


@pytest.mark.row("D-099", "D-109")
def test_the_only_active_replica_set_or_the_newest() -> None:
    new_rs, active = make_replica_set("new", replicas=0), make_replica_set("active", replicas=2, age=50)
    idle = make_replica_set("idle", replicas=0, age=60, status={"replicas": 3})
    oldest = make_replica_set("oldest", replicas=0, age=99)
    assert util.find_active_or_latest(new_rs, [idle, active]) is active
    assert util.find_active_or_latest(new_rs, [oldest, idle]) is new_rs
    assert util.find_active_or_latest(None, [oldest, idle]) is idle
    assert util.find_active_or_latest(make_replica_set("new"), [active]) is None
    assert util.find_active_or_latest(None, []) is None


@pytest.mark.row("D-101")
@pytest.mark.parametrize(
    ("size", "desired", "available", "saturated"),
    [
        (10, "10", 10, True),
        (10, "+10", 10, True),
        (10, str(2**32 + 10), 10, True),
        (9, "10", 10, False),
        (10, "9", 10, False),
        (10, "10", 9, False),
        (10, "ten", 10, False),
        (10, None, 10, False),
    ],
)
def test_a_saturated_replica_set_was_meant_to_have_all_pods_and_has_them(
    size: int, desired: str | None, available: int, *, saturated: bool
) -> None:
    annotations = {} if desired is None else {DESIRED_REPLICAS_ANNOTATION: desired}
    rs = make_replica_set(replicas=size, available=available, annotations=annotations)
    assert util.is_saturated(make_deployment(replicas=10), rs) is saturated
    assert not util.is_saturated(make_deployment(replicas=10), None)


@pytest.mark.row("D-112", "R-166")
def test_sorting_by_size_puts_equals_in_order_of_creation() -> None:
    small, old, new = (make_replica_set(n, replicas=r, age=a) for n, r, a in (("s", 1, 9), ("o", 5, 5), ("n", 5, 1)))
    twin = make_replica_set("twin", replicas=5, age=5)
    sets = [new, small, twin, old]
    assert names(util.by_size(sets, newest_first=False)) == ["o", "twin", "n", "s"]
    assert names(util.by_size(sets, newest_first=True)) == ["n", "twin", "o", "s"]


@pytest.mark.row("D-168")
@pytest.mark.parametrize(
    ("revisions", "order"),
    [
        (["1", "2"], "ab"),
        (["2", "1"], "ba"),
        (["1", None], "ba"),
        ([None, "2"], "ab"),
        (["3", "1", "4", "2"], "bdac"),
        (["2", "2"], "ab"),
        (["2", "x"], "ab"),
        (["9", "10"], "ab"),
    ],
)
def test_sorting_by_revision_falls_back_to_creation(revisions: list[str | None], order: str) -> None:
    sets = [with_revision("abcd"[i], text, age=100 - i) for i, text in enumerate(revisions)]
    assert "".join(names(util.by_revision(sets))) == order


def test_a_replica_set_without_creation_time_is_the_oldest() -> None:
    unborn = make_replica_set("z", metadata={"creationTimestamp": None})
    by: Callable[[list[ReplicaSet]], list[ReplicaSet]] = util.by_creation
    assert names(by([make_replica_set("a", age=10**6), unborn])) == ["z", "a"]
