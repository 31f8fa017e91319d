"""Who owns the claims of a pod."""

import pytest

from kcm.api.resources import PODS, STATEFUL_SETS
from kcm.api.types.meta import Document
from kcm.controllers.statefulset.claim_owners import (
    has_unexpected_controller,
    is_claim_owner_up_to_date,
    is_stale_claim,
    retention_policy,
    updated_owners,
    wanted_owners,
)
from tests.unit.stateful_set_world import (
    make_claim,
    make_stateful_pod,
    make_stateful_set,
    reference_to_pod,
    reference_to_set,
)

R, D = "Retain", "Delete"
IN, OUT = make_stateful_pod(0), make_stateful_pod(7)
OTHER: Document = {"apiVersion": "example.com/v1", "kind": "Backup", "name": "b", "uid": "uid-b"}
OTHER_CONTROLLER: Document = {**OTHER, "controller": True}
OUR_SET, OUR_POD = reference_to_set(), reference_to_pod("web-0")


def policy(scaled: str, deleted: str) -> Document:
    return {"retention": (scaled, deleted)}


@pytest.mark.row("S-112")
def test_without_a_policy_all_stay() -> None:
    found = retention_policy(make_stateful_set(retention=None))
    assert (found.when_scaled, found.when_deleted) == (R, R)
    found = retention_policy(make_stateful_set(retention=(D, R)))
    assert (found.when_scaled, found.when_deleted) == (D, R)


@pytest.mark.row("S-113")
@pytest.mark.parametrize(
    ("scaled", "deleted", "inside", "outside"),
    [
        (R, R, (False, False), (False, False)),
        (R, D, (True, False), (True, False)),
        (D, R, (False, False), (False, True)),
        (D, D, (True, False), (False, True)),
        ("Keep", D, (False, False), (False, False)),
        (D, "", (False, False), (False, False)),
    ],
)
def test_who_should_own_a_claim(
    scaled: str, deleted: str, inside: tuple[bool, bool], outside: tuple[bool, bool]
) -> None:
    stateful_set = make_stateful_set(**policy(scaled, deleted))
    assert wanted_owners(stateful_set, IN) == inside
    assert wanted_owners(stateful_set, OUT) == outside


@pytest.mark.row("S-113", "S-115")
@pytest.mark.parametrize(
    ("scaled", "deleted", "ordinal", "good"),
    [
        (R, R, 0, ()),
        (R, D, 0, ("set",)),
        (R, D, 7, ("set",)),
        (D, R, 0, ()),
        (D, R, 7, ("pod",)),
        (D, D, 0, ("set",)),
        (D, D, 7, ("pod",)),
    ],
)
def test_a_claim_is_up_to_date_with_just_its_owners(
    scaled: str, deleted: str, ordinal: int, good: tuple[str, ...]
) -> None:
    stateful_set, pod = make_stateful_set(**policy(scaled, deleted)), make_stateful_pod(ordinal)
    references = {"set": OUR_SET, "pod": reference_to_pod(f"web-{ordinal}")}
    for owners in ((), ("set",), ("pod",), ("set", "pod")):
        claim = make_claim("data-web", OTHER, *(references[owner] for owner in owners))
        assert is_claim_owner_up_to_date(claim, stateful_set, pod) == (owners == good), owners
        wanted = [OTHER["uid"], *(references[owner]["uid"] for owner in good)]
        assert [owner.uid for owner in updated_owners(claim, stateful_set, pod)] == wanted


@pytest.mark.row("S-114", "S-115")
def test_a_stale_claim_is_left_alone() -> None:
    stateful_set = make_stateful_set(**policy(D, D))
    for stale in (reference_to_set("old"), reference_to_pod("web-0", "old")):
        claim = make_claim("data-web-0", OTHER_CONTROLLER, stale, OUR_SET)
        assert is_claim_owner_up_to_date(claim, stateful_set, IN)
    assert is_stale_claim(make_claim("c", reference_to_set("old")), STATEFUL_SETS, stateful_set)
    assert not is_stale_claim(make_claim("c", OUR_SET, reference_to_set("old")), STATEFUL_SETS, stateful_set)
    assert not is_stale_claim(
        make_claim("c", reference_to_set("old", apiVersion="apps/v2")), STATEFUL_SETS, stateful_set
    )
    unborn = make_stateful_pod(0, phase="")
    unborn = type(unborn)(metadata=type(unborn.metadata)(name="web-0", namespace="ns"))
    assert is_stale_claim(make_claim("c", OUR_POD), PODS, unborn)
    assert not is_stale_claim(make_claim("c", reference_to_pod("web-1")), PODS, unborn)


@pytest.mark.row("S-116")
def test_unexpected_controllers_matter_only_with_a_policy() -> None:
    keeping, deleting = make_stateful_set(**policy(R, R)), make_stateful_set(**policy(R, D))
    for owner in (OTHER_CONTROLLER, reference_to_set("old", controller=False), reference_to_pod("web-0", "old")):
        claim = make_claim("c", OUR_SET, owner)
        assert has_unexpected_controller(claim, deleting, IN)
        assert not has_unexpected_controller(claim, keeping, IN)
    for owner in (OTHER, {**OTHER, "controller": False}, reference_to_pod("web-1")):
        claim = make_claim("c", OUR_SET, OUR_POD, owner)
        assert has_unexpected_controller(claim, deleting, IN) == (owner.get("name") == "web-1")


@pytest.mark.row("S-115", "S-117")
def test_beside_an_unexpected_controller_neither_set_nor_pod_owns() -> None:
    stateful_set = make_stateful_set(**policy(R, D))
    assert is_claim_owner_up_to_date(make_claim("c", OTHER_CONTROLLER), stateful_set, IN)
    for ours in (OUR_SET, OUR_POD):
        claim = make_claim("c", ours, OTHER_CONTROLLER)
        assert not is_claim_owner_up_to_date(claim, stateful_set, IN)
        assert [owner.uid for owner in updated_owners(claim, stateful_set, IN)] == ["uid-b"]


@pytest.mark.row("S-115", "S-117")
def test_an_owner_that_does_not_control_is_replaced() -> None:
    stateful_set = make_stateful_set(**policy(R, D))
    for value in (False, None):
        claim = make_claim("c", reference_to_set(controller=value), OTHER)
        assert not is_claim_owner_up_to_date(claim, stateful_set, IN)
        other, ours = updated_owners(claim, stateful_set, IN)
        assert (other.uid, ours.uid, ours.controller, ours.block_owner_deletion) == ("uid-b", "uid-web", True, True)


@pytest.mark.row("S-117")
def test_a_reference_of_the_same_uid_that_stays_is_not_doubled() -> None:
    stateful_set = make_stateful_set(**policy(R, D))
    renamed = reference_to_set(apiVersion="apps/v1beta1", controller=False)
    assert [owner.api_version for owner in updated_owners(make_claim("c", renamed), stateful_set, IN)] == [
        "apps/v1beta1"
    ]


@pytest.mark.row("S-009", "S-117")
def test_references_to_pods_are_complete() -> None:
    stateful_set = make_stateful_set(**policy(D, R))
    (owner,) = updated_owners(make_claim("c"), stateful_set, OUT)
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Pod", "web-7", "uid-web-7")
    assert owner.controller
    assert owner.block_owner_deletion
