"""Recording events and writing them in the background. Follows client-go tools/record/event.go and util/util.go.

`event` only puts down what happened; one task makes Events of that and writes them one after another, so that one which
cannot be sent holds up those behind it and nothing else.
"""

import asyncio
import random
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from kcm.api.client import STRATEGIC_MERGE_PATCH, Client
from kcm.api.errors import StatusError, TransportError, is_already_exists, is_namespace_terminating, is_not_found
from kcm.api.resources import EVENTS, Resource
from kcm.api.types.events import Event, EventSource, ObjectReference
from kcm.api.types.meta import Document, ObjectMeta, set_or_drop
from kcm.clock import REAL, Clock
from kcm.events.correlator import EventCorrelator
from kcm.logs import get_logger

__all__ = [
    "NORMAL",
    "WARNING",
    "EventBroadcaster",
    "EventRecorder",
    "FakeRecorder",
    "ObjectReference",
    "Occurrence",
    "reference_to",
]

log = get_logger(__name__)

#: The types of events.
NORMAL, WARNING = "Normal", "Warning"
#: Events that may wait to be written.
MAX_QUEUED_EVENTS = 1000
#: How often it is tried to send an event, and the seconds in between.
MAX_TRIES_PER_EVENT, SLEEP_DURATION = 12, 10.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DNS_1123_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1123_SUBDOMAIN = re.compile(rf"{_DNS_1123_LABEL}(\.{_DNS_1123_LABEL})*")


def reference_to(resource: Resource[Any], meta: ObjectMeta) -> ObjectReference:
    """What an event about an object refers to."""
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class EventRecorder(Protocol):
    """Records events on behalf of one component."""

    def event(self, about: ObjectReference, event_type: str, reason: str, message: str, /) -> None:
        """Record that something happened to an object. Returns at once and never raises.

        Args:
            about: The object.
            event_type: `Normal` or `Warning`.
            reason: What happened, one UpperCamelCase word.
            message: The same for people.
        """
        ...


class Occurrence(NamedTuple):
    """What was recorded."""

    about: ObjectReference
    type: str
    reason: str
    message: str


class FakeRecorder:
    """Collects what is recorded, for tests."""

    def __init__(self) -> None:
        self.occurrences: list[Occurrence] = []

    def event(self, about: ObjectReference, event_type: str, reason: str, message: str, /) -> None:
        """Collect it."""
        self.occurrences.append(Occurrence(about, event_type, reason, message))


class _Queued(NamedTuple):
    component: str
    moment: datetime
    occurrence: Occurrence


class EventBroadcaster:
    """Writes what its recorders record, from entering it as an async context manager until leaving it.

    What is recorded before waits. What was not written at the end is dropped. Belongs to one event loop.

    Args:
        client: Writes the Events; recording shares its rate limit.
        clock: Stamps and spaces events.
        verbosity: From which verbosity on each event is also logged.

    Raises:
        BaseExceptionGroup: on leaving; the writing task broke, by a bug or by a FencedError. It cancels the body.
    """

    def __init__(self, client: Client, *, clock: Clock = REAL, verbosity: int = 3) -> None:
        self._client = client
        self._clock = clock
        self._verbosity = verbosity
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue(MAX_QUEUED_EVENTS)
        self._correlator = EventCorrelator(clock)
        self._last_stamp = 0
        self._stopped = False
        self._tasks = asyncio.TaskGroup()
        self._consumer: asyncio.Task[None] | None = None

    def recorder(self, component: str) -> EventRecorder:
        """A recorder whose events come from this component."""
        return _BroadcastingRecorder(self, component)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._consumer = self._tasks.create_task(self._consume(), name="event broadcaster")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        if self._consumer is not None:
            self._consumer.cancel()
        await self._tasks.__aexit__(None, None, None)  # told of an error of the body, it would wrap it

    def record(self, component: str, occurrence: Occurrence) -> None:
        """Log an occurrence and queue it to be written. Returns at once and never raises."""
        about, event_type, reason, message = occurrence
        if event_type not in {NORMAL, WARNING}:
            log.error("Unsupported event type", eventType=event_type)
            return
        if self._stopped:
            log.error("Unable to record event (will not retry!)", err="broadcaster already stopped")
            return
        if log.enabled(self._verbosity):
            log.info(
                "Event occurred",
                v=self._verbosity,
                object=f"{about.namespace}/{about.name}" if about.namespace else about.name,
                fieldPath=about.field_path,
                kind=about.kind,
                apiVersion=about.api_version,
                type=event_type,
                reason=reason,
                message=message,
            )
        try:
            self._queue.put_nowait(_Queued(component, self._clock.now(), occurrence))
        except asyncio.QueueFull:
            log.error("Unable to record event: too many queued events, dropped event", event=occurrence)

    async def _consume(self) -> None:
        while True:
            component, moment, occurrence = await self._queue.get()
            event = self._correlator.correlate(make_event(component, occurrence, moment, self._stamp(moment)))
            if event is not None:
                await self._write(event)
            else:
                await asyncio.sleep(0)  # a flood that is left out must not hold the event loop

    def _stamp(self, moment: datetime) -> int:
        """Nanoseconds since 1970, made unique where the clock is too coarse for that: Events are named by them."""
        nanoseconds = (moment - _EPOCH) // _MICROSECOND * 1000
        self._last_stamp = max(nanoseconds, self._last_stamp + 1)
        return self._last_stamp

    async def _write(self, event: Event) -> None:
        """Write an event, again and again while the server cannot be reached (event.go:recordToSink)."""
        for attempt in range(1, MAX_TRIES_PER_EVENT + 1):
            if await self._try_to_write(event):
                return
            if attempt == MAX_TRIES_PER_EVENT:
                break
            delay = random.uniform(0, SLEEP_DURATION) if attempt == 1 else SLEEP_DURATION
            try:
                await asyncio.sleep(delay)
            except asyncio.CancelledError:
                log.error("Unable to write event (broadcaster is shut down)", event=_printable(event))
                raise
        log.error("Unable to write event (retry limit exceeded!)", event=_printable(event))

    async def _try_to_write(self, event: Event) -> bool:
        """Try once; False if it is worth trying again (event.go:recordEvent)."""
        try:
            await self._send(event)
        except TransportError as error:
            log.error("Unable to write event (may retry after sleeping)", err=error, event=_printable(event))
            return False
        except StatusError as error:
            if is_already_exists(error) or is_namespace_terminating(error):
                log.info("Server rejected event (will not retry!)", v=5, event=_printable(event), err=error)
            else:
                log.error("Server rejected event (will not retry!)", err=error, event=_printable(event))
        return True

    async def _send(self, event: Event) -> None:
        meta = event.metadata
        if event.count > 1:
            path = EVENTS.path(meta.namespace, meta.name)
            try:
                await self._client.request("PATCH", path, body=_patch(event), content_type=STRATEGIC_MERGE_PATCH)
            except StatusError as error:
                if not is_not_found(error):
                    raise
            else:
                return
        await self._client.request("POST", EVENTS.path(meta.namespace), body=event)


class _BroadcastingRecorder:
    def __init__(self, broadcaster: EventBroadcaster, component: str) -> None:
        self._broadcaster = broadcaster
        self._component = component

    def event(self, about: ObjectReference, event_type: str, reason: str, message: str, /) -> None:
        self._broadcaster.record(self._component, Occurrence(about, event_type, reason, message))


def make_event(component: str, occurrence: Occurrence, moment: datetime, stamp: int) -> Event:
    """The Event of something that happened for the first time (event.go:makeEvent)."""
    about = occurrence.about
    second = moment.replace(microsecond=0)
    return Event(
        api_version=EVENTS.api_version,
        kind=EVENTS.kind,
        metadata=ObjectMeta(name=event_name(about.name, stamp), namespace=about.namespace or "default"),
        involved_object=about,
        reason=occurrence.reason,
        message=occurrence.message,
        source=EventSource(component=component),
        first_timestamp=second,
        last_timestamp=second,
        count=1,
        type=occurrence.type,
        reporting_component=component,
    )


def event_name(object_name: str, stamp: int) -> str:
    """`<object>.<stamp in hex>`, or a random UUID where that is no name for an object (util.go:GenerateEventName)."""
    name = f"{object_name}.{stamp:x}"
    return name if len(name) <= 253 and _DNS_1123_SUBDOMAIN.fullmatch(name) else str(uuid.uuid4())


def _patch(event: Event) -> Document:
    """What a repetition changes about an Event."""
    patch: Document = {"count": event.count, "lastTimestamp": event.last_timestamp}
    set_or_drop(patch, "message", event.message)
    return patch


def _printable(event: Event) -> Document:
    document: Document = msgspec.to_builtins(event)
    return document
