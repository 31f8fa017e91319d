"""Adopting and releasing."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from kcm.api.errors import AggregateError, Status, StatusError
from kcm.api.selectors import selector_of
from kcm.api.types.core import Pod
from kcm.api.types.meta import LabelSelector, ObjectMeta, OwnerReference
from kcm.controllers.ref_manager import AdoptionError, RefManager, fetch_same, recheck_deletion_timestamp

OWNER = ObjectMeta(name="rs", namespace="ns", uid="owner")
DELETED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OURS = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="owner", controller=True)
THEIRS = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="other", uid="other", controller=True)


def refusal(code: int, reason: str) -> StatusError:
    return StatusError(Status(message=f"{reason}!", reason=reason, code=code))


def pod(name: str, *owners: OwnerReference, app: str = "web", **meta: object) -> Pod:
    base = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", labels={"app": app}, owner_references=owners)
    return Pod(metadata=msgspec.structs.replace(base, **meta))


class Api:
    """Notes patches; refuses those that it is told to."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, dict[str, object]]] = []
        self.errors: dict[str, Exception] = {}
        self.reads = 0
        self.fresh = OWNER

    async def patch(self, _namespace: str, name: str, body: bytes) -> Pod:
        self.patches.append((name, json.loads(body)))
        if name in self.errors:
            raise self.errors[name]
        return pod(name)

    async def get(self) -> Pod:
        self.reads += 1
        return Pod(metadata=self.fresh)

    async def claim(
        self, *pods: Pod, owner: ObjectMeta = OWNER, may_belong: Callable[[Pod], bool] = lambda _: True
    ) -> list[str]:
        manager = RefManager(
            owner=owner,
            owner_api_version="apps/v1",
            owner_kind="ReplicaSet",
            kind="Pod",
            selector=selector_of(LabelSelector(match_labels={"app": "web"})),
            patch=self.patch,
            can_adopt=recheck_deletion_timestamp(fetch_same(self.get, "ReplicaSet", owner)),
            may_belong=may_belong,
        )
        return [claimed.metadata.name for claimed in await manager.claim(pods)]


@pytest.mark.row("R-042", "R-144", "R-188")
async def test_what_is_ours_stays_ours_and_others_are_left_alone() -> None:
    api = Api()
    assert await api.claim(pod("ours", OURS), pod("theirs", THEIRS)) == ["ours"]
    deleting = msgspec.structs.replace(OWNER, deletion_timestamp=DELETED)
    assert await api.claim(pod("ours", OURS), owner=deleting) == ["ours"]
    assert api.patches == []
    assert api.reads == 0


@pytest.mark.row("R-043", "R-049", "R-050")
async def test_what_no_longer_matches_is_released() -> None:
    api = Api()
    api.errors = {"gone": refusal(404, "NotFound"), "taken": refusal(422, "Invalid")}
    assert await api.claim(*(pod(name, OURS, app="x") for name in ("left", "gone", "taken"))) == []
    assert api.patches[0] == (
        "left",
        {"metadata": {"uid": "uid-left", "ownerReferences": [{"$patch": "delete", "uid": "owner"}]}},
    )
    assert len(api.patches) == 3
    deleting = msgspec.structs.replace(OWNER, deletion_timestamp=DELETED)
    assert await api.claim(pod("kept", OURS, app="x"), owner=deleting) == []
    assert len(api.patches) == 3


@pytest.mark.row("R-044", "R-045", "R-047", "R-048", "R-052")
async def test_matching_orphans_are_adopted_after_one_look_at_the_owner() -> None:
    api = Api()
    plain = msgspec.structs.replace(THEIRS, controller=None)
    assert await api.claim(pod("a"), pod("b", plain), pod("c", app="x")) == ["a", "b"]
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "rs",
        "uid": "owner",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert api.patches == [
        (name, {"metadata": {"ownerReferences": [reference], "uid": f"uid-{name}"}}) for name in ("a", "b")
    ]
    assert api.reads == 1


@pytest.mark.row("R-044", "R-190")
async def test_nothing_is_adopted_while_either_is_being_deleted_or_across_namespaces() -> None:
    api = Api()
    deleting = msgspec.structs.replace(OWNER, deletion_timestamp=DELETED)
    assert await api.claim(pod("a"), owner=deleting) == []
    assert await api.claim(pod("b", deletion_timestamp=DELETED), pod("c", namespace="elsewhere")) == []
    assert (api.patches, api.reads) == ([], 0)


@pytest.mark.row("R-045", "R-046", "R-150")
async def test_a_failed_recheck_fails_every_adoption_of_the_sync() -> None:
    api = Api()
    api.fresh = msgspec.structs.replace(OWNER, deletion_timestamp=DELETED)
    with pytest.raises(AggregateError) as caught:
        await api.claim(pod("a"), pod("b"))
    assert str(caught.value) == (
        "[can't adopt Pod ns/a (uid-a): ns/rs has just been deleted at 2026-01-02 03:04:05 +0000 UTC, "
        "can't adopt Pod ns/b (uid-b): ns/rs has just been deleted at 2026-01-02 03:04:05 +0000 UTC]"
    )
    assert (api.patches, api.reads) == ([], 1)
    api.fresh = msgspec.structs.replace(OWNER, uid="another")
    with pytest.raises(
        AggregateError,
        match=r"recheck DeletionTimestamp: original ReplicaSet ns/rs is gone: got uid another, wanted owner",
    ):
        await api.claim(pod("a"))


@pytest.mark.row("R-152")
async def test_an_owner_that_is_not_there_is_an_error_but_a_pod_that_is_not_there_is_none() -> None:
    async def gone() -> Pod:
        raise refusal(404, "NotFound")

    with pytest.raises(AdoptionError, match="can't recheck DeletionTimestamp: NotFound!"):
        await recheck_deletion_timestamp(gone)()
    api = Api()
    api.errors = {"a": refusal(404, "NotFound")}
    assert await api.claim(pod("a"), pod("b")) == ["b"]


@pytest.mark.row("R-051", "R-189")
@pytest.mark.parametrize("claimed", [pod, lambda name: pod(name, OURS, app="x")])
async def test_every_object_is_tried_and_errors_come_as_one(claimed: Callable[[str], Pod]) -> None:
    api = Api()
    api.errors = {"a": refusal(500, "InternalError"), "b": refusal(409, "Conflict"), "d": refusal(409, "Conflict")}
    with pytest.raises(AggregateError) as caught:
        await api.claim(*(claimed(name) for name in "abcd"))
    assert str(caught.value) == "[InternalError!, Conflict!]"
    assert [name for name, _ in api.patches] == ["a", "b", "c", "d"]


@pytest.mark.row("R-160")
async def test_what_may_not_belong_counts_as_not_matching() -> None:
    api = Api()
    mine = [pod("good", OURS), pod("bad", OURS), pod("bad-orphan")]
    assert await api.claim(*mine, may_belong=lambda p: p.metadata.name == "good") == ["good"]
    assert [name for name, _ in api.patches] == ["bad"], "released when owned, not adopted when not"
