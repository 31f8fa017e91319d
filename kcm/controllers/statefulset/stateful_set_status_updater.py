"""Writing a StatefulSet's status. Follows pkg/controller/statefulset/stateful_set_status_updater.go."""

from kcm.api.client import Client
from kcm.api.resources import STATEFUL_SETS
from kcm.api.types.apps import StatefulSet, StatefulSetStatus, status_document
from kcm.consistency import ConsistencyStore
from kcm.controllers.retry import DEFAULT_RETRY, retry_on_conflict
from kcm.informers.store import Indexer
from kcm.logs import get_logger

log = get_logger(__name__)


class StatefulSetStatusUpdater:
    """Writes statuses, and notes their versions.

    Args:
        client: Writes them.
        stateful_sets: The cache, read again after a conflict.
        consistency: Told of the versions of written StatefulSets.
    """

    def __init__(self, *, client: Client, stateful_sets: Indexer[StatefulSet], consistency: ConsistencyStore) -> None:
        self._client = client
        self._stateful_sets = stateful_sets
        self._consistency = consistency

    async def update(self, stateful_set: StatefulSet, status: StatefulSetStatus) -> None:
        """PUT a status; after a conflict the same one, on the StatefulSet of this name that is cached by then.

        Raises:
            StatusError: refused, or still a conflict at the last try.
            TransportError: no answer.
        """
        meta = stateful_set.metadata

        async def attempt() -> None:
            nonlocal stateful_set
            body = stateful_set.document() | {"status": status_document(status)}
            try:
                written = await self._client.update(
                    STATEFUL_SETS, meta.namespace, meta.name, body, subresource="status"
                )
            except Exception:
                newest = self._stateful_sets.get(meta.key)
                if newest is None:
                    log.error("Error getting updated StatefulSet from cache", statefulSet=meta.key)
                else:
                    stateful_set = newest
                raise
            self._consistency.wrote_at(
                written.metadata.key,
                written.metadata.uid,
                STATEFUL_SETS.group_resource,
                written.metadata.resource_version,
            )

        await retry_on_conflict(DEFAULT_RETRY, attempt)
