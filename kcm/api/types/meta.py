"""Metadata shared by all objects. Follows apimachinery pkg/apis/meta/v1/{types,controller_ref}.go."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec

#: A decoded JSON object that may be changed freely because nothing else holds it.
Document = dict[str, Any]


class Slice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all typed slices: immutable, named as in the API, silent about fields it does not list."""


class OwnerReference(Slice, frozen=True, gc=False):
    """A link from an object to one that owns it; the one with `controller` set manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Slice, frozen=True, gc=False):
    """The part of every object that identifies it."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The first owner reference with controller=true (controller_ref.go:GetControllerOf)."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None


class LabelSelectorRequirement(Slice, frozen=True, gc=False):
    """One line of a selector's matchExpressions."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Slice, frozen=True):
    """A selector as written in a spec; `kcm.api.selectors` evaluates it."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Object(Protocol):
    """What any cached object has."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


class Whole(Slice, frozen=True):
    """An object that is written back: its slice plus the JSON it was read from, without managedFields."""

    raw: bytes = b""

    def document(self) -> Document:
        """A fresh copy of the object as it was read, to build a PUT body from."""
        document: Document = msgspec.json.decode(self.raw)
        return document


WholeT = TypeVar("WholeT", bound=Whole)


def decode_whole(kind: type[WholeT], data: bytes | msgspec.Raw) -> WholeT:
    """Decode an object that will be written back.

    Raises:
        msgspec.ValidationError: the object does not have the types that the API promises.
        msgspec.DecodeError: the bytes are no JSON.
    """
    return from_document(kind, msgspec.json.decode(data))


def from_document(kind: type[WholeT], document: Document) -> WholeT:
    """Turn a decoded object into its slice, dropping managedFields; the document is the callee's from then on.

    Raises:
        msgspec.ValidationError: the object does not have the types that the API promises.
    """
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    raw = msgspec.json.encode(document)
    return msgspec.convert({**document, "raw": raw}, kind)


def format_time(moment: datetime) -> str:
    """RFC 3339 with seconds in UTC, as the API stores `metav1.Time`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """RFC 3339 with exactly six fractional digits in UTC, as the API stores `metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def controller_reference(api_version: str, kind: str, owner: ObjectMeta) -> OwnerReference:
    """A controlling reference to an object (controller_ref.go:NewControllerRef)."""
    return OwnerReference(
        api_version=api_version,
        kind=kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def set_or_drop(document: Document, key: str, value: Mapping[str, Any] | list[Any] | int | str | None) -> None:
    """Set a key to a value, or remove it when the value is unset or empty, as Go's omitempty writes it."""
    if value is None or value in ({}, [], ""):
        document.pop(key, None)
    else:
        document[key] = value
