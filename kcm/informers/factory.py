"""One informer per resource, shared by all controllers. Follows client-go informers/factory.go."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kcm.api.client import Client
from kcm.api.resources import Resource
from kcm.api.types.meta import Object
from kcm.informers.metrics import InformerMetrics, NoMetrics
from kcm.informers.shared_informer import SharedInformer

T = TypeVar("T", bound=Object)


class SharedInformerFactory:
    """Makes informers on demand; `run` keeps those that were asked for before it started."""

    def __init__(
        self,
        client: Client,
        *,
        resync_period: float = 0,
        metrics: Callable[[Resource[Any]], InformerMetrics] = lambda _: NoMetrics(),
    ) -> None:
        self._client = client
        self._resync_period = resync_period
        self._metrics = metrics
        self._informers: dict[str, SharedInformer[Any]] = {}

    def informer(self, resource: Resource[T]) -> SharedInformer[T]:
        """The shared informer of a resource."""
        key = resource.group_resource
        if key not in self._informers:
            self._informers[key] = SharedInformer(
                self._client, resource, resync_period=self._resync_period, metrics=self._metrics(resource)
            )
        return cast("SharedInformer[T]", self._informers[key])

    @property
    def unsynced(self) -> list[str]:
        """The resources whose caches are not filled yet."""
        return [name for name, informer in self._informers.items() if not informer.has_synced]

    async def run(self) -> None:
        """Run all informers until cancelled.

        Raises:
            ExceptionGroup: one of them broke.
        """
        async with asyncio.TaskGroup() as tasks:
            for name, informer in self._informers.items():
                tasks.create_task(informer.run(), name=f"informer {name}")
