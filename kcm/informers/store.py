"""Indexed objects by key. Follows client-go tools/cache/{thread_safe_store,index}.go.

One event loop reads and writes, so there are no locks; callers get fresh lists and may keep them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kcm.api.types.meta import Object

T = TypeVar("T", bound=Object)
#: Gives the index values of an object; an object may stand under none or several.
IndexFunc = Callable[[T], Iterable[str]]

NAMESPACE_INDEX = "namespace"


def namespace_index(obj: Object) -> tuple[str]:
    """Index by namespace (index.go:MetaNamespaceIndexFunc)."""
    return (obj.metadata.namespace,)


@dataclass(frozen=True, slots=True)
class Tombstone(Generic[T]):
    """Stands for an object whose deletion was missed (delta_fifo.go:DeletedFinalStateUnknown)."""

    key: str
    last: T


class Indexer(Generic[T]):
    """A store of one resource's objects with any number of indexes."""

    def __init__(self, index_funcs: Mapping[str, IndexFunc[T]] | None = None) -> None:
        self._items: dict[str, T] = {}
        self._index_funcs: dict[str, IndexFunc[T]] = {NAMESPACE_INDEX: namespace_index, **(index_funcs or {})}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._index_funcs}
        #: The latest version that was applied, of any object or bookmark; empty before the first.
        self.resource_version = ""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def get(self, key: str) -> T | None:
        """The object with this key (`namespace/name`), if there is one."""
        return self._items.get(key)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that stand under a value of an index, in the order in which they came under it.

        Raises:
            KeyError: there is no such index.
        """
        return list(self._indexes[index].get(value, {}).values())

    def add_index(self, name: str, func: IndexFunc[T]) -> None:
        """Add an index over what is stored and what will be; adding the same one again changes nothing.

        Raises:
            ValueError: another function has that name.
        """
        if name in self._index_funcs:
            if self._index_funcs[name] is not func:
                raise ValueError(f"indexer conflict: {name}")
            return
        self._index_funcs[name] = func
        self._indexes[name] = {}
        for key, obj in self._items.items():
            self._enter(name, func, key, obj)

    def items(self) -> dict[str, T]:
        """All objects by key."""
        return dict(self._items)

    def put(self, obj: T) -> T | None:
        """Store an object and return the one that it replaces."""
        key = obj.metadata.key
        old = self._items.get(key)
        self._items[key] = obj
        for name, func in self._index_funcs.items():
            if old is not None:
                self._reenter(name, func, key, old, obj)
            else:
                self._enter(name, func, key, obj)
        return old

    def remove(self, key: str) -> T | None:
        """Drop an object and return it, if it was there."""
        old = self._items.pop(key, None)
        if old is not None:
            for name, func in self._index_funcs.items():
                self._leave(name, func(old), key)
        return old

    def empty_copy(self) -> "Indexer[T]":
        """An empty store with the same indexes, to collect a snapshot in."""
        return Indexer(self._index_funcs)

    def swap(self, snapshot: "Indexer[T]") -> Mapping[str, T]:
        """Take over what the snapshot holds, in one step, and return what was stored before."""
        before = self._items
        if snapshot._indexes.keys() != self._indexes.keys():  # an index was added while the snapshot was collected
            for name, func in self._index_funcs.items():
                snapshot.add_index(name, func)
        self._items, self._indexes = snapshot._items, snapshot._indexes
        self.resource_version = snapshot.resource_version
        return before

    def list(self, namespace: str = "") -> list[T]:
        """All objects, or those of one namespace."""
        return self.by_index(NAMESPACE_INDEX, namespace) if namespace else list(self._items.values())

    def _enter(self, name: str, func: IndexFunc[T], key: str, obj: T) -> None:
        index = self._indexes[name]
        for value in func(obj):
            index.setdefault(value, {})[key] = obj

    def _reenter(self, name: str, func: IndexFunc[T], key: str, old: T, new: T) -> None:
        before, after = tuple(func(old)), tuple(func(new))
        if before != after:
            self._leave(name, before, key)
        index = self._indexes[name]
        for value in after:
            index.setdefault(value, {})[key] = new

    def _leave(self, name: str, values: Iterable[str], key: str) -> None:
        index = self._indexes[name]
        for value in values:
            bucket = index.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del index[value]
