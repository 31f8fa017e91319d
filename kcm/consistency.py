"""Holding a controller back while its caches are older than its own writes.

Follows pkg/controller/util/consistency/consistency.go.

A sync that reads a cache in which its last write has not arrived yet decides on the past. So each write is recorded here with
the resourceVersion of its answer, and the next sync of the same owner fails until the caches have come that far.

Guarantees:
- While a cache is known to be older than a recorded write of an owner, `ensure_ready` raises for that owner.
- What cannot be compared never blocks.

Not guaranteed: that the caches are as new as the server; writes of others are none of its business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kcm.api.resource_version import InvalidResourceVersionError, compare_resource_versions

#: Gives the latest resourceVersion that a store has applied; empty when that is not known.
VersionReader = Callable[[], str]


class ConsistencyError(Exception):
    """A cache has not seen the owner's last write yet; trying again later is all there is to do."""

    def __init__(self, *, read: str, wrote: str, group_resource: str) -> None:
        super().__init__(
            f"read version: {read} is not as new as written version: {wrote} for group resource {group_resource}"
        )
        self.read = read
        self.wrote = wrote
        #: `plural.group`, or the plural alone for the core group.
        self.group_resource = group_resource

    @property
    def group(self) -> str:
        """The API group of the stale resource, empty for the core group."""
        return self.group_resource.partition(".")[2]

    @property
    def resource(self) -> str:
        """The plural of the stale resource."""
        return self.group_resource.partition(".")[0]


class ConsistencyStore(Protocol):
    """Remembers what was written for each owner (`namespace/name`)."""

    def wrote_at(self, owner_key: str, owner_uid: str, group_resource: str, resource_version: str) -> None:
        """Record a write on behalf of an owner, with the resourceVersion of its answer."""
        ...

    def ensure_ready(self, owner_key: str) -> None:
        """Return if the caches have seen all recorded writes of the owner.

        Raises:
            ConsistencyError: one of them has not.
        """
        ...

    def clear(self, owner_key: str, uid: str) -> None:
        """Forget the owner's writes if it has this UID, or whatever its UID if that is empty."""
        ...


@dataclass(slots=True)
class _Record:
    """The newest write of one owner to each resource."""

    uid: str
    versions: dict[str, str] = field(default_factory=dict)


class RealConsistencyStore:
    """Compares writes with what the stores have applied.

    Args:
        readers: For each group-resource (`replicasets.apps`), how far its store is.
    """

    def __init__(self, readers: Mapping[str, VersionReader]) -> None:
        self._readers = dict(readers)
        self._records: dict[str, _Record] = {}

    def wrote_at(self, owner_key: str, owner_uid: str, group_resource: str, resource_version: str) -> None:
        """Record a write unless a newer one is recorded; one for another UID makes void what was recorded."""
        record = self._records.get(owner_key)
        if record is None or record.uid != owner_uid:
            record = self._records[owner_key] = _Record(owner_uid)
        known = record.versions.get(group_resource)
        if known is None or not _is_newer(known, resource_version):
            record.versions[group_resource] = resource_version

    def ensure_ready(self, owner_key: str) -> None:
        """Return, and forget the owner's writes, if the caches have seen them all.

        Raises:
            ConsistencyError: one of them has not.
        """
        record = self._records.get(owner_key)
        if record is None:
            return
        for group_resource, wrote in record.versions.items():
            reader = self._readers.get(group_resource)
            read = "" if reader is None else reader()
            if _is_newer(wrote, read):
                raise ConsistencyError(read=read, wrote=wrote, group_resource=group_resource)
        del self._records[owner_key]

    def clear(self, owner_key: str, uid: str) -> None:
        """Forget the owner's writes if it has this UID, or whatever its UID if that is empty."""
        record = self._records.get(owner_key)
        if record is not None and (not uid or record.uid == uid):
            del self._records[owner_key]


class NoConsistencyStore:
    """Remembers nothing and is always ready: for controllers that do not wait for their caches."""

    def wrote_at(self, owner_key: str, owner_uid: str, group_resource: str, resource_version: str) -> None:
        """Drop it."""

    def ensure_ready(self, owner_key: str) -> None:
        """Return."""

    def clear(self, owner_key: str, uid: str) -> None:
        """Do nothing."""


def _is_newer(version: str, than: str) -> bool:
    """Whether a version is newer than another; what cannot be compared is not."""
    try:
        return compare_resource_versions(version, than) > 0
    except InvalidResourceVersionError:
        return False
