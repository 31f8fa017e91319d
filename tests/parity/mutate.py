"""Small changes to a pod template, of kinds that matter and of kinds that do not."""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from kcm.api.types.meta import Document

HASH_LABEL = "pod-template-hash"
#: The same amounts in several notations, and neighbours of theirs.
_AMOUNTS = [
    "0",
    "0m",
    "1",
    "1000m",
    "1e0",
    "1.0",
    "+1",
    "1024",
    "1Ki",
    "1001m",
    "0.001",
    "1m",
    "1000u",
    "1000001u",
    "2Ki",
]
_AMOUNTS_OF = frozenset({"limits", "requests", "overhead", "capacity", "allocatedResources"})

#: A place in a document: the container, and the key in it.
Place = tuple[Any, Any]


def mutated_pair(random: Random, base: Document) -> list[Document]:
    """Two copies of a template, with up to two changes between them; they may not be written as a server would."""
    first, second = copy.deepcopy(base), copy.deepcopy(base)
    for _ in range(random.randrange(3)):
        change = random.choice(
            (_hash_label, _emptied, _emptied, _emptied, _amount, _amount, _scalar, _removed, _swapped)
        )
        change(random, first, second)
    return random.sample((first, second), 2)


def _hash_label(random: Random, first: Document, second: Document) -> None:
    for template in (first, second):
        if random.random() < 0.7:
            template.setdefault("metadata", {}).setdefault("labels", {})[HASH_LABEL] = str(random.randrange(9))


def _emptied(random: Random, first: Document, second: Document) -> None:
    """Empty a container in one of them, and empty it, leave it out or as it is in the other."""
    paths = [path for path in _paths(first) if isinstance(_at(first, path), dict | list)]
    if not paths:
        return
    path = random.choice(paths)
    for template, choice in ((first, "empty"), (second, random.choice(("empty", "absent", "same")))):
        place = _place(template, path)
        if place is None:
            continue
        container, key = place
        if choice == "empty":
            container[key] = type(container[key])()
        elif choice == "absent" and isinstance(container, dict):
            del container[key]


def _amount(random: Random, first: Document, second: Document) -> None:
    paths = [path for path in _paths(first) if _is_amount(path)]
    if not paths:
        return
    path = random.choice(paths)
    for template in (first, second):
        if (place := _place(template, path)) is not None:
            place[0][place[1]] = random.choice(_AMOUNTS)


def _scalar(random: Random, first: Document, second: Document) -> None:
    paths = [path for path in _paths(first) if not isinstance(_at(first, path), dict | list) and not _is_amount(path)]
    if not paths or (place := _place(second, random.choice(paths))) is None:
        return
    container, key = place
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int):
        container[key] = value ^ 1
    elif isinstance(value, str) and value[-1:] != "Z":  # a time must stay one
        container[key] = f"{value}x"


def _removed(random: Random, _first: Document, second: Document) -> None:
    path = random.choice(list(_paths(second)))
    place = _place(second, path)
    if place is not None and isinstance(place[0], dict):
        del place[0][place[1]]


def _swapped(random: Random, _first: Document, second: Document) -> None:
    lists = [found for path in _paths(second) if isinstance(found := _at(second, path), list) and len(found) > 1]
    if lists:
        random.choice(lists).reverse()


def _is_amount(path: tuple[Any, ...]) -> bool:
    return path[-1] in {"sizeLimit", "divisor"} or (len(path) > 1 and path[-2] in _AMOUNTS_OF)


def _paths(document: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*prefix, key))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _place(document: Any, path: tuple[Any, ...]) -> Place | None:
    try:
        container = _at(document, path[:-1])
        _ = container[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return container, path[-1]
