"""The queue between handlers and workers. Follows client-go util/workqueue/{queue,delaying_queue,rate_limiting_queue}.go.

The reference stacks three queues (plain, delaying, rate-limiting); every controller uses the whole stack, so it is one class
here. Where the reference needs locks and goroutines, everything but `get` is a plain call here, and one timer of the event
loop stands for the goroutine that waits for delayed keys. The package says what is guaranteed.
"""

import asyncio
import heapq
import itertools
from collections import deque
from contextlib import suppress
from typing import Protocol

from kcm.clock import REAL, Clock
from kcm.workqueue.rate_limiters import RateLimiter, default_controller_rate_limiter

#: Superseded deadlines that may lie in the heap before it is rebuilt without them, besides one for each live deadline.
_MAX_SUPERSEDED = 64

#: When a key is due, on the loop's clock; a number that keeps the order of equal deadlines; the key.
_Delayed = tuple[float, int, str]


class ShutDown(Exception):  # noqa: N818 - an end, not an error; named like asyncio.QueueShutDown
    """The queue is shut down and has no key left to hand out."""


class QueueMetrics(Protocol):
    """What a queue tells of itself (metrics.go); all times in seconds."""

    def adds(self) -> None:
        """A key was added that was not waiting yet."""

    def depth(self, count: int) -> None:
        """This many keys wait for a run, those included that wait for the end of the one going on."""

    def queue_latency(self, seconds: float) -> None:
        """A key was handed out this long after it was added."""

    def work_duration(self, seconds: float) -> None:
        """A worker was done with a key after this long."""

    def unfinished_work(self, seconds: float) -> None:
        """Workers have held the keys that they hold for this long in sum."""

    def longest_running(self, seconds: float) -> None:
        """A worker has held a key for this long, and none for longer."""

    def retries(self) -> None:
        """A key was added with a delay, even one of zero."""


class NoQueueMetrics:
    """Tells nobody."""

    def adds(self) -> None:
        """Drop it."""

    def depth(self, count: int) -> None:
        """Drop it."""

    def queue_latency(self, seconds: float) -> None:
        """Drop it."""

    def work_duration(self, seconds: float) -> None:
        """Drop it."""

    def unfinished_work(self, seconds: float) -> None:
        """Drop it."""

    def longest_running(self, seconds: float) -> None:
        """Drop it."""

    def retries(self) -> None:
        """Drop it."""


class Queue:
    """Keys that wait for a worker, at once or after a delay.

    Args:
        name: Names the queue; one without a name has no metrics.
        limiter: Delays what is added with `add_rate_limited`.
        metrics: Is told what happens.
        clock: Times the metrics. Delays run on the event loop's own clock.
    """

    def __init__(
        self,
        name: str,
        *,
        limiter: RateLimiter | None = None,
        metrics: QueueMetrics | None = None,
        clock: Clock = REAL,
    ) -> None:
        self.name = name
        self.limiter = limiter or default_controller_rate_limiter(clock=clock)
        self._metrics: QueueMetrics = metrics if metrics is not None and name else NoQueueMetrics()
        self._clock = clock
        self._queue: deque[str] = deque()
        #: Keys that wait for a run, with the time when they were added: those in the queue, and those which are processed
        #: now and go back into it after that.
        self._dirty: dict[str, float] = {}
        #: Keys that workers hold, with the time since when.
        self._processing: dict[str, float] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shutting_down = False
        self._draining = False
        self._idle = asyncio.Event()
        self._delayed: list[_Delayed] = []
        #: The deadline that counts for each delayed key; the heap may hold later ones that it superseded.
        self._deadlines: dict[str, _Delayed] = {}
        self._sequence = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        """The number of keys that could be handed out now."""
        return len(self._queue)

    def add(self, key: str) -> None:
        """Have the key run, once more if it is running; do nothing if that is coming anyway or the queue is shut down."""
        if self._shutting_down or key in self._dirty:
            return
        self._dirty[key] = self._clock.monotonic()
        self._metrics.adds()
        self._metrics.depth(len(self._dirty))
        if key not in self._processing:
            self._push(key)

    async def get(self) -> str:
        """Wait for the next key and hold it until `done`. A cancelled `get` has taken nothing.

        Returns at once while there are keys, without letting other tasks run.

        Raises:
            ShutDown: the queue is shut down and empty.
        """
        while not self._queue:
            if self._shutting_down:
                raise ShutDown(self.name)
            await self._wait_for_key()
        key = self._queue.popleft()
        now = self._clock.monotonic()
        added = self._dirty.pop(key)
        self._processing[key] = now
        self._metrics.depth(len(self._dirty))
        self._metrics.queue_latency(now - added)
        return key

    def done(self, key: str) -> None:
        """Let go of a key; if it was added meanwhile it becomes due now. Belongs into a `finally` around the work.

        Raises:
            KeyError: nobody holds the key.
        """
        started = self._processing.pop(key)
        self._metrics.work_duration(self._clock.monotonic() - started)
        if key in self._dirty:
            self._push(key)
        elif not self._processing:
            self._idle.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after a delay, at once if that is not positive; of several delays the one that ends first counts."""
        if self._shutting_down:
            return
        self._metrics.retries()
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        known = self._deadlines.get(key)
        if known is not None and known[0] <= due:
            return
        entry = (due, next(self._sequence), key)
        self._deadlines[key] = entry
        heapq.heappush(self._delayed, entry)
        if len(self._delayed) > 2 * len(self._deadlines) + _MAX_SUPERSEDED:
            self._delayed = sorted(self._deadlines.values())
        self._arm(loop)

    def add_rate_limited(self, key: str) -> None:
        """Add the key after the delay that the limiter gives it."""
        self.add_after(key, self.limiter.when(key))

    def forget(self, key: str) -> None:
        """Have the limiter forget the key's failures; a delay that runs already goes on."""
        self.limiter.forget(key)

    def num_requeues(self, key: str) -> int:
        """How often the key was added with `add_rate_limited` since it was last forgotten."""
        return self.limiter.num_requeues(key)

    def shut_down(self) -> None:
        """Take no more keys and drop the delayed ones; what is queued is still handed out. Ends a drain that waits."""
        self._close()
        self._draining = False
        self._idle.set()

    async def shut_down_with_drain(self) -> None:
        """Shut down and wait until no worker holds a key; a key that goes back into the queue at `done` runs before that."""
        self._close()
        self._draining = True
        while self._processing and self._draining:
            self._idle.clear()
            await self._idle.wait()

    def refresh_metrics(self) -> None:
        """Tell the metrics how long the running work has taken so far; the reference does so every 500 ms."""
        if self._shutting_down:
            return
        now = self._clock.monotonic()
        ages = [now - started for started in self._processing.values()]
        self._metrics.unfinished_work(sum(ages))
        self._metrics.longest_running(max(ages, default=0.0))

    def _push(self, key: str) -> None:
        self._queue.append(key)
        self._wake_getter()

    def _wake_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    async def _wait_for_key(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter.cancelled():
                with suppress(ValueError):
                    self._getters.remove(getter)
            else:  # woken for a key that it will not take: the next in line must
                self._wake_getter()
            raise

    def _close(self) -> None:
        self._shutting_down = True
        self._delayed.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._getters:
            self._wake_getter()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the timer run at the earliest deadline."""
        due = self._delayed[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._release, loop)
        self._timer_due = due

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Add the keys that are due."""
        self._timer = None
        now = max(loop.time(), self._timer_due)  # loops run timers up to their resolution early
        while self._delayed:
            entry = self._delayed[0]
            due, _, key = entry
            live = self._deadlines.get(key) is entry
            if live and due > now:
                self._arm(loop)
                return
            heapq.heappop(self._delayed)
            if live:
                del self._deadlines[key]
                self.add(key)
