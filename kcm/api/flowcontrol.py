"""The token bucket in front of every client. Follows client-go util/flowcontrol/throttle.go and golang.org/x/time/rate."""

import asyncio

from kcm.clock import REAL, Clock

#: What a configuration without a rate gets (client-go rest/config.go:DefaultQPS, DefaultBurst).
DEFAULT_QPS, DEFAULT_BURST = 5.0, 10


class TokenBucket:
    """Lets `qps` requests a second pass, and `burst` at once after quiet.

    Waiters pass in the order of their arrival. One that is cancelled gives its place back if nobody queued behind it, as
    the reference's does. Not thread-safe: a bucket belongs to one event loop. A negative `qps` never makes anyone wait.
    """

    def __init__(self, qps: float, burst: int, *, clock: Clock = REAL) -> None:
        if qps == 0:
            qps, burst = DEFAULT_QPS, DEFAULT_BURST
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._last = clock.monotonic()
        self._latest_slot = self._last

    def reserve(self) -> float:
        """Take one token, now or in advance, and return the seconds until it may be used."""
        if self._qps < 0:
            return 0.0
        self._refill()
        self._tokens -= 1.0
        delay = max(0.0, -self._tokens / self._qps)
        self._latest_slot = self._last + delay
        return delay

    def try_accept(self) -> bool:
        """Take one token if there is one."""
        if self._qps < 0:
            return True
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    async def wait(self) -> float:
        """Wait for a token and return the seconds waited."""
        delay = self.reserve()
        if delay <= 0:
            return 0.0
        slot = self._latest_slot
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self._tokens += max(0.0, 1.0 - (self._latest_slot - slot) * self._qps)
            raise
        return delay

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._last) * self._qps)
        self._last = now
