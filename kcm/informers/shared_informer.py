"""One store and its handlers for a resource. Follows client-go tools/cache/{shared_informer,controller}.go.

Handlers are plain functions, called inline after the store changed, so order and one-at-a-time hold by construction; the
informer lets the event loop run in between whenever it has held it for a few milliseconds.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kcm.api.client import Client
from kcm.api.resources import Resource
from kcm.api.types.meta import Object
from kcm.clock import REAL, Clock
from kcm.informers.metrics import InformerMetrics, NoMetrics
from kcm.informers.pacing import Pacer
from kcm.informers.reflector import Reflector
from kcm.informers.store import Indexer, IndexFunc, Tombstone
from kcm.logs import get_logger

T = TypeVar("T", bound=Object)
log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Handler(Generic[T]):
    on_add: Callable[[T], None]
    on_update: Callable[[T, T], None]
    on_delete: Callable[[T | Tombstone[T]], None]


def _ignore(*_: object) -> None:
    pass


class SharedInformer(Generic[T]):
    """Keeps a store of all objects of a resource and tells handlers of every change."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        resync_period: float = 0,
        metrics: InformerMetrics | None = None,
        clock: Clock = REAL,
    ) -> None:
        self.resource = resource
        self.store: Indexer[T] = Indexer()
        self._resync_period = resync_period
        self._handlers: list[_Handler[T]] = []
        self._synced = asyncio.Event()
        self._clock = clock
        self._pacer = Pacer(clock)
        self._metrics: InformerMetrics = metrics or NoMetrics()
        self._reflector = Reflector(client, resource, self, pacer=self._pacer, metrics=self._metrics, clock=clock)

    @property
    def has_synced(self) -> bool:
        """Whether the first snapshot is stored and the handlers have seen it."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once `has_synced`."""
        await self._synced.wait()

    def add_index(self, name: str, func: IndexFunc[T]) -> None:
        """Add an index to the store; see `Indexer.add_index`."""
        self.store.add_index(name, func)

    def add_handler(
        self,
        *,
        on_add: Callable[[T], None] = _ignore,
        on_update: Callable[[T, T], None] = _ignore,
        on_delete: Callable[[T | Tombstone[T]], None] = _ignore,
    ) -> None:
        """Tell these functions of changes from now on, and first of each object that is stored already.

        They must not wait, do I/O or raise: an exception ends the informer.
        """
        self._handlers.append(_Handler(on_add, on_update, on_delete))
        for obj in self.store:
            on_add(obj)

    async def run(self) -> None:
        """List and watch until cancelled.

        Raises:
            ExceptionGroup: a handler raised, or the reflector broke; the store must not be trusted any more.
        """
        self._metrics.started(
            store_version=lambda: self.store.resource_version, silence=lambda: self._reflector.silence
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name=f"reflector {self.resource.group_resource}")
            if self._resync_period > 0:
                tasks.create_task(self._resync(), name=f"resync {self.resource.group_resource}")

    def new_snapshot(self) -> Indexer[T]:
        """An empty store for the reflector to collect a snapshot in."""
        return self.store.empty_copy()

    async def replace(self, snapshot: Indexer[T]) -> None:
        """Take over a full snapshot and tell the handlers what differs: first what vanished, then the rest."""
        before = self.store.swap(snapshot)
        await self._announce(before, self.store.items())
        if not self._synced.is_set():
            log.info("Caches populated", v=2, type=self.resource.kind, count=len(self.store))
            self._synced.set()

    async def apply(self, event: str, obj: T) -> None:
        """Store one watched change (ADDED, MODIFIED or DELETED) and tell the handlers."""
        started = self._clock.monotonic()
        self.store.resource_version = obj.metadata.resource_version
        if event == "DELETED":
            self.store.remove(obj.metadata.key)
            for handler in self._handlers:
                handler.on_delete(obj)
        else:
            old = self.store.put(obj)
            for handler in self._handlers:
                if old is None:
                    handler.on_add(obj)
                else:
                    handler.on_update(old, obj)
        self._metrics.processed(self._clock.monotonic() - started)
        await self._pacer.pause_if_due()

    def bookmark(self, resource_version: str) -> None:
        """Note that nothing changed up to this version."""
        self.store.resource_version = resource_version

    async def _announce(self, before: Mapping[str, T], now: Mapping[str, T]) -> None:
        for key, old in before.items():
            if key not in now:
                for handler in self._handlers:
                    handler.on_delete(Tombstone(key, old))
                await self._pacer.pause_if_due()
        for key, obj in now.items():
            previous = before.get(key)
            for handler in self._handlers:
                if previous is None:
                    handler.on_add(obj)
                else:
                    handler.on_update(previous, obj)
            await self._pacer.pause_if_due()

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_period)
            for known in self.store:
                if (obj := self.store.get(known.metadata.key)) is not None:
                    for handler in self._handlers:
                        handler.on_update(obj, obj)
                    await self._pacer.pause_if_due()
