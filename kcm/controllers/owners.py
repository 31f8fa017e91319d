"""Finding the object that another one belongs to. Follows the resolveControllerRef functions and listers of pkg/controller.

What the caches hold decides: a reference whose object is gone, or was replaced by another of its name, means nobody.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from kcm.api.selectors import Selector, SelectorError, selector_of
from kcm.api.types.meta import LabelSelector, Object, OwnerReference
from kcm.informers.store import Indexer, Tombstone

T = TypeVar("T", bound=Object)


class Selecting(Protocol):
    """An object with a selector in its spec."""

    @property
    def spec(self) -> "HasSelector":
        """What it wants."""
        ...


class HasSelector(Protocol):
    """A spec with a selector."""

    @property
    def selector(self) -> LabelSelector | None:
        """What is selected."""
        ...


S = TypeVar("S", bound=Selecting)


def last_known(deleted: T | Tombstone[T]) -> T:
    """The deleted object as it was last seen."""
    return deleted.last if isinstance(deleted, Tombstone) else deleted


def resolve(owners: Indexer[T], kind: str, namespace: str, reference: OwnerReference | None) -> T | None:
    """The owner that a controller reference means; its API group is not looked at, as in the reference."""
    if reference is None or reference.kind != kind:
        return None
    owner = owners.get(f"{namespace}/{reference.name}")
    return owner if owner is not None and owner.metadata.uid == reference.uid else None


def valid_selector(owner: Selecting) -> Selector | None:
    """An object's selector, or None if the API would refuse it."""
    try:
        return selector_of(owner.spec.selector)
    except SelectorError:
        return None


def selecting(owners: Iterable[S], labels: Mapping[str, str]) -> list[S]:
    """Those that would adopt an orphan with these labels; no labels, and invalid or empty selectors, match nothing."""
    if not labels:
        return []
    found = []
    for owner in owners:
        selector = valid_selector(owner)
        if selector is not None and not selector.empty and selector.matches(labels):
            found.append(owner)
    return found
