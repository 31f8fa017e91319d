"""Sharing the event loop: long work pauses every few milliseconds so that nothing else waits for it."""

import asyncio

from kcm.clock import Clock

#: Seconds that work on many objects may hold the event loop at a stretch.
SLICE = 0.005


class Pacer:
    """Lets a loop over many items pause when it has held the event loop for long enough."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resumed = clock.monotonic()

    async def pause_if_due(self) -> None:
        """Let others run if this task has run for a slice since it last did."""
        if self._clock.monotonic() - self._resumed >= SLICE:
            await asyncio.sleep(0)
            self._resumed = self._clock.monotonic()

    def resume(self) -> None:
        """Note that the task just waited for something else."""
        self._resumed = self._clock.monotonic()
