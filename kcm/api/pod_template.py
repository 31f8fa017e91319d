"""Pod templates: whether two are the same, and the short hash that names what is made from one.

Follows pkg/controller/deployment/util/deployment_util.go:EqualIgnoreHash and pkg/controller/controller_utils.go:ComputeHash.

The reference compares decoded structs *semantically*: unset and empty lists and maps are equal, quantities count by value, an
empty struct behind a pointer is not an absent one. Here both templates are brought into one normal form of their JSON. That is
the same as long as both come from one API server, which writes every other field in one way only (zero values left out or
always there, depending on the field); fields that this code does not know are compared as they are. The few names below are
those fields of a v1.37 template whose emptiness or notation does not count; each name has one meaning wherever it occurs,
except the pod's own `resources`, which is a pointer while a container's is not.

The hash is no part of that comparison. It ends the name of a ReplicaSet, labels its pods and tells one set's pods from
another's; the new ReplicaSet of a Deployment is found by the template itself. The stock controller hashes a textual dump of Go
structs, so its hashes have other values, and that is harmless: a set that it named stays the new one, and no rollout begins
when kcm takes over or hands back. All that a hash must do is to stay the same for the same template and collision count; where
two templates share one, the collision count tells them apart.
"""

import hashlib
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from kcm.api.types.meta import Document, Whole

#: The label that carries the hash (apps/v1 DefaultDeploymentUniqueLabelKey).
POD_TEMPLATE_HASH = "pod-template-hash"

_MAPS = frozenset(
    {"annotations", "labels", "matchLabels", "nodeSelector", "options", "userAnnotations", "volumeAttributes"}
)
_RESOURCE_LISTS = frozenset({"limits", "overhead", "requests"})
#: Structs that are there even if nothing is set in them.
_VALUE_STRUCTS = frozenset({"metadata", "podAffinityTerm", "preference", "resources", "spec"})

_QUANTITY = re.compile(r"([+-]?[0-9]+\.?[0-9]*|[+-]?\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3}|)\Z", re.ASCII)
_SUFFIXES = {
    **{suffix: Fraction(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}

_SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class _Spec(msgspec.Struct):
    template: dict[str, Any] = {}


class _Templated(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def template_document(owner: Whole) -> Document:
    """A fresh copy of the pod template of a Deployment or ReplicaSet, fields unknown to this code included."""
    return msgspec.json.decode(owner.raw, type=_Templated).spec.template


def with_hash_label(template: Document, pod_template_hash: str | None) -> Document:
    """The template with this hash label, or without one; the argument is not changed."""
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != POD_TEMPLATE_HASH}
    if pod_template_hash is not None:
        labels[POD_TEMPLATE_HASH] = pod_template_hash
    return {**template, "metadata": {**metadata, "labels": labels}}


def equal_ignore_hash(first: Whole, second: Whole) -> bool:
    """Whether the pod templates of two objects are semantically equal, apart from the hash label."""
    return _fingerprint(first.raw) == _fingerprint(second.raw)


def compute_hash(owner: Whole, collision_count: int | None) -> str:
    """The hash of an object's template, at most ten characters that are safe in names.

    Args:
        owner: The object with the template; its hash label does not count.
        collision_count: Another count gives another hash; none and 0 differ.
    """
    data = normal_form(template_document(owner))
    if collision_count is not None:
        data += collision_count.to_bytes(4, "little", signed=True) + bytes(4)
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return safe_encode_string(str(value))


def safe_encode_string(text: str) -> str:
    """Replace each character by one that spells no words (apimachinery pkg/util/rand/rand.go:SafeEncodeString)."""
    return "".join(_SAFE_ALPHABET[ord(character) % len(_SAFE_ALPHABET)] for character in text)


def normal_form(template: Document) -> bytes:
    """JSON that two templates share if and only if they are semantically equal, apart from the hash label."""
    metadata = _struct(with_hash_label(template, None)["metadata"])
    spec = template.get("spec") or {}
    normal = _struct(spec)
    if (resources := spec.get("resources")) is not None:
        normal["resources"] = _struct(resources)  # even if empty
    return msgspec.json.encode({"metadata": metadata, "spec": normal}, order="sorted")


@lru_cache(maxsize=2048)
def _fingerprint(raw: bytes) -> bytes:
    # Asked for each ReplicaSet at each sync of its Deployment; bytes remember their own hash, so asking again is cheap.
    return hashlib.sha256(normal_form(template_document(Whole(raw=raw)))).digest()


def _struct(fields: Document) -> Document:
    normal = {name: _field(name, value) for name, value in fields.items()}
    return {name: value for name, value in normal.items() if value is not None}


def _field(name: str, value: Any) -> Any:
    """A field's normal form, None where it is as good as absent."""
    if isinstance(value, list):
        return [_struct(item) if isinstance(item, dict) else item for item in value] or None
    if isinstance(value, dict):
        if name in _MAPS:
            return value or None
        if name in _RESOURCE_LISTS:
            return {key: _quantity(amount) for key, amount in value.items()} or None
        return _struct(value) or (None if name in _VALUE_STRUCTS else {})
    if name == "sizeLimit":
        return _quantity(value)
    if name == "divisor":
        return None if (amount := _quantity(value)) == "0" else amount
    return value


def _quantity(text: Any) -> Any:
    """A quantity by its exact value; what is none, as it is."""
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None:
        return text
    number, suffix = match.groups()
    scale = _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:])
    return str(Fraction(number) * scale)
