"""What all controllers do alike: run workers over a queue. Follows the Run and worker functions of pkg/controller."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from kcm.api.types.core import Pod
from kcm.api.types.meta import ObjectMeta
from kcm.clock import REAL
from kcm.informers.pacing import Pacer
from kcm.informers.store import Indexer
from kcm.logs import get_logger
from kcm.workqueue.queue import Queue, ShutDown

log = get_logger(__name__)

POD_CONTROLLER_INDEX = "podController"


class Cache(Protocol):
    """What must be filled before workers start."""

    async def wait_synced(self) -> None:
        """Return once filled."""
        ...


class SyncMetrics(Protocol):
    """What a controller tells of its syncs."""

    def sync_failed(self, *, controller: str, reason: str) -> None:
        """A sync raised; the reason is the exception's class."""


class NoSyncMetrics:
    """Tells nobody."""

    def sync_failed(self, *, controller: str, reason: str) -> None:
        """Drop it."""


class Controller:
    """Workers that sync the keys of one queue, each key by one worker at a time.

    A sync that raises is logged, counted and retried with growing delay; what raises outside of a sync ends `run`.
    """

    def __init__(self, name: str, queue: Queue, caches: Sequence[Cache], *, metrics: SyncMetrics | None = None) -> None:
        #: Canonical name, as in --controllers.
        self.name = name
        self.queue = queue
        self._caches = caches
        self._metrics: SyncMetrics = metrics or NoSyncMetrics()
        self._log = log.bind(controller=self.name)

    async def sync(self, key: str) -> None:
        """Bring the object with this key, `namespace/name`, one step nearer to its spec."""
        raise NotImplementedError

    def handle_error(self, key: str, error: Exception) -> None:
        """Decide what becomes of a key whose sync failed; by default it is retried for ever."""
        self._log.error("Sync failed", key=key, err=error)
        self.queue.add_rate_limited(key)

    async def run(self, workers: int) -> None:
        """Sync until cancelled; no worker starts before the caches are filled.

        Raises:
            ExceptionGroup: a worker broke outside of a sync.
        """
        self._log.info("Starting controller", v=0)
        try:
            for cache in self._caches:
                await cache.wait_synced()
            async with asyncio.TaskGroup() as tasks:
                for number in range(workers):
                    tasks.create_task(self._work(), name=f"{self.name} worker {number}")
        finally:
            self.queue.shut_down()
            self._log.info("Shutting down controller", v=0)

    async def _work(self) -> None:
        pacer = Pacer(REAL)
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self.process(key)
            finally:
                self.queue.done(key)
            # Neither a queue that is not empty nor a sync that writes nothing lets others run.
            await pacer.pause_if_due()

    async def process(self, key: str) -> None:
        """Sync one key and settle what its queue remembers of it."""
        try:
            await self.sync(key)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in one sync concerns that key only
            self._metrics.sync_failed(controller=self.name, reason=type(error).__name__)
            self.handle_error(key, error)
        else:
            self.queue.forget(key)


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a key (client-go tools/cache/store.go:SplitMetaNamespaceKey).

    Raises:
        ValueError: more than one slash.
    """
    parts = key.split("/")
    if len(parts) > 2:
        raise ValueError(f'unexpected key format: "{key}"')
    return (parts[0], parts[1]) if len(parts) == 2 else ("", parts[0])


def pods_of(pods: Indexer[Pod], kind: str, owner: ObjectMeta, *, orphans: bool = False) -> list[Pod]:
    """The pods that an owner controls, and after them the namespace's orphans (controller_utils.go:FilterPodsByOwner).

    Raises:
        ValueError: the owner lacks what identifies it.
    """
    for part, value in (("namespace", owner.namespace), ("name", owner.name), ("uid", owner.uid), ("kind", kind)):
        if not value:
            raise ValueError(f"no owner {part} provided")
    found = pods.by_index(POD_CONTROLLER_INDEX, pod_index_key(owner.namespace, kind, owner.name, owner.uid))
    return found + pods.by_index(POD_CONTROLLER_INDEX, pod_index_key(owner.namespace)) if orphans else found


def pod_index_key(namespace: str, kind: str = "", name: str = "", uid: str = "") -> str:
    """Index value of the pods that an owner controls; of a namespace's orphans without an owner."""
    return f"{namespace}/{kind}/{name}/{uid}" if uid else namespace


def pod_controller_index(pod: Pod) -> Iterable[str]:
    """Index pods by their controlling owner (controller_utils.go:AddPodControllerIndexer)."""
    owner = pod.metadata.controller
    if owner is None:
        return (pod_index_key(pod.metadata.namespace),)
    return (pod_index_key(pod.metadata.namespace, owner.kind, owner.name, owner.uid),)
