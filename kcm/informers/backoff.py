"""Waits that grow while things go wrong. Follows apimachinery pkg/util/wait/backoff.go:backoffManager."""

import random
from collections.abc import Callable

from kcm.clock import REAL, Clock


class Backoff:
    """Doubling waits with jitter, which start over after the last one lies `reset` seconds back.

    Each wait is the base plus a random share of `jitter` times the base.
    """

    def __init__(
        self,
        *,
        first: float = 0.8,
        most: float = 30.0,
        factor: float = 2.0,
        jitter: float = 1.0,
        reset: float = 120.0,
        clock: Clock = REAL,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first, self._most, self._factor, self._jitter, self._reset = first, most, factor, jitter, reset
        self._clock = clock
        self._uniform = uniform
        self._base = first
        self._last = clock.monotonic()

    def next(self) -> float:
        """The seconds to wait now."""
        now = self._clock.monotonic()
        if now - self._last > self._reset:
            self._base = self._first
        self._last = now
        base = self._base
        self._base = min(base * self._factor, self._most)
        return base + self._uniform(0.0, self._jitter) * base
