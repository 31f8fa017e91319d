"""Never two leaders, whatever happens to processes, clocks and requests between them and the Lease."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kcm.api.errors import FencedError, Status, StatusError, TransportError
from kcm.leaderelection.leader_election import LeaderElector, LeadershipLostError
from kcm.leaderelection.lease_lock import LeaderElectionRecord
from kcm.logs import capture

LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD = 15.0, 10.0, 2.0
#: Time moves in steps of this size for processes that run; for stopped ones it jumps.
TICK = 0.5


class World:
    """True time and the Lease."""

    def __init__(self) -> None:
        self.time = 0.0
        self.record: LeaderElectionRecord | None = None
        self.version = 0


class ProcessLoop(asyncio.SelectorEventLoop):
    """A loop that lives in the world's time and never waits; it is turned by hand."""

    def __init__(self, world: World, origin: float) -> None:
        super().__init__()
        self._world = world
        self._origin = origin

    def time(self) -> float:
        return self._world.time + self._origin

    def turn(self) -> None:
        """Run all that is due now; enough rounds for any chain of callbacks in an elector."""
        for _ in range(12):
            self.call_soon(self.stop)
            self.run_forever()


@dataclass
class ProcessClock:
    """A monotonic clock with an origin of its own, and a wall clock that is plainly wrong."""

    loop: ProcessLoop
    error: timedelta

    def monotonic(self) -> float:
        return self.loop.time()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + self.error + timedelta(seconds=self.loop.time())


@dataclass
class Request:
    """A request on its way to the server, or its answer on the way back."""

    carry_out: Callable[[], LeaderElectionRecord | Exception]
    answer: "asyncio.Future[LeaderElectionRecord]"
    result: LeaderElectionRecord | Exception | None = None

    def reach_server(self) -> None:
        if self.result is None:
            self.result = self.carry_out()

    def come_back(self) -> None:
        assert self.result is not None
        if self.answer.done():  # given up by the elector
            return
        if isinstance(self.result, Exception):
            self.answer.set_exception(self.result)
        else:
            self.answer.set_result(self.result)


@dataclass
class RemoteLock:
    """A candidate's lock; its requests wait until somebody moves them."""

    world: World
    identity: str
    seen: int = -1
    requests: list[Request] = field(default_factory=list)

    def __str__(self) -> str:
        return "ns/lease"

    async def get(self) -> LeaderElectionRecord:
        version: list[int] = []

        def carry_out() -> LeaderElectionRecord | Exception:
            version.append(self.world.version)
            return self.world.record or StatusError(Status(reason="NotFound", code=404))

        record = await self._request(carry_out)
        self.seen = version[0]
        return record

    async def create(self, record: LeaderElectionRecord) -> None:
        await self._write(record, lambda: self.world.record is None)

    async def update(self, record: LeaderElectionRecord) -> None:
        seen = self.seen
        await self._write(record, lambda: self.world.record is not None and self.world.version == seen)

    def record_event(self, what: str) -> None:
        pass

    async def _write(self, record: LeaderElectionRecord, allowed: Callable[[], bool]) -> None:
        version: list[int] = []

        def carry_out() -> LeaderElectionRecord | Exception:
            if not allowed():
                return StatusError(Status(reason="Conflict", code=409))
            self.world.record = record
            self.world.version += 1
            version.append(self.world.version)
            return record

        await self._request(carry_out)
        self.seen = version[0]

    async def _request(self, carry_out: Callable[[], LeaderElectionRecord | Exception]) -> LeaderElectionRecord:
        request = Request(carry_out, asyncio.get_running_loop().create_future())
        self.requests.append(request)
        return await request.answer


class Process:
    """One manager: its loop and its elector, replaced by a new one when it ends."""

    def __init__(self, world: World, number: int, *, origin: float, wall_error: timedelta) -> None:
        self.world = world
        self.number = number
        self.loop = ProcessLoop(world, origin)
        self.clock = ProcessClock(self.loop, wall_error)
        self.stopped = False
        self.working = True
        self.restarts = 0
        self.requests_of_the_dead: list[Request] = []
        self.start()

    def start(self) -> None:
        self.working = True
        self.lock = RemoteLock(self.world, f"p{self.number}-{self.restarts}")
        self.elector = LeaderElector(
            self.lock,
            name="lease",
            lease_duration=LEASE_DURATION,
            renew_deadline=RENEW_DEADLINE,
            retry_period=RETRY_PERIOD,
            release_on_cancel=True,
            may_renew=lambda: self.working,
            clock=self.clock,
            jitter=lambda: 0.3,
        )
        self.task: asyncio.Task[NoReturn] = self.loop.create_task(self.elector.run(lambda: None))

    def turn(self) -> None:
        if self.stopped:
            return
        self.loop.turn()
        if self.task.done():
            assert self.task.cancelled() or isinstance(self.task.exception(), LeadershipLostError)
            self.requests_of_the_dead += self.lock.requests
            self.restarts += 1
            self.start()
            self.loop.turn()

    @property
    def may_write(self) -> bool:
        try:
            self.elector.fence()
        except FencedError:
            return False
        return True

    def close(self) -> None:
        self.task.cancel()
        self.loop.turn()
        for request in self.lock.requests:
            request.answer.cancel()
        self.loop.turn()
        assert self.task.done()
        self.loop.close()


PROCESS = st.integers(0, 1)


class TwoManagers(RuleBasedStateMachine):
    """Two managers and the Lease between them."""

    @initialize(origin=st.floats(-1e6, 1e6), wall=st.integers(-1000, 1000))
    def boot(self, origin: float, wall: int) -> None:
        self.logs = capture()
        self.logs.__enter__()
        self.world = World()
        self.processes = [
            Process(self.world, 0, origin=0, wall_error=timedelta(0)),
            Process(self.world, 1, origin=origin, wall_error=timedelta(days=wall)),
        ]
        self.turn()

    def turn(self) -> None:
        for process in self.processes:
            process.turn()

    def requests(self, which: int) -> list[Request]:
        return self.processes[which].lock.requests

    @rule(seconds=st.sampled_from([TICK, 1, 2, 4, 8, 20]))
    def time_passes(self, seconds: float) -> None:
        """Requests hang meanwhile."""
        for _ in range(int(seconds / TICK)):
            self.world.time += TICK
            self.turn()
            self.at_most_one_may_write()

    @rule(seconds=st.sampled_from([2, 5, 12, 30]), which=st.sets(PROCESS, min_size=1))
    def network_works(self, seconds: float, which: set[int]) -> None:
        """Everything that these processes ask is answered at once."""
        for _ in range(int(seconds / TICK)):
            self.world.time += TICK
            self.serve(which)
            self.at_most_one_may_write()

    def serve(self, which: set[int]) -> None:
        self.turn()
        for _ in range(4):
            for number in which:
                while self.requests(number):
                    request = self.requests(number).pop(0)
                    request.reach_server()
                    request.come_back()
                    self.at_most_one_may_write()
            self.turn()

    @rule(which=PROCESS)
    def request_is_carried_out(self, which: int) -> None:
        """The answer is still under way."""
        for request in self.requests(which)[:1]:
            request.reach_server()

    @rule(which=PROCESS)
    def answer_arrives(self, which: int) -> None:
        if self.requests(which):
            request = self.requests(which).pop(0)
            request.reach_server()
            request.come_back()
            self.turn()

    @rule(which=PROCESS, carried_out=st.booleans())
    def connection_breaks(self, which: int, carried_out: bool) -> None:
        if self.requests(which):
            request = self.requests(which).pop(0)
            if carried_out:
                request.reach_server()
            request.result = TransportError("connection reset")
            request.come_back()
            self.turn()

    @rule(which=PROCESS)
    def late_request_of_a_dead_elector(self, which: int) -> None:
        for request in self.processes[which].requests_of_the_dead[-1:]:
            request.reach_server()

    @rule(which=PROCESS)
    def process_is_stopped(self, which: int) -> None:
        self.processes[which].stopped = True

    @precondition(lambda self: any(process.stopped for process in self.processes))
    @rule()
    def stopped_processes_continue(self) -> None:
        for process in self.processes:
            process.stopped = False
            # The thread that writes may be the first to run.
            self.at_most_one_may_write()
        self.turn()

    @rule(which=PROCESS)
    def work_gets_stuck(self, which: int) -> None:
        self.processes[which].working = False

    @rule(which=PROCESS)
    def process_is_told_to_end(self, which: int) -> None:
        self.processes[which].task.cancel()
        self.turn()

    @invariant()
    def at_most_one_may_write(self) -> None:
        writers = [process.elector for process in self.processes if process.may_write]
        assert len(writers) <= 1
        # A write that is sent now has lease duration minus renew deadline to arrive before another may lead.
        for writer in writers:
            for process in self.processes:
                if process.elector is writer:
                    age = process.clock.monotonic() - writer.last_renewal_began
                    assert 0 <= age < RENEW_DEADLINE

    def teardown(self) -> None:
        """Once all is well, there is a leader again, and only one."""
        if not hasattr(self, "processes"):
            return
        try:
            for process in self.processes:
                process.stopped = False
                process.working = True
            for _ in range(int(90 / TICK)):
                self.world.time += TICK
                self.serve({0, 1})
                self.at_most_one_may_write()
            assert [process.may_write for process in self.processes].count(True) == 1
        finally:
            for process in self.processes:
                process.close()
            self.logs.__exit__(None, None, None)


TwoManagers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_two_managers = TwoManagers.TestCase
