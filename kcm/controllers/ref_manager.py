"""Adopting and releasing: who controls what matches. Follows pkg/controller/controller_ref_manager.go."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC
from typing import Generic, TypeVar

import msgspec

from kcm.api.errors import is_invalid, is_not_found, raise_all
from kcm.api.selectors import Selector
from kcm.api.types.meta import Object, ObjectMeta, controller_reference
from kcm.logs import get_logger

T = TypeVar("T", bound=Object)
log = get_logger(__name__)


class AdoptionError(Exception):
    """An orphan was not adopted."""


def recheck_deletion_timestamp(fetch: Callable[[], Awaitable[Object]]) -> Callable[[], Awaitable[None]]:
    """Make the check before a sync's first adoption: the owner, read past the cache, must not be being deleted.

    The check raises AdoptionError; also when the owner cannot be read, even if it is gone.
    """

    async def check() -> None:
        try:
            fresh = await fetch()
        except Exception as error:
            raise AdoptionError(f"can't recheck DeletionTimestamp: {error}") from error
        if (deleted := fresh.metadata.deletion_timestamp) is not None:
            when = f"{deleted.astimezone(UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
            raise AdoptionError(f"{fresh.metadata.key} has just been deleted at {when}")

    return check


def fetch_same(get: Callable[[], Awaitable[T]], kind: str, owner: ObjectMeta) -> Callable[[], Awaitable[T]]:
    """Make a read of the owner that fails when another object has taken its name."""

    async def fetch() -> T:
        fresh = await get()
        if fresh.metadata.uid != owner.uid:
            raise AdoptionError(
                f"original {kind} {owner.key} is gone: got uid {fresh.metadata.uid}, wanted {owner.uid}"
            )
        return fresh

    return fetch


def _anything(_: Object) -> bool:
    return True


class RefManager(Generic[T]):
    """Claims objects for one owner in one sync: those that its selector matches and that may belong to it."""

    def __init__(
        self,
        *,
        owner: ObjectMeta,
        owner_api_version: str,
        owner_kind: str,
        kind: str,
        selector: Selector,
        patch: Callable[[str, str, bytes], Awaitable[T]],
        can_adopt: Callable[[], Awaitable[None]],
        may_belong: Callable[[T], bool] = _anything,
    ) -> None:
        self._owner = owner
        self._owner_kind = owner_kind
        self._reference = controller_reference(owner_api_version, owner_kind, owner)
        self._kind = kind
        self._selector = selector
        self._patch = patch
        self._can_adopt = can_adopt
        self._may_belong = may_belong
        self._verdict: Exception | None = None
        self._checked = False

    async def claim(self, objects: Iterable[T]) -> list[T]:
        """Give the objects that the owner controls after adopting matching orphans and releasing what matches no more.

        Every object is tried, one after another; an adopted one is given as it was before.

        Raises:
            AggregateError: some could not be adopted or released.
        """
        claimed: list[T] = []
        errors: list[Exception] = []
        for obj in objects:
            try:
                if await self._claim(obj):
                    claimed.append(obj)
            except Exception as error:  # noqa: BLE001 - one failure must not keep the others from being tried
                errors.append(error)
        raise_all(errors)
        return claimed

    async def _claim(self, obj: T) -> bool:
        controller = obj.metadata.controller
        matches = self._selector.matches(obj.metadata.labels) and self._may_belong(obj)
        deleting = self._owner.deletion_timestamp is not None
        if controller is not None:
            if controller.uid != self._owner.uid:
                return False
            if not matches and not deleting:
                await self._release(obj)
            return matches
        if deleting or not matches or obj.metadata.deletion_timestamp is not None:
            return False
        if self._owner.namespace and obj.metadata.namespace != self._owner.namespace:
            return False
        return await self._adopt(obj)

    async def _adopt(self, obj: T) -> bool:
        await self._check_once(obj)
        metadata = {"ownerReferences": [self._reference], "uid": obj.metadata.uid}
        try:
            await self._patch(obj.metadata.namespace, obj.metadata.name, msgspec.json.encode({"metadata": metadata}))
        except Exception as error:
            if is_not_found(error):
                return False
            raise
        return True

    async def _check_once(self, obj: T) -> None:
        if not self._checked:
            self._checked = True
            try:
                await self._can_adopt()
            except Exception as error:  # noqa: BLE001 - kept, and raised for every adoption of this sync
                self._verdict = error
        if self._verdict is not None:
            raise AdoptionError(
                f"can't adopt {self._kind} {obj.metadata.key} ({obj.metadata.uid}): {self._verdict}"
            ) from self._verdict

    async def _release(self, obj: T) -> None:
        log.info("Patching object to remove its controllerRef", v=2, object=obj.metadata.key, owner=self._owner.key)
        references = [{"$patch": "delete", "uid": self._owner.uid}]
        metadata = {"uid": obj.metadata.uid, "ownerReferences": references}
        try:
            await self._patch(obj.metadata.namespace, obj.metadata.name, msgspec.json.encode({"metadata": metadata}))
        except Exception as error:
            # Gone, or somebody else's by now (the uid in the body no longer fits): nothing is left to release.
            if not (is_not_found(error) or is_invalid(error)):
                raise
