"""Label selectors, compiled once and matched often. Follows apimachinery pkg/labels/selector.go and meta/v1/helpers.go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from kcm.api.types.meta import LabelSelector

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*\Z", re.ASCII)


class SelectorError(ValueError):
    """A selector that the API would refuse."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the condition; NotIn is met by a missing label."""
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return self.key not in labels or labels[self.key] not in self.values
        return (self.key in labels) == (self.operator == "Exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; no requirement matches everything, unless it is the selector of nothing."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is no requirement, as for `{}`; the selector of nothing is not empty (selector.go:nothingSelector)."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def selector_of(selector: LabelSelector | None) -> Selector:
    """Compile a selector: none matches nothing, an empty one everything (helpers.go:LabelSelectorAsSelector).

    Raises:
        SelectorError: an operator, key or value that the API would refuse.
    """
    if selector is None:
        return NOTHING
    return _compile(msgspec.json.encode(selector, order="sorted"))


@lru_cache(maxsize=8192)
def _compile(encoded: bytes) -> Selector:
    # Selectors repeat (every object of one owner carries the same), and a struct with maps cannot be a cache key itself.
    selector = msgspec.json.decode(encoded, type=LabelSelector)
    requirements = [Requirement(key, "In", frozenset({value})) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        if expression.operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        needs_values = expression.operator in {"In", "NotIn"}
        if needs_values and not expression.values:
            raise SelectorError("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
        if not needs_values and expression.values:
            raise SelectorError("values: Invalid value: values set must be empty for exists and does not exist")
        requirements.append(Requirement(expression.key, expression.operator, frozenset(expression.values)))
    for requirement in requirements:
        _validate(requirement)
    return Selector(tuple(requirements))


def _validate(requirement: Requirement) -> None:
    prefix, slash, name = requirement.key.rpartition("/")
    if not _NAME.match(name) or (slash and not (_SUBDOMAIN.match(prefix) and len(prefix) <= 253)):
        raise SelectorError(f'key: Invalid value: "{requirement.key}": is no qualified name')
    for value in requirement.values:
        if value and not _NAME.match(value):
            raise SelectorError(f'values[{requirement.key}]: Invalid value: "{value}": is no label value')
