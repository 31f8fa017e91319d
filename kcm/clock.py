"""One clock for everything that measures or stamps time, so that tests can move it.

Follows k8s.io/utils/clock. Intervals, deadlines and buckets use `monotonic`; only timestamps that are written to the API
or compared with ones read from it use `now`.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the rest of kcm asks the time of."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...

    def now(self) -> datetime:
        """Wall-clock time, in UTC and timezone-aware."""
        ...


class RealClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC, which goes on while the process is stopped."""
        return time.monotonic()

    def now(self) -> datetime:
        """The machine's wall-clock time in UTC."""
        return datetime.now(UTC)


REAL: Clock = RealClock()
