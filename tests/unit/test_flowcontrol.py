"""The token bucket in front of a client."""

import asyncio

import pytest

from kcm.api.flowcontrol import TokenBucket
from tests.clocks import LoopClock


def bucket(qps: float, burst: int) -> TokenBucket:
    return TokenBucket(qps, burst, clock=LoopClock())


@pytest.mark.row("M-098", "C-011")
@pytest.mark.looptime
async def test_a_burst_passes_and_the_rest_waits_its_turn() -> None:
    tokens = bucket(20, 30)
    loop = asyncio.get_running_loop()
    passed: list[tuple[int, float]] = []

    async def one(number: int) -> None:
        await tokens.wait()
        passed.append((number, loop.time()))

    await asyncio.gather(*(one(number) for number in range(40)))
    assert [number for number, _ in passed] == list(range(40))
    assert [moment for _, moment in passed[:30]] == [0.0] * 30
    assert passed[30][1] == pytest.approx(0.05)
    assert passed[39][1] == pytest.approx(0.5)


@pytest.mark.looptime
async def test_quiet_fills_the_bucket_no_further_than_its_burst() -> None:
    tokens = bucket(10, 2)
    await asyncio.sleep(100)
    assert [tokens.reserve() for _ in range(3)] == pytest.approx([0.0, 0.0, 0.1])


@pytest.mark.row("M-137")
@pytest.mark.looptime
async def test_the_last_waiter_gives_its_place_back_when_cancelled() -> None:
    tokens = bucket(1, 1)
    await tokens.wait()
    waiter = asyncio.create_task(tokens.wait())
    await asyncio.sleep(0.5)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert tokens.reserve() == pytest.approx(0.5)


@pytest.mark.looptime
async def test_a_waiter_with_others_behind_it_keeps_its_place_when_cancelled() -> None:
    tokens = bucket(1, 1)
    await tokens.wait()
    first, second = asyncio.create_task(tokens.wait()), asyncio.create_task(tokens.wait())
    await asyncio.sleep(0.5)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert tokens.reserve() == pytest.approx(2.5)
    assert await second == pytest.approx(2.0)


async def test_a_negative_rate_never_waits_and_none_is_the_default() -> None:
    unlimited = bucket(-1, 0)
    assert [unlimited.reserve() for _ in range(1000)] == [0.0] * 1000
    defaults = bucket(0, 0)
    assert [defaults.reserve() for _ in range(10)] == [0.0] * 10
    assert defaults.reserve() > 0.1
