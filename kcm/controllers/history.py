"""What an owner's pods were made from, kept as ControllerRevisions. Follows pkg/controller/history/controller_history.go.

A revision's data is bytes: it is named by their hash, compared by them, and written as they are.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kcm.api.client import Client
from kcm.api.errors import StatusError, is_already_exists
from kcm.api.pod_template import safe_encode_string
from kcm.api.resources import CONTROLLER_REVISIONS, Resource
from kcm.api.selectors import Selector
from kcm.api.types.apps import ControllerRevision
from kcm.api.types.meta import Document, ObjectMeta, controller_reference, set_or_drop
from kcm.informers.store import Indexer

CONTROLLER_REVISION_INDEX = "controllerRevisionController"
#: The label that holds the hash in a revision's name, as it was when that name was first tried.
CONTROLLER_REVISION_HASH_LABEL = "controller.kubernetes.io/hash"

_MAX_PREFIX = 223
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class History:
    """The revisions of owners of one kind: listed from the cache, written through the API.

    Args:
        client: Writes them, and reads those that have the name of a new one.
        revisions: The cache, indexed by `controller_revision_index`.
        owner: What stands for the owners.
    """

    def __init__(self, client: Client, revisions: Indexer[ControllerRevision], owner: Resource[Any]) -> None:
        self._client = client
        self._revisions = revisions
        self._owner = owner

    def list(self, owner: ObjectMeta, selector: Selector) -> list[ControllerRevision]:
        """Those selected that the owner controls or nobody does; the latest last."""
        keys = (revision_index_key(owner.namespace, self._owner.kind, owner.name, owner.uid), owner.namespace)
        found = [
            revision
            for key in keys
            for revision in self._revisions.by_index(CONTROLLER_REVISION_INDEX, key)
            if selector.matches(revision.metadata.labels)
        ]
        return sorted(found, key=_age)

    async def create(
        self, owner: ObjectMeta, *, labels: Mapping[str, str], data: bytes, number: int, collision_count: int
    ) -> tuple[ControllerRevision, int]:
        """POST a revision with the owner's annotations; where its name is taken by one with the same data, use that one.

        Args:
            owner: Who will control it.
            labels: Labels besides the hash.
            data: What is remembered.
            number: Its place among the owner's revisions.
            collision_count: How many names were taken by other data so far.

        Returns:
            The revision, and how many names were taken until it had one.

        Raises:
            StatusError: refused.
            TransportError: no answer.
        """
        digest = hash_revision(data, collision_count)
        metadata: Document = {"name": "", "labels": {**labels, CONTROLLER_REVISION_HASH_LABEL: digest}}
        set_or_drop(metadata, "annotations", owner.annotations)
        metadata["ownerReferences"] = [controller_reference(self._owner.api_version, self._owner.kind, owner)]
        body = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": metadata,
            "data": msgspec.Raw(data),
            "revision": number,
        }
        while True:
            metadata["name"] = revision_name(owner.name, digest)
            try:
                return await self._client.create(CONTROLLER_REVISIONS, owner.namespace, body), collision_count
            except StatusError as error:
                if not is_already_exists(error):
                    raise
            existing = await self._client.get(CONTROLLER_REVISIONS, owner.namespace, metadata["name"])
            if same_data(existing.data, data):
                return existing, collision_count
            collision_count += 1
            digest = hash_revision(data, collision_count)

    async def renumber(self, revision: ControllerRevision, number: int) -> ControllerRevision:
        """PUT a revision with another number, and give it as it is then.

        Once: the reference tries again after a conflict, but with an object that its client has emptied.

        Raises:
            StatusError: refused.
            TransportError: no answer.
        """
        meta = revision.metadata
        body = revision.document() | {"revision": number}
        return await self._client.update(CONTROLLER_REVISIONS, meta.namespace, meta.name, body)

    async def delete(self, revision: ControllerRevision) -> None:
        """DELETE a revision. Raises as `renumber`, also when it is gone already."""
        await self._client.delete(CONTROLLER_REVISIONS, revision.metadata.namespace, revision.metadata.name)

    async def adopt(self, owner: ObjectMeta, revision: ControllerRevision) -> None:
        """PATCH an orphan so that the owner controls it. Raises as `renumber`."""
        reference = controller_reference(self._owner.api_version, self._owner.kind, owner)
        body = {"metadata": {"ownerReferences": [reference], "uid": revision.metadata.uid}}
        await self._client.patch(CONTROLLER_REVISIONS, owner.namespace, revision.metadata.name, body)


def revision_index_key(namespace: str, kind: str, name: str, uid: str) -> str:
    """Index value of the revisions that an owner controls; a namespace's orphans stand under its name."""
    return f"{namespace}/{kind}/{name}/{uid}"


def controller_revision_index(revision: ControllerRevision) -> Iterable[str]:
    """Index revisions by their controlling owner (AddControllerRevisionControllerIndexer)."""
    meta, owner = revision.metadata, revision.metadata.controller
    return (meta.namespace if owner is None else revision_index_key(meta.namespace, owner.kind, owner.name, owner.uid),)


def hash_revision(data: bytes, collision_count: int | None) -> str:
    """The hash that names a revision: 32-bit FNV-1 of its data and the collision count, in letters that spell no words."""
    value = _FNV_OFFSET
    for byte in data if collision_count is None else data + str(collision_count).encode():
        value = value * _FNV_PRIME & 0xFFFFFFFF ^ byte
    return safe_encode_string(str(value))


def revision_name(owner: str, digest: str) -> str:
    """`<owner>-<hash>`, with no more of the owner's name than leaves room for the hash (ControllerRevisionName)."""
    return f"{owner[:_MAX_PREFIX]}-{digest}"


def same_data(first: bytes, second: bytes) -> bool:
    """Whether two revisions remember the same, however a server or proxy has laid out its answer."""
    return first == second or msgspec.json.decode(first) == msgspec.json.decode(second)


def _age(revision: ControllerRevision) -> tuple[int, datetime, str]:
    meta = revision.metadata
    return revision.revision, meta.creation_timestamp or _LONG_AGO, meta.name
