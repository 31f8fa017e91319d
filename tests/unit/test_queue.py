"""The work queue: what it merges, in which order it hands out, delays, shutdown, metrics, cancellation."""

import asyncio
from collections.abc import Callable

import pytest

from kcm.workqueue.queue import Queue, ShutDown
from kcm.workqueue.rate_limiters import ItemExponentialFailureRateLimiter
from tests.clocks import FakeClock


class RecordingMetrics:
    """Keeps all observations in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def adds(self) -> None:
        self.seen.append(("adds", 1))

    def depth(self, count: int) -> None:
        self.seen.append(("depth", count))

    def queue_latency(self, seconds: float) -> None:
        self.seen.append(("queue_latency", seconds))

    def work_duration(self, seconds: float) -> None:
        self.seen.append(("work_duration", seconds))

    def unfinished_work(self, seconds: float) -> None:
        self.seen.append(("unfinished_work", seconds))

    def longest_running(self, seconds: float) -> None:
        self.seen.append(("longest_running", seconds))

    def retries(self) -> None:
        self.seen.append(("retries", 1))

    def take(self) -> list[tuple[str, float]]:
        seen, self.seen = self.seen, []
        return seen


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def drain(queue: Queue) -> list[str]:
    """Take and finish all keys that wait now."""
    taken = []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        taken.append(key)
    return taken


@pytest.mark.row("M-086")
async def test_a_waiting_key_is_not_queued_again() -> None:
    queue = Queue("test")
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert len(queue) == 2
    assert await drain(queue) == ["a", "b"]


@pytest.mark.row("M-086", "D-031")
async def test_adds_during_processing_merge_into_one_run_after_done() -> None:
    queue = Queue("test")
    queue.add("a")
    assert await queue.get() == "a"
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await drain(queue) == ["a"]


@pytest.mark.row("M-087")
async def test_order_is_that_of_becoming_due() -> None:
    queue = Queue("test")
    queue.add("a")
    held = await queue.get()
    queue.add("a")
    queue.add("b")
    queue.done(held)
    queue.add("c")
    assert await drain(queue) == ["b", "a", "c"]


@pytest.mark.row("M-087")
async def test_a_held_key_is_not_handed_to_a_second_worker() -> None:
    queue = Queue("test")
    queue.add("a")
    await queue.get()
    second = asyncio.create_task(queue.get())
    queue.add("a")
    await settle()
    assert not second.done()
    queue.done("a")
    assert await second == "a"


async def test_done_without_holding_is_an_error() -> None:
    queue = Queue("test")
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")
    assert await drain(queue) == ["a"]


async def test_a_getter_waits_for_an_add() -> None:
    queue = Queue("test")
    getters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await settle()
    queue.add("a")
    queue.add("b")
    assert await asyncio.gather(*getters) == ["a", "b"]


async def test_a_cancelled_getter_takes_nothing() -> None:
    queue = Queue("test")
    getter = asyncio.create_task(queue.get())
    await settle()
    getter.cancel()
    await settle()
    assert getter.cancelled()
    queue.add("a")
    assert await drain(queue) == ["a"]


async def test_a_getter_cancelled_when_already_woken_passes_its_turn_on() -> None:
    queue = Queue("test")
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await settle()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled()


async def test_a_cancelled_worker_that_finishes_its_key_lets_it_run_again() -> None:
    queue = Queue("test")

    async def work() -> None:
        key = await queue.get()
        try:
            await asyncio.Event().wait()
        finally:
            queue.done(key)

    worker = asyncio.create_task(work())
    queue.add("a")
    await settle()
    queue.add("a")
    worker.cancel()
    await settle()
    assert worker.cancelled()
    assert await queue.get() == "a"


@pytest.mark.row("M-088")
async def test_after_shutdown_queued_keys_still_come_out_and_adds_are_ignored() -> None:
    queue = Queue("test")
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    queue.add_after("c", 0)
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


@pytest.mark.row("M-088")
async def test_shutdown_wakes_all_getters() -> None:
    queue = Queue("test")
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.shut_down()
    outcomes = await asyncio.gather(*getters, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ShutDown] * 3


@pytest.mark.row("M-088")
async def test_a_key_added_during_processing_before_shutdown_runs_again_after_it() -> None:
    queue = Queue("test")
    queue.add("a")
    await queue.get()
    queue.add("a")
    drained = asyncio.create_task(queue.shut_down_with_drain())
    await settle()
    queue.done("a")
    await settle()
    assert not drained.done()
    assert await drain(queue) == ["a"]
    await drained


@pytest.mark.row("M-088")
async def test_drain_waits_for_every_held_key() -> None:
    queue = Queue("test")
    queue.add("a")
    queue.add("b")
    await queue.get()
    await queue.get()
    drained = asyncio.create_task(queue.shut_down_with_drain())
    queue.done("a")
    await settle()
    assert not drained.done()
    queue.done("b")
    await drained


@pytest.mark.row("M-088")
async def test_a_plain_shutdown_ends_a_drain() -> None:
    queue = Queue("test")
    queue.add("a")
    await queue.get()
    drained = asyncio.create_task(queue.shut_down_with_drain())
    await settle()
    assert not drained.done()
    queue.shut_down()
    await drained


@pytest.mark.row("M-089")
@pytest.mark.looptime
async def test_a_delayed_key_comes_out_when_it_is_due() -> None:
    queue = Queue("test")
    loop = asyncio.get_running_loop()
    begin = loop.time()
    queue.add_after("late", 50)
    queue.add_after("soon", 5)
    assert await queue.get() == "soon"
    assert loop.time() - begin == pytest.approx(5)
    assert await queue.get() == "late"
    assert loop.time() - begin == pytest.approx(50)


@pytest.mark.row("M-089")
@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_delay_that_is_not_positive_adds_at_once(seconds: float) -> None:
    queue = Queue("test")
    queue.add_after("a", seconds)
    assert len(queue) == 1


@pytest.mark.row("M-089", "D-031", "R-121", "S-041")
@pytest.mark.looptime
@pytest.mark.parametrize("delays", [(5, 50), (50, 5)])
async def test_the_earlier_of_two_deadlines_counts_and_the_later_is_void(delays: tuple[float, float]) -> None:
    queue = Queue("test")
    for seconds in delays:
        queue.add_after("a", seconds)
    await asyncio.sleep(6)
    assert await drain(queue) == ["a"]
    await asyncio.sleep(100)
    assert len(queue) == 0


@pytest.mark.row("M-089")
@pytest.mark.looptime
async def test_a_superseded_deadline_does_not_release_a_later_one() -> None:
    queue = Queue("test")
    queue.add_after("a", 50)
    queue.add_after("a", 5)
    queue.add_after("b", 40)
    await asyncio.sleep(6)
    assert await drain(queue) == ["a"]
    queue.add_after("a", 100)
    await asyncio.sleep(50)
    assert await drain(queue) == ["b"]
    await asyncio.sleep(60)
    assert await drain(queue) == ["a"]


@pytest.mark.row("M-089")
@pytest.mark.looptime
async def test_a_due_key_that_is_queued_already_merges() -> None:
    queue = Queue("test")
    queue.add_after("a", 5)
    queue.add("a")
    await asyncio.sleep(6)
    assert await drain(queue) == ["a"]


@pytest.mark.looptime
async def test_equal_deadlines_keep_their_order() -> None:
    queue = Queue("test")
    for key in ("c", "a", "b"):
        queue.add_after(key, 5)
    await asyncio.sleep(6)
    assert await drain(queue) == ["c", "a", "b"]


@pytest.mark.looptime
async def test_superseded_deadlines_do_not_pile_up() -> None:
    queue = Queue("test")
    for _ in range(1000):
        queue.add_after("a", 10_000)
        queue.add_after("a", 0.001)
        assert await queue.get() == "a"
        queue.done("a")
    assert len(queue._delayed) < 100


@pytest.mark.row("M-090")
@pytest.mark.looptime
@pytest.mark.parametrize("shut_down", [Queue.shut_down, Queue.shut_down_with_drain])
async def test_delayed_keys_are_dropped_at_shutdown(shut_down: Callable[[Queue], object]) -> None:
    queue = Queue("test")
    queue.add_after("a", 5)
    if asyncio.iscoroutine(ended := shut_down(queue)):
        await ended
    await asyncio.sleep(6)
    with pytest.raises(ShutDown):
        await queue.get()


@pytest.mark.looptime
async def test_failures_delay_a_key_longer_each_time_until_it_is_forgotten() -> None:
    queue = Queue("test", limiter=ItemExponentialFailureRateLimiter(1, 1000))
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(3):
        begin = loop.time()
        queue.add_rate_limited("a")
        queue.done(await queue.get())
        waits.append(loop.time() - begin)
    assert waits == pytest.approx([1, 2, 4])
    assert queue.num_requeues("a") == 3
    queue.forget("a")
    assert queue.num_requeues("a") == 0


@pytest.mark.row("M-094")
@pytest.mark.looptime
async def test_forget_cancels_no_delay() -> None:
    queue = Queue("test", limiter=ItemExponentialFailureRateLimiter(1, 1000))
    queue.add_rate_limited("a")
    queue.forget("a")
    await asyncio.sleep(2)
    assert await drain(queue) == ["a"]


@pytest.mark.row("M-091")
@pytest.mark.looptime
async def test_every_delayed_add_counts_as_a_retry() -> None:
    metrics = RecordingMetrics()
    queue = Queue("test", metrics=metrics, limiter=ItemExponentialFailureRateLimiter(1, 1000))
    queue.add_after("a", 0)
    queue.add_after("b", 5)
    queue.add_after("b", 7)
    queue.add_rate_limited("c")
    assert metrics.seen.count(("retries", 1)) == 4
    queue.shut_down()
    queue.add_after("d", 1)
    assert metrics.seen.count(("retries", 1)) == 4


@pytest.mark.row("M-096")
async def test_what_the_metrics_are_told() -> None:
    metrics, clock = RecordingMetrics(), FakeClock()
    queue = Queue("test", metrics=metrics, clock=clock)
    queue.add("a")
    queue.add("a")
    assert metrics.take() == [("adds", 1), ("depth", 1)]
    clock.seconds += 2
    await queue.get()
    assert metrics.take() == [("depth", 0), ("queue_latency", 2.0)]
    queue.add("a")
    assert metrics.take() == [("adds", 1), ("depth", 1)]
    queue.add("b")
    await queue.get()
    metrics.take()
    clock.seconds += 3
    queue.refresh_metrics()
    assert metrics.take() == [("unfinished_work", 6.0), ("longest_running", 3.0)]
    queue.done("a")
    assert metrics.take() == [("work_duration", 3.0)]
    await queue.get()
    assert metrics.take() == [("depth", 0), ("queue_latency", 3.0)]


async def test_running_work_is_no_longer_refreshed_after_shutdown() -> None:
    metrics = RecordingMetrics()
    queue = Queue("test", metrics=metrics)
    queue.refresh_metrics()
    assert metrics.take() == [("unfinished_work", 0), ("longest_running", 0.0)]
    queue.shut_down()
    queue.refresh_metrics()
    assert metrics.take() == []


@pytest.mark.row("M-097")
async def test_a_queue_without_a_name_has_no_metrics() -> None:
    metrics = RecordingMetrics()
    queue = Queue("", metrics=metrics)
    queue.add_after("a", 0)
    queue.done(await queue.get())
    queue.refresh_metrics()
    assert metrics.seen == []
