"""The arithmetic of rollouts and the comparison of templates, for any input."""

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcm.api.pod_template import normal_form
from kcm.api.types.meta import Document
from kcm.controllers.deployment import util
from kcm.controllers.deployment.decisions import plan_cleanup, plan_proportional_scaling
from kcm.controllers.deployment.rolling import max_scaled_down, plan_old_scale_down, plan_unhealthy_cleanup
from kcm.controllers.deployment.util import MAX_REPLICAS_ANNOTATION, REVISION_ANNOTATION, REVISION_HISTORY_ANNOTATION
from tests.unit.fakes import make_deployment, make_replica_set, pod_template

small = st.integers(0, 30)
bounds = st.one_of(small, st.integers(0, 200).map(lambda percent: f"{percent}%"))
#: Wanted and available pods of a ReplicaSet.
pods = small.flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size)))


@pytest.mark.row("D-092", "D-093")
@given(surge=bounds, unavailable=bounds, desired=st.integers(0, 10**6))
def test_bounds_are_rounded_in_favour_of_the_rollout(surge: int | str, unavailable: int | str, desired: int) -> None:
    def exact(bound: int | str) -> Fraction:
        return Fraction(bound) if isinstance(bound, int) else Fraction(int(bound[:-1]) * desired, 100)

    up, down = util.resolve_fenceposts(surge, unavailable, desired)
    assert up - 1 < exact(surge) <= up
    assert (up, down) == (0, 1) or down <= exact(unavailable) < down + 1
    assert up + down > 0


@pytest.mark.row("D-113", "D-116")
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    replicas=st.integers(0, 300),
    surge=small,
    before=st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=6, max_size=6),
)
def test_a_proportional_scaling_hands_out_exactly_what_there_is(
    sizes: list[int], replicas: int, surge: int, before: list[int | None]
) -> None:
    sets = [
        make_replica_set(
            f"rs-{i}", replicas=size, annotations={} if most is None else {MAX_REPLICAS_ANNOTATION: str(most)}
        )
        for i, (size, most) in enumerate(zip(sizes, before, strict=False))
    ]
    deployment = make_deployment(replicas=replicas, max_surge=surge, max_unavailable=1, status={"replicas": sum(sizes)})
    allowed = replicas + surge if replicas else 0
    steps = plan_proportional_scaling(deployment, sets)
    assert sorted(rs.metadata.name for rs, _ in steps) == sorted(rs.metadata.name for rs in sets)
    assert all(size >= 0 for _, size in steps)
    total = sum(size for _, size in steps)
    assert total == allowed or (total > allowed and steps[0][1] == 0)


@pytest.mark.row("D-122", "D-123", "D-124")
@given(replicas=small, surge=bounds, unavailable=bounds, new=pods, old=st.lists(pods, max_size=4))
def test_what_is_scaled_down_never_leaves_too_few(
    replicas: int, surge: int | str, unavailable: int | str, new: tuple[int, int], old: list[tuple[int, int]]
) -> None:
    """Available pods stay above the minimum if they were, whatever becomes of the unavailable ones."""
    deployment = make_deployment(replicas=replicas, max_surge=surge, max_unavailable=unavailable)
    new_rs = make_replica_set("new", replicas=new[0], available=new[1])
    old_rss = [make_replica_set(f"old-{i}", replicas=size, available=n, age=9 - i) for i, (size, n) in enumerate(old)]
    minimum = util.min_available(deployment)
    limit = max_scaled_down(deployment, new_rs, old_rss)
    cleanup = plan_unhealthy_cleanup(old_rss, limit)
    assert not cleanup.cut_short
    assert sum(rs.spec.replicas - size for rs, size in cleanup.steps) <= max(0, limit)
    left = {rs.metadata.name: min(rs.status.available_replicas, size) for rs, size in cleanup.steps}
    assert all(left[rs.metadata.name] == rs.status.available_replicas for rs, _ in cleanup.steps)
    available = {rs.metadata.name: rs.status.available_replicas for rs in old_rss}
    for rs, size in plan_old_scale_down(deployment, new_rs, old_rss):
        assert 0 <= size < rs.spec.replicas
        available[rs.metadata.name] = min(available[rs.metadata.name], size)
    before = sum(rs.status.available_replicas for rs in old_rss) + new[1]
    assert sum(available.values()) + new[1] >= min(minimum, before)


@given(revisions=st.lists(st.one_of(st.integers(-3, 9).map(str), st.none(), st.just("x")), max_size=8), limit=small)
def test_cleaning_takes_the_first_by_revision(revisions: list[str | None], limit: int) -> None:
    sets = [
        make_replica_set(f"rs-{i}", replicas=0, age=9 - i, annotations={} if r is None else {REVISION_ANNOTATION: r})
        for i, r in enumerate(revisions)
    ]
    chosen = plan_cleanup(make_deployment(history=limit), sets)
    assert len(chosen) == max(0, len(sets) - limit)
    assert chosen == util.by_revision(sets)[: len(chosen)]


@pytest.mark.row("D-054")
@given(st.integers())
def test_integers_beyond_64_bits_are_none(value: int) -> None:
    assert util.parse_int(str(value)) == (value if -(2**63) <= value < 2**63 else None)


@given(st.text(alphabet="0123456789+-_ \n١", max_size=6))
def test_no_text_but_a_plain_integer_is_read(text: str) -> None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    assert (util.parse_int(text) is not None) == (digits.isascii() and digits.isdigit())


@pytest.mark.row("D-065", "D-066")
@given(
    revisions=st.lists(st.integers(1, 10**6), min_size=1, max_size=30, unique=True).map(sorted),
    limit=st.integers(1, 60),
)
def test_the_history_is_the_longest_tail_that_fits(revisions: list[int], limit: int) -> None:
    annotations: dict[str, str] = {REVISION_ANNOTATION: "0"}
    for number in revisions:
        annotations, changed = util.set_new_replica_set_annotations(
            make_deployment(), annotations, number, exists=True, history_limit=limit
        )
        assert changed
    everything = ",".join(str(number) for number in [0, *revisions[:-1]])
    history = annotations[REVISION_HISTORY_ANNOTATION]
    assert everything.endswith(history) or len(history) <= limit
    assert len(history) <= max(limit, 1)


amounts = st.tuples(
    st.integers(0, 10**6), st.sampled_from([("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6)])
)


@pytest.mark.row("D-052")
@given(one=amounts, other=amounts)
def test_quantities_are_equal_if_their_values_are(
    one: tuple[int, tuple[str, int]], other: tuple[int, tuple[str, int]]
) -> None:
    def template(amount: tuple[int, tuple[str, int]]) -> bytes:
        limits = {"cpu": f"{amount[0]}{amount[1][0]}"}
        return normal_form({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}})

    same = Fraction(one[0]) * Fraction(10) ** one[1][1] == Fraction(other[0]) * Fraction(10) ** other[1][1]
    assert (template(one) == template(other)) is same


nothing: st.SearchStrategy[tuple[str, str, Any]] = st.sampled_from(
    [
        ("spec", "nodeSelector", {}),
        ("spec", "tolerations", []),
        ("spec", "overhead", {}),
        ("spec", "hostname", None),
        ("metadata", "annotations", {}),
        ("metadata", "finalizers", []),
        ("metadata", "creationTimestamp", None),
    ]
)


@pytest.mark.row("D-052")
@given(st.lists(nothing), st.randoms())
def test_fields_that_say_nothing_and_the_order_of_fields_do_not_count(
    additions: list[tuple[str, str, Any]], random: Any
) -> None:
    template = copy.deepcopy(pod_template())
    for part, name, value in additions:
        template[part][name] = value

    def shuffled(fields: Document) -> Document:
        items = list(fields.items())
        random.shuffle(items)
        return {name: shuffled(value) if isinstance(value, dict) else value for name, value in items}

    assert normal_form(shuffled(template)) == normal_form(pod_template())
