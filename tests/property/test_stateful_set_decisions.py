"""Slots, rolling updates and owners of claims, for any pods."""

from hypothesis import given
from hypothesis import strategies as st

from kcm.api.resources import PODS, STATEFUL_SETS
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document
from kcm.controllers.statefulset.claim_owners import (
    has_unexpected_controller,
    is_claim_owner_up_to_date,
    is_stale_claim,
    updated_owners,
    wanted_owners,
)
from kcm.controllers.statefulset.rolling_update import count_unavailable, next_pod_to_update, pods_to_update
from kcm.controllers.statefulset.stateful_set_utils import (
    assign_slots,
    identity_matches,
    is_created,
    is_unavailable,
    ordinal_of,
    parent_and_ordinal,
    pod_revision,
    repaired_pod,
    storage_matches,
    unborn_pod,
)
from tests.clocks import START
from tests.unit.stateful_set_world import (
    R1,
    R2,
    make_claim,
    make_stateful_pod,
    make_stateful_set,
    reference_to_pod,
    reference_to_set,
)

ordinals = st.integers(min_value=0, max_value=9)
any_pods = st.builds(
    make_stateful_pod,
    ordinals,
    revision=st.sampled_from([R1, R2]),
    ready=st.booleans(),
    deleted=st.booleans(),
    phase=st.sampled_from(["Running", "Pending", "Failed"]),
)


@given(st.text(alphabet="ab-01٣\n", max_size=8), st.integers(min_value=0, max_value=2**31 - 1))
def test_a_name_made_of_a_set_and_an_ordinal_gives_both_back(name: str, ordinal: int) -> None:
    if "\n" not in name:
        assert parent_and_ordinal(f"{name}-{ordinal}") == (name, ordinal)
    assert parent_and_ordinal(name)[1] < 2**31


@given(
    st.lists(any_pods, unique_by=lambda pod: pod.metadata.name),
    st.integers(min_value=0, max_value=5),
    st.integers(min_value=0, max_value=5),
)
def test_every_pod_has_one_place(pods: list[Pod], start: int, replicas: int) -> None:
    stateful_set = make_stateful_set(start=start, replicas=replicas)
    template = stateful_set.spec.template
    slots = assign_slots(stateful_set, pods, lambda ordinal: unborn_pod(stateful_set, template, R2, ordinal))
    assert [ordinal_of(pod) for pod in slots.replicas] == list(range(start, start + replicas))
    placed = [pod for pod in (*slots.replicas, *slots.condemned) if is_created(pod)]
    assert sorted(map(id, placed)) == sorted(map(id, pods))
    condemned = [ordinal_of(pod) for pod in slots.condemned]
    assert condemned == sorted(condemned, reverse=True)
    first = slots.first_unavailable(0, START)
    broken = [pod for pod in placed if is_unavailable(pod, 0, START)]
    assert (first is None) == (not broken and len(placed) == replicas + len(condemned))


@given(
    st.lists(any_pods, min_size=1, max_size=8),
    st.integers(min_value=0, max_value=9),
    st.integers(min_value=1, max_value=9),
    st.booleans(),
)
def test_an_update_keeps_its_bounds(replicas: list[Pod], partition: int, most: int, parallel: bool) -> None:
    unavailable = count_unavailable(replicas, 0, START)
    chosen = pods_to_update(
        replicas,
        revision=R2,
        partition=partition,
        max_unavailable=most,
        parallel=parallel,
        min_ready_seconds=0,
        now=START,
    )
    places = [next(index for index, pod in enumerate(replicas) if pod is one) for one in chosen]
    assert len(set(map(id, chosen))) == len(chosen)
    for one, place in zip(chosen, places, strict=True):
        assert pod_revision(one) == R1
        assert one.metadata.deletion_timestamp is None
        assert place >= partition
    good = [place for place, one in zip(places, chosen, strict=True) if not is_unavailable(one, 0, START)]
    assert good == sorted(good, reverse=True), "the highest goes first"
    assert not good or unavailable + len(good) <= most
    if not parallel:
        assert len(chosen) <= max(0, most - unavailable)
        assert places == sorted(places, reverse=True)
    else:
        useless = [one for one in chosen if is_unavailable(one, 0, START)]
        assert chosen[: len(useless)] == useless, "what is unavailable anyway goes first"


@given(st.lists(any_pods, max_size=8), st.integers(min_value=0, max_value=9))
def test_without_the_gate_one_pod_goes_when_all_above_it_are_new_and_available(
    replicas: list[Pod], partition: int
) -> None:
    chosen = next_pod_to_update(replicas, revision=R2, partition=partition, min_ready_seconds=0, now=START)
    done = [pod_revision(pod) == R2 and not is_unavailable(pod, 0, START) for pod in replicas]
    reach = len(replicas) - 1
    while reach >= partition and done[reach]:
        reach -= 1
    may_go = reach >= partition and pod_revision(replicas[reach]) == R1
    may_go = may_go and replicas[reach].metadata.deletion_timestamp is None
    assert [id(pod) for pod in chosen] == ([id(replicas[reach])] if may_go else [])


references = st.lists(
    st.one_of(
        st.builds(
            reference_to_set, st.sampled_from(["uid-web", "old"]), controller=st.sampled_from([True, False, None])
        ),
        st.builds(
            reference_to_pod,
            st.sampled_from(["web-0", "web-5", "web-9"]),
            st.sampled_from([None, "old"]),
            controller=st.sampled_from([True, False, None]),
        ),
        st.just({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}),
        st.just({"apiVersion": "v1", "kind": "ConfigMap", "name": "d", "uid": "uid-d", "controller": True}),
    ),
    max_size=4,
    unique_by=lambda reference: (reference["kind"], reference["name"]),
)


@given(
    references, st.sampled_from(["Retain", "Delete"]), st.sampled_from(["Retain", "Delete"]), st.sampled_from([0, 5])
)
def test_corrected_owners_are_right(owners: list[Document], scaled: str, deleted: str, ordinal: int) -> None:
    stateful_set = make_stateful_set(retention=(scaled, deleted))
    pod = make_stateful_pod(ordinal)
    claim = make_claim("data-web-0", *owners)
    if is_claim_owner_up_to_date(claim, stateful_set, pod):
        return
    corrected = updated_owners(claim, stateful_set, pod)
    after = make_claim("data-web-0")
    after = type(after)(metadata=type(after.metadata)(name="data-web-0", owner_references=tuple(corrected)))
    assert is_claim_owner_up_to_date(after, stateful_set, pod)
    ours = {"uid-web", pod.metadata.uid}
    others = [reference for reference in claim.metadata.owner_references if reference.uid not in ours]
    named = {("StatefulSet", "web"), ("Pod", pod.metadata.name)}
    kept = [reference for reference in others if (reference.kind, reference.name) not in named]
    assert [reference for reference in corrected if reference.uid not in ours] == kept
    if not has_unexpected_controller(claim, stateful_set, pod):
        wanted = [
            uid
            for uid, wants in zip(("uid-web", pod.metadata.uid), wanted_owners(stateful_set, pod), strict=True)
            if wants
        ]
        assert [reference.uid for reference in corrected if reference.uid in ours] == wanted
    stale = is_stale_claim(claim, STATEFUL_SETS, stateful_set) or is_stale_claim(claim, PODS, pod)
    assert not stale, "those are left alone"


@given(
    st.sampled_from(["web-0", "web-07", "web-007"]),
    st.dictionaries(st.sampled_from(["app", "statefulset.kubernetes.io/pod-name"]), st.sampled_from(["web", "web-7"])),
    st.lists(st.sampled_from(["data", "logs", "x"]), unique=True, max_size=3).map(tuple),
    st.lists(st.sampled_from(["data", "logs"]), unique=True, max_size=2).map(tuple),
)
def test_a_repaired_pod_needs_no_repair(
    name: str, labels: dict[str, str], volumes: tuple[str, ...], claims: tuple[str, ...]
) -> None:
    stateful_set = make_stateful_set(claims=claims)
    pod = make_stateful_pod(name=name, labels=labels, claims=volumes)
    repaired = repaired_pod(stateful_set, pod)
    assert identity_matches(stateful_set, repaired)
    assert storage_matches(stateful_set, repaired)
    assert repaired_pod(stateful_set, repaired) is repaired
