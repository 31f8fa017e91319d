"""Careful beginnings."""

import asyncio

import pytest

from kcm.controllers.slow_start import run_all, slow_start_batch


class Server:
    """Lets `limit` calls succeed; notes how many were under way at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.calls = 0
        self.at_once: list[int] = []
        self._open = 0

    async def call(self) -> None:
        self.calls += 1
        number = self.calls
        self._open += 1
        await asyncio.sleep(0)
        if self._open:
            self.at_once.append(self._open)
            self._open = 0
        if number > self.limit:
            raise RuntimeError(f"call {number}")


@pytest.mark.row("R-072", "R-073", "R-178", "R-179")
@pytest.mark.parametrize(
    ("count", "limit", "calls", "successes"),
    [(10, 0, 1, 0), (10, 5, 7, 5), (10, 10, 10, 10), (100, 10, 15, 10), (0, 0, 0, 0)],
)
async def test_batches_double_until_one_fails(count: int, limit: int, calls: int, successes: int) -> None:
    server = Server(limit)
    done, errors = await slow_start_batch([server.call] * count)
    assert (server.calls, done) == (calls, successes)
    assert len(errors) == calls - successes


@pytest.mark.row("R-072")
async def test_a_batch_runs_at_once() -> None:
    server = Server(10)
    await slow_start_batch([server.call] * 10)
    assert server.at_once == [1, 2, 4, 3]


async def test_all_calls_end_even_when_some_fail_or_all_are_cancelled() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise RuntimeError("no")

    async def slow() -> None:
        try:
            await asyncio.sleep(0.001)
        finally:
            ended.append("slow")

    errors = await run_all([fail, slow])
    assert [str(error) for error in errors] == ["no"]
    assert ended == ["slow"]

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    task = asyncio.create_task(slow_start_batch([forever]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["slow", "forever"]
