"""The second thread: its event loop serves HTTPS and holds the Lease, whatever the controllers' loop is doing.

Only `kcm.controllermanager` uses it. What it shares with the controllers' thread is little and of two kinds: plain values
that one side writes and the other reads (the elector's fence, the heartbeat), and calls that each side has the other's loop
make (`call_soon_threadsafe`).
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack

from kcm.logs import get_logger

log = get_logger(__name__)

#: Seconds between two measurements of an event loop's lag.
BEAT = 0.1


class Heartbeat:
    """Shows that an event loop moves, to other threads and to the metrics."""

    def __init__(self, observe: Callable[[float], None], *, monotonic: Callable[[], float]) -> None:
        self._observe = observe
        self._monotonic = monotonic
        self._last = monotonic()

    @property
    def age(self) -> float:
        """Seconds since the loop last moved; may be asked in any thread."""
        return self._monotonic() - self._last

    async def run(self, each: Callable[[], None] = lambda: None) -> None:
        """Beat until cancelled, and call `each` at every beat."""
        while True:
            asked = self._monotonic()
            await asyncio.sleep(BEAT)
            self._last = self._monotonic()
            self._observe(max(0.0, self._last - asked - BEAT))
            each()


class ControlThread:
    """Runs one async function in a thread with an event loop of its own.

    Args:
        main: Gets a stack for what it opens, and a function to call once it is up; runs until cancelled.
        on_end: Told how it ended, in this thread: None after `stop`, else the exception that ended it.
    """

    def __init__(
        self,
        main: Callable[[AsyncExitStack, Callable[[], None]], Awaitable[None]],
        *,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._main = main
        self._on_end = on_end
        self._up: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="kcm-control", daemon=True)

    async def start(self) -> None:
        """Start it and wait until it is up.

        Raises:
            Exception: whatever kept it from coming up.
        """
        self._thread.start()
        await asyncio.wrap_future(self._up)

    async def stop(self) -> None:
        """Cancel what runs and wait until it ended."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself, and closed its loop
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            asyncio.run(self._supervise())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - whoever started the thread decides what an end means
            end = error
        if not self._up.done():
            self._up.set_exception(end or RuntimeError("the control thread ended before it was up"))
        else:
            self._on_end(end)

    async def _supervise(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._stopped:  # before there was anything to cancel
            return
        async with AsyncExitStack() as stack:
            await self._main(stack, lambda: self._up.set_result(None))
