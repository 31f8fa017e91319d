"""core/v1 Events. Follows k8s.io/api/core/v1/types.go.

Only the fields that kcm writes; the server leaves the others of a patched Event as they are.
"""

from datetime import datetime

from kcm.api.types.meta import ObjectMeta, Slice


class ObjectReference(Slice, frozen=True, gc=False):
    """The object that an event is about, at the version at which it was seen."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Slice, frozen=True, gc=False):
    """Which component recorded an event."""

    component: str = ""


class Event(Slice, frozen=True):
    """Something that happened to an object, once or several times. Its times are whole seconds."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    count: int = 0
    type: str = ""
    reporting_component: str = ""
