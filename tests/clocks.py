"""Clocks that tests move."""

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class LoopClock:
    """The event loop's time, which `@pytest.mark.looptime` makes virtual."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())


class FakeClock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)
