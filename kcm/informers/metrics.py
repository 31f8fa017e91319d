"""What an informer tells of itself. Follows client-go tools/cache/informer_metrics.go."""

from collections.abc import Callable
from typing import Protocol


class InformerMetrics(Protocol):
    """Where one informer's figures go."""

    def started(self, *, store_version: Callable[[], str], silence: Callable[[], float]) -> None:
        """It runs; ask it for the version of its store, and for the seconds since the server last sent it anything."""

    def snapshot(self, reason: str) -> None:
        """It begins a snapshot: at its `start`, or because the last round ended for this reason."""

    def processed(self, seconds: float) -> None:
        """All handlers have heard of a change, in so many seconds."""


class NoMetrics:
    """Tells nobody."""

    def started(self, *, store_version: Callable[[], str], silence: Callable[[], float]) -> None:
        """Drop it."""

    def snapshot(self, reason: str) -> None:
        """Drop it."""

    def processed(self, seconds: float) -> None:
        """Drop it."""
