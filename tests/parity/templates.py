"""Random pod templates with any field that the table has, from what people write to the oddest that Go can read."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import kcm.api
from kcm.api.types.meta import Document
from tests.parity.make import chance

#: All types of a template, as Go's reflection tells them.
TABLE = msgspec.json.decode(Path(kcm.api.__path__[0], "pod_template_fields.json").read_bytes())

_TEXTS = ("", "a", "web", "<a href='&'>", 'say "\\"', "\x00\x1f\b\f\n\r\t\x7f", "é\u2028\u2029\ufeff", "😀/", "x" * 300)
_KEYS = ("app", "cpu", "memory", "example.com/gpu", "limits", "<&>", "😀", "\uffff", "Z", "é")
_INTEGERS = (0, 1, -1, 30, 255, 2**31 - 1, -(2**31))
_LONG_INTEGERS = (*_INTEGERS, 2**31, 2**53, 2**53 + 1, 10**17 + 1, 2**63 - 1, -(2**63))
_TIMES = ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2024-02-29T23:59:59.5Z")
_UNKNOWN: tuple[Any, ...] = (None, 0, 1.5, "text", [], [{}], {}, {"name": "x", "limits": {"cpu": "1000m"}})
_SUFFIXES = ("", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENTS = ("e0", "e1", "E2", "e3", "E-3", "e-9", "e+6", "e-12", "e30", "E99", "e4294967299")
_NO_SUFFIXES = ("K", "ki", "Mib", "e", "ee", "e+", "i", "x", " ", "1+5", "e1.5", "e99999999999999999999", "٣")

_DOMAINS = (
    "",
    "",
    "docker.io/",
    "index.docker.io/",
    "localhost/",
    "r.test:5000/",
    "R/",
    "[::1]:80/",
    "-r.x/",
    "r_r.x/",
    "/",
)
_PATHS = ("", "web", "library/web", "a/b/c", "a__b/c--d", "a___b", "Web", "a..b", "é", "a" * 250, "0" * 64)
_TAGS = ("", "", ":latest", ":v1.2_3-x", ":Latest", ":", ":-x", ":a:b", f":{'t' * 128}", f":{'t' * 129}")
_HASHES = (
    f"sha256:{'0' * 64}",
    f"sha256:{'A' * 64}",
    f"sha512:{'a' * 128}",
    f"sha1:{'0' * 40}",
    "sha256:00",
    "a\nb",
    "",
)


class Templates:
    """Makes pod templates with any field that the table has, nearly as odd as Go can read.

    Args:
        random: What they depend on.
        nulls: Whether null may stand anywhere.
        capitals: Whether there may be fields whose names are known except for the case of their letters.
    """

    def __init__(self, random: Random, *, nulls: bool = True, capitals: bool = True) -> None:
        self._random = random
        self._nulls = nulls
        self._unknown = ("fromTheFuture", "Name", "CONTAINERS", "Metadata") if capitals else ("fromTheFuture", "")

    def template(self) -> Document:
        """One of them, from empty to a few hundred fields."""
        template: Document = self._struct("v1.PodTemplateSpec", every=True)
        return template

    def _value(self, name: str) -> Any:
        random = self._random
        if self._nulls and chance(random, 0.02):
            return None
        kind = TABLE.get(name, name)
        if isinstance(kind, list):
            return self._struct(name)
        if kind.startswith("*"):
            return self._value(kind[1:])
        if kind.startswith("[]"):
            return [self._value(kind[2:]) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        if kind.startswith("map["):
            keys = random.sample(_KEYS, random.choice((0, 1, 2, 5)))
            return {key: self._value(kind.partition("]")[2]) for key in keys}
        return self._leaf(kind)

    def _leaf(self, kind: str) -> Any:
        random = self._random
        match kind:
            case "string":
                return random.choice(_TEXTS)
            case "bool":
                return chance(random, 0.5)
            case "int32" | "int64":
                return random.choice(_INTEGERS if kind == "int32" else _LONG_INTEGERS)
            case "resource.Quantity":
                return tame_quantity(random)
            case "intstr.IntOrString":
                return random.choice((*_INTEGERS, *_TEXTS))
            case "v1.Time":
                return random.choice(_TIMES)
            case "v1.FieldsV1":
                return random.choice(({}, {"f:spec": {"f:a": {}, ".": {}}}))
        raise NotImplementedError(kind)

    def _struct(self, name: str, *, every: bool = False) -> Document:
        random = self._random
        fields = list(flattened(name))
        if not every:
            fields = random.sample(fields, min(len(fields), random.choice((0, 1, 2, 3, 5, 8, 13))))
        struct = {key: self._field(key, kind) for key, kind in fields}
        if chance(random, 0.05):
            struct[random.choice(self._unknown)] = random.choice(_UNKNOWN)
        return struct

    def _field(self, key: str, kind: str) -> Any:
        if kind == "string" and key in {"image", "reference"}:
            return image(self._random)
        return self._value(kind)


def flattened(name: str) -> Iterator[tuple[str, str]]:
    """A struct's fields in JSON: their names and types."""
    for _, key, _, kind in TABLE[name]:
        if key:
            yield key, kind
        else:
            yield from flattened(kind)


def number(random: Random) -> str:
    """A decimal number, maybe written oddly."""
    whole = str(random.choice((0, 1, 5, 8, 100, 1000, 1024, 4096, 10**9, 10**17 + 8, 10**18, 2**63, 10**25 + 1)))
    if chance(random, 0.2):
        whole = random.choice(("", "0", "00")) + whole
    fraction = random.choice((".", ".0", ".5", ".25", ".001", ".0000005", ".0000000001", ".000000000000000000001"))
    text = whole + (fraction if chance(random, 0.3) else "")
    return random.choice(("", "", "", "", "+", "-")) + random.choice((text, text, text, text, text, "", "0", "1"))


def tame_quantity(random: Random) -> str:
    """A quantity that can be read and is not too large to be rounded."""
    exponents = [exponent for exponent in _EXPONENTS if len(exponent) < 6]
    digits = number(random)
    return digits + ("" if digits.strip("+-") else "0") + random.choice(_SUFFIXES if chance(random, 0.8) else exponents)


def quantity(random: Random) -> str:
    """A quantity, or nearly one."""
    kind = random.random()
    return number(random) + random.choice(_SUFFIXES if kind < 0.7 else _EXPONENTS if kind < 0.9 else _NO_SUFFIXES)


def image(random: Random) -> str:
    """The name of an image, or nearly one."""
    digest = f"@{random.choice(_HASHES)}" if chance(random, 0.3) else ""
    return random.choice(_DOMAINS) + random.choice(_PATHS) + random.choice(_TAGS) + digest
