"""Mirrors one resource: a snapshot, then an endless series of bounded watches. Follows client-go tools/cache/reflector.go.

A round takes a snapshot (a watch that streams it, else a paged list) and watches from there until something goes wrong;
then comes a wait with back-off and the next round. A watch that the server ends in good order is just opened again.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec

from kcm.api.client import Client
from kcm.api.errors import (
    Status,
    StatusError,
    TransportError,
    is_resource_expired,
    is_too_large_resource_version,
    is_too_many_requests,
)
from kcm.api.resources import Resource
from kcm.api.types.meta import Object, ObjectMeta
from kcm.clock import REAL, Clock
from kcm.informers.backoff import Backoff
from kcm.informers.frames import FrameSplitter
from kcm.informers.metrics import InformerMetrics
from kcm.informers.pacing import Pacer
from kcm.informers.store import Indexer
from kcm.logs import get_logger

T = TypeVar("T", bound=Object)
log = get_logger(__name__)

#: Seconds that the server keeps a watch open: drawn anew between this and twice this for each.
MIN_WATCH_TIMEOUT = 300
#: Seconds without a byte after which a watch is replaced; bookmarks come about once a minute.
MAX_SILENCE = 180.0
#: A watch shorter than this that brought nothing is a failure.
SHORT_WATCH = 1.0
PAGE_SIZE = 500
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Sink(Protocol[T]):
    """Where a reflector puts what it learns."""

    def new_snapshot(self) -> Indexer[T]:
        """An empty store to collect a snapshot in."""
        ...

    async def replace(self, snapshot: Indexer[T]) -> None:
        """Everything there is, at `snapshot.resource_version`."""
        ...

    async def apply(self, event: str, obj: T) -> None:
        """One change."""
        ...

    def bookmark(self, resource_version: str) -> None:
        """No change up to this version."""
        ...


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class WatchError(Exception):
    """A watch that ended this round: too short, or not to be understood."""


class Reflector(Generic[T]):
    """Keeps a sink as new as the server lets it."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        sink: Sink[T],
        *,
        pacer: Pacer,
        metrics: InformerMetrics,
        clock: Clock = REAL,
    ) -> None:
        self._client = client
        self._resource = resource
        self._sink = sink
        self._clock = clock
        self._backoff = Backoff(clock=clock)
        self._pacer = pacer
        self._metrics = metrics
        self._heard = clock.monotonic()
        self._resource_version = ""
        self._unusable_version = False
        self._paged = False
        self._log = log.bind(type=resource.kind)

    @property
    def silence(self) -> float:
        """Seconds since the server last sent anything."""
        return self._clock.monotonic() - self._heard

    async def run(self) -> None:
        """Reflect until cancelled; only what a sink raises gets out."""
        self._metrics.snapshot("start")
        while True:
            try:
                await self._round()
            except (StatusError, TransportError, WatchError, msgspec.MsgspecError) as error:
                if is_resource_expired(error):
                    self._log.info("Watch expired", v=4, err=str(error))
                else:
                    self._log.error("Failed to watch", err=error)
                reason = _reason(error)
            await asyncio.sleep(self._backoff.next())
            self._metrics.snapshot(reason)

    async def _round(self) -> NoReturn:
        async with self._patience(), self._stream_snapshot() as stream:
            if stream is not None:
                await self._follow(stream)
        if stream is None:
            await self._list()
        while True:
            async with self._patience(), self._watch(self._watch_params()) as events:
                await self._follow(events)

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        """Wait out a server that is away or busy, so that the same watch can be opened again."""
        try:
            yield
        except (StatusError, TransportError) as error:
            if not _passing(error):
                raise
            self._log.info("Watch refused for now", v=2, err=str(error))
            await asyncio.sleep(self._backoff.next())

    @asynccontextmanager
    async def _stream_snapshot(self) -> AsyncIterator["AsyncIterator[_Event] | None"]:
        """Take a snapshot through a watch and yield its open stream, or None if that takes a list (reflector.go:watchList)."""
        while True:
            version = "" if self._unusable_version else self._resource_version
            params = self._watch_params(version) | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            taken = False
            try:
                async with self._watch(params) as events:
                    taken = await self._collect(events)
                    if taken:
                        yield events
                        return
            except (StatusError, TransportError, WatchError, msgspec.MsgspecError) as error:
                if taken:
                    raise
                if is_resource_expired(error) or is_too_large_resource_version(error):
                    self._unusable_version = True
                elif _passing(error):
                    await asyncio.sleep(self._backoff.next())
                else:
                    self._log.info("Streamed list failed, falling back to a list", v=2, err=str(error))
                    yield None
                    return

    async def _collect(self, events: AsyncIterator[_Event]) -> bool:
        """Collect a streamed snapshot up to its closing bookmark; False when the stream ended before."""
        snapshot = self._sink.new_snapshot()
        started, received = self._clock.monotonic(), False
        async for event in events:
            received = True
            if event.type == "BOOKMARK":
                metadata = msgspec.json.decode(event.object, type=_Bookmark).metadata
                if metadata.annotations.get(INITIAL_EVENTS_END) == "true":
                    await self._take(snapshot, metadata.resource_version)
                    return True
            elif (obj := self._decode(event)) is not None:
                if event.type == "DELETED":
                    snapshot.remove(obj.metadata.key)
                else:
                    snapshot.put(obj)
                await self._pacer.pause_if_due()
        self._check_length(started, received)
        return False

    async def _list(self) -> None:
        """Take a snapshot through a paged list (reflector.go:list)."""
        version = self._resource_version or "0"
        try:
            await self._list_at("" if self._unusable_version else version)
        except StatusError as error:
            if not (is_resource_expired(error) or is_too_large_resource_version(error)):
                raise
            self._unusable_version = True
            await self._list_at("")

    async def _list_at(self, version: str) -> None:
        snapshot = self._sink.new_snapshot()
        params = {"resourceVersion": version} if version else {}
        if self._paged or version in {"", "0"}:
            params["limit"] = str(PAGE_SIZE)

        async def take(obj: T) -> None:
            self._heard = self._clock.monotonic()
            snapshot.put(obj)
            await self._pacer.pause_if_due()

        while True:
            self._pacer.resume()
            page = await self._client.list(self._resource, params=params, take=take)
            if not page.continue_:
                break
            self._paged = self._paged or version == "0"
            params = {"limit": str(PAGE_SIZE), "continue": page.continue_}
        await self._take(snapshot, page.resource_version)

    async def _take(self, snapshot: Indexer[T], resource_version: str) -> None:
        snapshot.resource_version = self._resource_version = resource_version
        self._unusable_version = False
        await self._sink.replace(snapshot)

    async def _follow(self, events: AsyncIterator[_Event]) -> None:
        """Pass on a watch's events until the server ends it (reflector.go:handleAnyWatch)."""
        started, received = self._clock.monotonic(), False
        async for event in events:
            received = True
            if event.type == "BOOKMARK":
                self._resource_version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
                self._sink.bookmark(self._resource_version)
            elif (obj := self._decode(event)) is not None:
                self._resource_version = obj.metadata.resource_version
                await self._sink.apply(event.type, obj)
        self._check_length(started, received)

    @asynccontextmanager
    async def _watch(self, params: dict[str, str]) -> AsyncIterator[AsyncIterator[_Event]]:
        async with (
            self._client.watch(self._resource, params=params, silence=MAX_SILENCE) as chunks,
            aclosing(self._events(chunks)) as events,
        ):
            yield events

    async def _events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[_Event]:
        splitter = FrameSplitter()
        decoder = msgspec.json.Decoder(_Event)
        try:
            async for chunk in chunks:
                self._pacer.resume()
                self._heard = self._clock.monotonic()
                for line in splitter.feed(chunk):
                    event = decoder.decode(line)
                    if event.type == "ERROR":
                        raise StatusError(msgspec.json.decode(event.object, type=Status))
                    yield event
        except TransportError as error:
            # A watch that breaks is as good as one that ended: what was missed comes with the next one.
            self._log.info("Watch broke off", v=1, err=str(error))

    def _decode(self, event: _Event) -> T | None:
        """The object of an event, or None for one that is to be skipped (M-026, M-027)."""
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            self._log.error("Unable to understand watch event", event=event.type)
            return None
        try:
            return self._resource.decode(event.object)
        except msgspec.ValidationError as error:
            self._log.error("Unexpected object in watch event", event=event.type, err=error)
            return None

    def _check_length(self, started: float, received: bool) -> None:
        if not received and self._clock.monotonic() - started < SHORT_WATCH:
            raise WatchError(
                "very short watch: Unexpected watch close - watch lasted less than a second and no items received"
            )

    def _watch_params(self, version: str | None = None) -> dict[str, str]:
        timeout = int(MIN_WATCH_TIMEOUT * random.uniform(1.0, 2.0))
        params = {"allowWatchBookmarks": "true", "timeoutSeconds": str(timeout)}
        version = self._resource_version if version is None else version
        return params | ({"resourceVersion": version} if version else {})


def _reason(error: Exception) -> str:
    """What ended a round, in a word."""
    if is_resource_expired(error):
        return "expired"
    if isinstance(error, StatusError):
        return "refused"
    if isinstance(error, TransportError):
        return "connection"
    return "short watch" if isinstance(error, WatchError) else "malformed"


def _passing(error: Exception) -> bool:
    """Whether the server is just not there or busy, so that the same request is worth repeating."""
    return is_too_many_requests(error) or (isinstance(error, TransportError) and error.connection_refused)
