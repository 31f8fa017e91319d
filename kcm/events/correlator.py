"""Which events are worth a request, and as what. Follows client-go tools/record/events_cache.go.

In this order: many different messages about one thing become a single event that tells of the latest; repetitions become a
higher count; and what still is too much about one object is left out. It all happens in memory, from what was recorded by this
process; three caches of fixed size forget what was not asked for longest.

Unlike the reference this does not learn from the server's answers: they can only repeat what was sent.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from kcm.api.flowcontrol import TokenBucket
from kcm.api.types.events import Event
from kcm.clock import REAL, Clock

#: Entries of each cache.
CACHE_SIZE = 4096
#: Different messages from which on they are combined.
COMBINE_FROM = 10
#: Seconds without an event after which a group starts afresh.
GROUP_TIMEOUT = 600.0
#: Events about an object that pass at once, and how many more a second.
SPAM_BURST, SPAM_QPS = 25, 1 / 300

_Key = tuple[str, ...]
_V = TypeVar("_V")


class _Latest(Generic[_V]):
    """The entries that were last written; whoever reads one writes it back, so they are the last used as well."""

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, _V] = OrderedDict()

    def get(self, key: _Key) -> _V | None:
        return self._entries.get(key)

    def put(self, key: _Key, entry: _V) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > CACHE_SIZE:
            self._entries.popitem(last=False)


@dataclass(slots=True)
class _Group:
    """Events that differ in nothing but their message."""

    last: float
    messages: dict[str, None] = field(default_factory=dict)


class _Observation(msgspec.Struct, frozen=True, gc=False):
    """An event that was seen before: the name it was given then, and how often."""

    name: str
    first_timestamp: datetime | None
    count: int


class EventCorrelator:
    """Combines, counts and filters the events of one recording client."""

    def __init__(self, clock: Clock = REAL) -> None:
        self._clock = clock
        self._groups: _Latest[_Group] = _Latest()
        self._observed: _Latest[_Observation] = _Latest()
        self._buckets: _Latest[TokenBucket] = _Latest()

    def correlate(self, event: Event) -> Event | None:
        """Give the event to write in place of a new one, or None if there are too many about its object.

        With a count above 1 it is an event that exists already, unless the server has dropped it.
        """
        subject = _subject(event)
        event, key = self._aggregate(event, subject)
        event = self._count(event, key)
        return event if self._passes(subject) else None

    def _aggregate(self, event: Event, subject: _Key) -> tuple[Event, _Key]:
        """The event itself or the combined one of its group, and what it is the same as (EventAggregator.EventAggregate)."""
        key = (*subject, event.reason, event.reporting_component)
        now = self._clock.monotonic()
        group = self._groups.get(key)
        if group is None or now - group.last > GROUP_TIMEOUT:
            group = _Group(now)
        group.last = now
        group.messages[event.message] = None
        self._groups.put(key, group)
        if len(group.messages) < COMBINE_FROM:
            return event, (*subject, event.reason, event.involved_object.field_path, event.message)
        del group.messages[next(iter(group.messages))]
        moment = self._clock.now().replace(microsecond=0)
        combined = replace(
            event,
            message=f"(combined from similar events): {event.message}",
            first_timestamp=moment,
            last_timestamp=moment,
            reporting_component="",
        )
        return combined, key

    def _count(self, event: Event, key: _Key) -> Event:
        """The event, as a repetition if it is one (eventLogger.eventObserve)."""
        known = self._observed.get(key)
        if known is not None:
            event = replace(
                event,
                metadata=replace(event.metadata, name=known.name),
                first_timestamp=known.first_timestamp,
                count=known.count + 1,
            )
        self._observed.put(key, _Observation(event.metadata.name, event.first_timestamp, event.count))
        return event

    def _passes(self, subject: _Key) -> bool:
        """Whether there are not too many events about the object (EventSourceObjectSpamFilter.Filter)."""
        bucket = self._buckets.get(subject) or TokenBucket(SPAM_QPS, SPAM_BURST, clock=self._clock)
        self._buckets.put(subject, bucket)
        return bucket.try_accept()


def _subject(event: Event) -> _Key:
    """Who tells of which object, and whether good or bad (events_cache.go:getSpamKey)."""
    about = event.involved_object
    return (
        event.source.component,
        about.kind,
        about.namespace,
        about.name,
        about.uid,
        about.api_version,
        event.type,
    )
