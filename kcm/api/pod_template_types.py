"""The Go types of a v1.37 pod template: how values of each are read from JSON, written, compared and dumped.

pod_template_fields.json is the table of all structs and named types (tools/pod_template_fields.py makes it). What is here gives
it its meaning, following four pieces of code:

- reading: apimachinery's JSON decoding, which drops fields that it does not know, tells upper case from lower, and takes null
  for unset. A value of another type than its field is an error.
- writing: Go's encoding/json, struct fields in the order of their declaration and map keys sorted, `omitempty` and all.
- comparing: apimachinery pkg/api/equality/semantic.go, for which unset and empty lists and maps are the same and quantities
  count by value, but an empty struct behind a pointer is not an absent one.
- dumping: k8s.io/utils/dump/dump.go:ForHash, text for nothing but a hash.

A value is held as its type needs it: a struct as a dict with each of its fields under its JSON name (those of embedded structs
among them), nil pointers, lists and maps as None, quantities and times as such, all else as JSON has it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kcm.api.quantity import Quantity
from kcm.api.types.meta import Document, format_time

#: A struct's fields.
Value = dict[str, Any]


class Type(ABC):
    """A Go type, by the name that Go prints for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def decode(self, value: Any) -> Any:
        """The value that decoded JSON stands for, None being null or absent.

        Raises:
            ValueError: It has another type than this field.
        """

    def encode(self, value: Any) -> Any:
        """The value as JSON has it."""
        return value

    def omits(self, value: Any) -> bool:
        """Whether a field that may be left out is, with this value."""
        return not value

    def normal(self, value: Any) -> Any:
        """What semantically equal values share, as JSON; None for the zero value."""
        return value or None

    @abstractmethod
    def dump(self, value: Any) -> str:
        """The value as Go dumps it, without its type."""


class _Scalar(Type):
    """A string, bool or integer, or a type that is one."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name)
        self._python = {"string": str, "bool": bool}.get(kind, int)
        self._limit = 2**31 if kind == "int32" else 2**63

    def decode(self, value: Any) -> Any:
        if value is None:
            return self._python()
        if type(value) is not self._python or (type(value) is int and not -self._limit <= value < self._limit):
            raise _mismatch(value, self)
        return value

    def dump(self, value: Any) -> str:
        return str(value).lower() if self._python is bool else str(value)


class _Quantity(Type):
    def decode(self, value: Any) -> Quantity:
        if value is None:
            return Quantity()
        if type(value) not in {str, int}:
            raise _mismatch(value, self)
        return Quantity.parse(str(value).strip())

    def encode(self, value: Quantity) -> str:
        return str(value)

    def omits(self, value: Quantity) -> bool:
        return False

    def normal(self, value: Quantity) -> Any:
        return value.value if value.unscaled else None

    def dump(self, value: Quantity) -> str:
        fixed = value if value.scale is None else Quantity()
        return (
            f"{{i:(resource.int64Amount){{value:(int64){fixed.unscaled} scale:(resource.Scale){fixed.exponent}}}"
            f" d:(resource.infDecAmount){{Dec:(*inf.Dec){_dumped_decimal(value)}}}"
            f" s:(string){value.text} Format:(resource.Format){value.format}}}"
        )


def _dumped_decimal(value: Quantity) -> str:
    if value.scale is None:
        return "<nil>"
    rest = abs(value.unscaled) * 10 ** (value.exponent + value.scale)
    words = []
    while rest:
        words.append(str(rest % 2**64))
        rest >>= 64
    magnitude = f"[{' '.join(words)}]" if words else "<nil>"
    number = f"{{neg:(bool){str(value.unscaled < 0).lower()} abs:(big.nat){magnitude}}}"
    return f"{{unscaled:(big.Int){number} scale:(inf.Scale){value.scale}}}"


class _IntOrString(Type):
    def decode(self, value: Any) -> int | str:
        if value is None:
            return 0
        if type(value) is str or (type(value) is int and -(2**31) <= value < 2**31):
            return value
        raise _mismatch(value, self)

    def omits(self, value: int | str) -> bool:
        return False

    def normal(self, value: int | str) -> int | str | None:
        return None if value == 0 else value

    def dump(self, value: int | str) -> str:
        kind, number, text = (1, 0, value) if isinstance(value, str) else (0, value, "")
        return f"{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"


class _Time(Type):
    """An instant in UTC. Every field of this type that may be left out is with the zero time, whether given or None."""

    def decode(self, value: Any) -> datetime | None:
        if value is None:
            return None
        moment = msgspec.convert(value, datetime)
        if moment.tzinfo is None:
            raise _mismatch(value, self)
        return moment.astimezone(UTC)

    def encode(self, value: datetime | None) -> str | None:
        return None if value is None or value == _ZERO_TIME else format_time(value)

    def omits(self, value: datetime | None) -> bool:
        return self.encode(value) is None

    def normal(self, value: datetime | None) -> str | None:
        return None if value is None or value == _ZERO_TIME else value.isoformat()

    def dump(self, value: datetime | None) -> str:
        if value is None:
            return "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"
        since = value - _ZERO_TIME
        seconds = since.days * 86_400 + since.seconds
        # The zone of a machine that is not told any.
        zone = (
            "{name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string)"
            " cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}"
        )
        return (
            f"{{Time:(time.Time){{wall:(uint64){since.microseconds * 1000} ext:(int64){seconds}"
            f" loc:(*time.Location){zone}}}}}"
        )


_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


class _FieldsV1(Type):
    """JSON that Go keeps as it came. How it was spaced and escaped is not known here, nor of interest except to a dump."""

    def decode(self, value: Any) -> Any:
        return value

    def omits(self, value: Any) -> bool:
        return False

    def dump(self, value: Any) -> str:
        return f"{{Raw:([]uint8)[{' '.join(map(str, msgspec.json.encode(value)))}]}}"


class _Pointer(Type):
    def __init__(self, name: str, element: Type) -> None:
        super().__init__(name)
        self._element = element

    def decode(self, value: Any) -> Any:
        return None if value is None else self._element.decode(value)

    def encode(self, value: Any) -> Any:
        return None if value is None else self._element.encode(value)

    def omits(self, value: Any) -> bool:
        return value is None

    def normal(self, value: Any) -> list[Any] | None:
        return None if value is None else [self._element.normal(value)]

    def dump(self, value: Any) -> str:
        return "<nil>" if value is None else self._element.dump(value)


class _List(Type):
    def __init__(self, name: str, element: Type) -> None:
        super().__init__(name)
        self._element = element

    def decode(self, value: Any) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _mismatch(value, self)
        return [self._element.decode(item) for item in value]

    def encode(self, value: list[Any] | None) -> list[Any] | None:
        return None if value is None else [self._element.encode(item) for item in value]

    def normal(self, value: list[Any] | None) -> list[Any] | None:
        return [self._element.normal(item) for item in value] if value else None

    def dump(self, value: list[Any] | None) -> str:
        return "<nil>" if value is None else f"[{' '.join(self._element.dump(item) for item in value)}]"


class _Map(Type):
    def __init__(self, name: str, element: Type) -> None:
        super().__init__(name)
        self._element = element

    def decode(self, value: Any) -> Value | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _mismatch(value, self)
        return {key: self._element.decode(value[key]) for key in sorted(value)}

    def encode(self, value: Value | None) -> Document | None:
        return None if value is None else {key: self._element.encode(item) for key, item in value.items()}

    def normal(self, value: Value | None) -> Document | None:
        return {key: self._element.normal(item) for key, item in value.items()} if value else None

    def dump(self, value: Value | None) -> str:
        if value is None:
            return "<nil>"
        return f"map[{' '.join(f'{key}:{self._element.dump(item)}' for key, item in value.items())}]"


class _Field(NamedTuple):
    name: str
    key: str
    may_be_omitted: bool
    type: Type


class _Struct(Type):
    """A struct with all its fields, those of embedded structs under their own keys."""

    def __init__(self, name: str, fields: list[tuple[str, str, str, str]]) -> None:
        super().__init__(name)
        self._own = [_Field(name, key, bool(options), type_named(type_)) for name, key, options, type_ in fields]
        self._all = list(_flattened(self._own))

    def decode(self, value: Any) -> Value:
        if value is None:
            value = {}
        elif not isinstance(value, dict):
            raise _mismatch(value, self)
        return {field.key: field.type.decode(value.get(field.key)) for field in self._all}

    def encode(self, value: Value) -> Document:
        return {
            field.key: field.type.encode(value[field.key])
            for field in self._all
            if not (field.may_be_omitted and field.type.omits(value[field.key]))
        }

    def omits(self, value: Value) -> bool:
        return False

    def normal(self, value: Value) -> Document | None:
        normal = {field.key: field.type.normal(value[field.key]) for field in self._all}
        return {key: item for key, item in normal.items() if item is not None} or None

    def dump(self, value: Value) -> str:
        parts = (
            f"{field.name}:({field.type.name}){field.type.dump(value[field.key] if field.key else value)}"
            for field in self._own
        )
        return f"{{{' '.join(parts)}}}"


def _flattened(fields: list[_Field]) -> Iterator[_Field]:
    for field in fields:
        if not field.key and isinstance(field.type, _Struct):
            yield from _flattened(field.type._own)
        else:
            yield field


@cache
def _table() -> dict[str, str | list[tuple[str, str, str, str]]]:
    file = Path(__file__).with_name("pod_template_fields.json")
    return msgspec.json.decode(file.read_bytes(), type=dict[str, str | list[tuple[str, str, str, str]]])


_OPAQUE: dict[str, type[Type]] = {
    "resource.Quantity": _Quantity,
    "intstr.IntOrString": _IntOrString,
    "v1.Time": _Time,
    "v1.FieldsV1": _FieldsV1,
}


@cache
def type_named(name: str) -> Type:
    """The type of a Go name like `*v1.Affinity` or `map[string]string`."""
    if name in _OPAQUE:
        return _OPAQUE[name](name)
    made_of = _table().get(name, name)
    if isinstance(made_of, list):
        return _Struct(name, made_of)
    if made_of.startswith("*"):
        return _Pointer(name, type_named(made_of[1:]))
    if made_of.startswith("[]"):
        return _List(name, type_named(made_of[2:]))
    if made_of.startswith("map["):
        return _Map(name, type_named(made_of.partition("]")[2]))
    return _Scalar(name, made_of)


def _mismatch(value: Any, wanted: Type) -> ValueError:
    return ValueError(f"a value of type {type(value).__name__} where {wanted.name} belongs")
