"""Pod templates: whether two are the same, and what is named or stored by their content.

Follows pkg/controller/deployment/util/deployment_util.go:EqualIgnoreHash, pkg/controller/controller_utils.go:ComputeHash and
pkg/controller/statefulset/stateful_set_utils.go:getPatch.

All three see a template as v1.37 knows it (`kcm.api.pod_template_types`): a field that only a newer server has, and fills in
everywhere, is no difference, enters no hash and no stored revision, and so starts no rollout. What is sent to a server is
built from the JSON that came from one, with all its fields.

The hash ends the name of a ReplicaSet, labels its pods and tells one set's pods from another's. It is no part of the
comparison: the new ReplicaSet of a Deployment is found by the template itself.
"""

import hashlib
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from kcm.api.pod_template_defaults import set_defaults
from kcm.api.pod_template_types import Type, type_named
from kcm.api.types.meta import Document, Whole

#: The label that carries the hash (apps/v1 DefaultDeploymentUniqueLabelKey).
POD_TEMPLATE_HASH = "pod-template-hash"

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
    """Whether the pod templates of two objects are semantically equal, apart from the hash label.

    Raises:
        ValueError: A template does not have the types that the API promises.
    """
    return _fingerprint(first.raw) == _fingerprint(second.raw)


def compute_hash(owner: Whole, collision_count: int | None) -> str:
    """The hash of an object's template, at most ten characters that are safe in names.

    Args:
        owner: The object with the template.
        collision_count: Another count gives another hash; none and 0 differ.

    Raises:
        ValueError: The template does not have the types that the API promises.
    """
    data = dump(template_document(owner)).encode()
    if collision_count is not None:
        data += collision_count.to_bytes(4, "little", signed=True) + bytes(4)
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return safe_encode_string(str(value))


def revision_data(stateful_set_document: Document, *, with_defaults: bool = False) -> bytes:
    """The data of a StatefulSet's ControllerRevision: a patch that puts its pod template back, byte for byte the reference's.

    Args:
        stateful_set_document: Only its template counts.
        with_defaults: Fill in first what an API server does.

    Raises:
        ValueError: The template does not have the types that the API promises.
    """
    template = (stateful_set_document.get("spec") or {}).get("template")
    return _revision_data(msgspec.json.encode(template), with_defaults)


def equal_with_defaults(current: Document, stored: Document) -> bool:
    """Whether a template stored in a revision gives a StatefulSet's current one, once an API server has filled it in.

    Then nothing has changed since, though the revision comes from a server that knew fewer defaults or wrote them differently
    (pkg/controller/statefulset/stateful_set_control.go:setMatchesLatestExistingRevision).

    Raises:
        ValueError: A template does not have the types that the API promises.
    """
    wanted = revision_data({"spec": {"template": current}})
    return revision_data({"spec": {"template": stored}}, with_defaults=True) == wanted


def safe_encode_string(text: str) -> str:
    """Replace each character by one that spells no words (apimachinery pkg/util/rand/rand.go:SafeEncodeString)."""
    return "".join(_SAFE_ALPHABET[ord(character) % len(_SAFE_ALPHABET)] for character in text)


def normal_form(template: Document) -> bytes:
    """JSON that two templates share if and only if they are semantically equal, apart from the hash label."""
    kind = _pod_template()
    normal = kind.normal(kind.decode(with_hash_label(template, None)))
    return msgspec.json.encode(normal, order="sorted")


def dump(template: Document) -> str:
    """The text of a template that its hash is made from."""
    kind = _pod_template()
    return f"({kind.name}){kind.dump(kind.decode(template))}"


@lru_cache(maxsize=2048)
def _fingerprint(raw: bytes) -> bytes:
    # Asked for each ReplicaSet at each sync of its Deployment; bytes remember their own hash, so asking again is cheap.
    return hashlib.sha256(normal_form(template_document(Whole(raw=raw)))).digest()


@lru_cache(maxsize=256)
def _revision_data(template: bytes, with_defaults: bool) -> bytes:
    kind = _pod_template()
    value = kind.decode(msgspec.json.decode(template))
    if with_defaults:
        set_defaults(value)
    document = {**kind.encode(value), "$patch": "replace"}
    text = msgspec.json.encode({"spec": {"template": _with_floats(document)}}, order="sorted").decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _pod_template() -> Type:
    return type_named("v1.PodTemplateSpec")


def _with_floats(value: Any) -> Any:
    """JSON after its numbers were 64-bit floats, of which Go writes as many digits as tell them apart."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    if type(value) is int and abs(value) > 2**53:
        return int(Decimal(repr(float(value))))
    return value
