"""The work queue against a plain model, on a loop with virtual time: fair, exclusive, never lossy, whoever is cancelled."""

import asyncio
from collections import deque

import looptime
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kcm.workqueue.queue import Queue, ShutDown

keys = st.sampled_from(["a", "b", "c", "d"])
delays = st.integers(min_value=0, max_value=9)


class QueueMachine(RuleBasedStateMachine):
    """Workers that take and finish keys, handlers that add them, and time that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop = looptime.new_event_loop()
        self.queue = Queue("test")
        self.getters: list[asyncio.Task[None]] = []
        self.handed_out: deque[str] = deque()
        # The model.
        self.due: deque[str] = deque()
        self.dirty: set[str] = set()
        self.held: list[str] = []
        self.deadlines: dict[str, tuple[float, int]] = {}
        self.delayed_adds = 0
        self.shut = False

    def teardown(self) -> None:
        self.queue.shut_down()
        self.loop.run_until_complete(asyncio.wait([*self.getters, self.loop.create_task(asyncio.sleep(0))]))
        self.loop.close()

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.model_add(key)
        self.settle()

    @rule(key=keys, seconds=delays)
    def add_after(self, key: str, seconds: int) -> None:
        async def call() -> None:
            self.queue.add_after(key, seconds)

        self.loop.run_until_complete(call())
        if seconds == 0:
            self.model_add(key)
        elif not self.shut:
            self.delayed_adds += 1
            deadline = (self.loop.time() + seconds, self.delayed_adds)
            self.deadlines[key] = min(deadline, self.deadlines.get(key, deadline))
        self.settle()

    @rule(seconds=delays)
    def pass_time(self, seconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.settle()

    @rule(workers=st.integers(min_value=1, max_value=4))
    def get(self, workers: int) -> None:
        self.getters += [self.loop.create_task(self.take()) for _ in range(workers)]
        self.settle()

    @precondition(lambda self: self.getters)
    @rule(data=st.data(), added=st.lists(keys, max_size=2))
    def cancel_a_getter(self, data: st.DataObject, added: list[str]) -> None:
        """Cancel one that waits, perhaps just after it was woken."""
        for key in added:
            self.queue.add(key)
            self.model_add(key)
        data.draw(st.sampled_from(self.getters)).cancel()
        self.settle()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        for key in data.draw(st.lists(st.sampled_from(self.held), min_size=1, unique=True)):
            self.queue.done(key)
            self.held.remove(key)
            if key in self.dirty:
                self.due.append(key)
        self.settle()

    @precondition(lambda self: self.delayed_adds > 10)
    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.shut = True
        self.deadlines.clear()
        self.settle()

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        assert len(self.queue) == len(self.due)
        assert not (self.due and self.getters), "a key and a worker wait for each other"
        assert not (self.shut and self.getters), "a worker waits for a queue that is shut down"

    async def take(self) -> None:
        try:
            self.handed_out.append(await self.queue.get())
        except ShutDown:
            assert not len(self.queue)

    def model_add(self, key: str) -> None:
        if self.shut or key in self.dirty:
            return
        self.dirty.add(key)
        if key not in self.held:
            self.due.append(key)

    def settle(self) -> None:
        """Let all tasks run, then follow in the model what they took."""

        async def turns() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for deadline, key in sorted((deadline, key) for key, deadline in self.deadlines.items()):
            if deadline[0] <= self.loop.time():
                del self.deadlines[key]
                self.model_add(key)
        while self.handed_out:
            key = self.handed_out.popleft()
            assert key == self.due.popleft(), "not in order"
            assert key not in self.held, "held twice"
            self.dirty.remove(key)
            self.held.append(key)
        ended = [getter for getter in self.getters if getter.done()]
        self.getters = [getter for getter in self.getters if not getter.done()]
        for getter in ended:
            assert getter.cancelled() or getter.exception() is None


@pytest.mark.row("M-086", "M-087", "M-088", "M-089", "M-090")
def test_the_queue_agrees_with_the_model() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
