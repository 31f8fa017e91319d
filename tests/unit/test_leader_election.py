"""Who leads, since when, and until when."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import msgspec
import pytest

from kcm.api.client import Client
from kcm.api.errors import ConfigError, FencedError, Status, StatusError, TransportError
from kcm.api.types.coordination import Lease
from kcm.api.types.meta import Document
from kcm.leaderelection.leader_election import LeaderElector, LeadershipLostError, Lock
from kcm.leaderelection.lease_lock import LeaderElectionRecord, LeaseLock, spec_from_record
from kcm.logs import capture
from tests.clocks import LoopClock

EPOCH = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

NOT_FOUND = StatusError(Status(message="not there", reason="NotFound", code=404))
CONFLICT = StatusError(Status(message="changed", reason="Conflict", code=409))
EXISTS = StatusError(Status(message="there", reason="AlreadyExists", code=409))


def now() -> float:
    return asyncio.get_running_loop().time()


class SkewedClock(LoopClock):
    """The loop's virtual time, from which both clocks may be moved away."""

    def __init__(self) -> None:
        self.wall = EPOCH
        self.stopped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped

    def now(self) -> datetime:
        return self.wall + timedelta(seconds=now())


class Server:
    """One Lease, with a version for each change."""

    def __init__(self, record: LeaderElectionRecord | None = None) -> None:
        self.record = record
        self.version = 0

    def write(self, record: LeaderElectionRecord) -> None:
        self.record = record
        self.version += 1

    def delete(self) -> None:
        self.record = None


Hook = Callable[[str], Awaitable[None]]


class FakeLock:
    """A candidate's view of the server; `hook` runs before each request and may fail it or hang."""

    def __init__(self, server: Server, identity: str = "me", *, hook: Hook | None = None) -> None:
        self.server = server
        self.identity = identity
        self.hook = hook
        self.calls: list[tuple[str, float]] = []
        self.events: list[str] = []
        self.seen = -1

    def __str__(self) -> str:
        return "kube-system/kcm"

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    @property
    def times(self) -> list[float]:
        return [moment for _, moment in self.calls]

    async def get(self) -> LeaderElectionRecord:
        await self._call("get")
        if self.server.record is None:
            raise NOT_FOUND
        self.seen = self.server.version
        return self.server.record

    async def create(self, record: LeaderElectionRecord) -> None:
        await self._call("create")
        if self.server.record is not None:
            raise EXISTS
        self._write(record)

    async def update(self, record: LeaderElectionRecord) -> None:
        await self._call("update")
        if self.server.record is None:
            raise NOT_FOUND
        if self.seen != self.server.version:
            raise CONFLICT
        self._write(record)

    def record_event(self, what: str) -> None:
        self.events.append(what)

    def _write(self, record: LeaderElectionRecord) -> None:
        self.server.write(record)
        self.seen = self.server.version

    async def _call(self, verb: str) -> None:
        self.calls.append((verb, now()))
        if self.hook is not None:
            await self.hook(verb)


class Metrics:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.renewals = 0
        self.age: Callable[[], float] | None = None

    def leader_on(self, name: str, renewal_age: Callable[[], float]) -> None:
        self.told.append(f"{name} on")
        self.age = renewal_age

    def leader_off(self, name: str) -> None:
        self.told.append(f"{name} off")

    def slowpath_exercised(self, name: str) -> None:
        self.told.append(f"{name} slowpath")

    def renewed(self, name: str, seconds: float) -> None:
        self.renewals += 1

    def write_fenced(self) -> None:
        self.told.append("fenced")


def elector(lock: Lock, **overrides: Any) -> LeaderElector:
    defaults: dict[str, Any] = {"lease_duration": 15, "renew_deadline": 10, "retry_period": 2, "clock": SkewedClock()}
    return LeaderElector(lock, name="kcm", **{**defaults, **overrides})


def held(by: str = "other", *, seconds: int = 15, transitions: int = 3, age: float = 0) -> LeaderElectionRecord:
    moment = EPOCH - timedelta(seconds=age)
    return LeaderElectionRecord(
        holder_identity=by,
        lease_duration_seconds=seconds,
        acquire_time=moment,
        renew_time=moment,
        leader_transitions=transitions,
    )


def is_open(candidate: LeaderElector) -> bool:
    try:
        candidate.fence()
    except FencedError:
        return False
    return True


@dataclass
class Run:
    """A running elector and when it began to lead."""

    started: asyncio.Event
    task: asyncio.Task[NoReturn]
    led_at: float = -1

    async def lost(self) -> str:
        with pytest.raises(LeadershipLostError) as caught:
            await self.task
        return str(caught.value)

    async def cancel(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def running(candidate: LeaderElector) -> AsyncIterator[Run]:
    run: Run

    def started() -> None:
        run.led_at = now()
        run.started.set()

    run = Run(asyncio.Event(), asyncio.create_task(candidate.run(started)))
    try:
        yield run
    finally:
        run.task.cancel()
        await asyncio.gather(run.task, return_exceptions=True)


async def hang(_verb: str) -> None:
    await asyncio.Event().wait()


# Starting


@pytest.mark.row("M-068")
@pytest.mark.parametrize(
    ("durations", "identity"),
    [((10, 10, 2), "me"), ((15, 2.4, 2), "me"), ((15, 10, 0), "me"), ((15, 10, -1), "me"), ((15, 10, 2), "")],
)
async def test_durations_that_do_not_fit_and_an_empty_identity_are_refused(
    durations: tuple[float, float, float], identity: str
) -> None:
    lease_duration, renew_deadline, retry_period = durations
    with pytest.raises(ValueError, match=r"must be|is empty"):
        elector(
            FakeLock(Server(), identity),
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
        )


@pytest.mark.row("M-070", "M-069")
@pytest.mark.looptime
async def test_a_missing_lease_is_created_at_once() -> None:
    lock = FakeLock(Server())
    candidate = elector(lock)
    async with running(candidate) as run:
        await run.started.wait()
        assert (run.led_at, lock.verbs[:2]) == (0, ["get", "create"])
        assert lock.server.record == LeaderElectionRecord(
            holder_identity="me",
            lease_duration_seconds=15,
            acquire_time=EPOCH,
            renew_time=EPOCH,
            leader_transitions=0,
        )
        assert (candidate.leader, lock.events) == ("me", ["became leader"])


@pytest.mark.row("M-070", "M-072")
@pytest.mark.looptime
async def test_losing_the_race_to_create_is_a_failed_attempt() -> None:
    server = Server()

    async def overtake(verb: str) -> None:
        if verb == "create":
            server.write(held())

    lock = FakeLock(server, hook=overtake)
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await asyncio.sleep(3)
        assert lock.calls == [("get", 0), ("create", 0), ("get", 2)]
        assert server.record == held()
        assert not run.started.is_set()


@pytest.mark.row("M-069")
@pytest.mark.parametrize(("random", "period"), [(0.0, 2.0), (0.5, 3.2), (1.0, 4.4)])
@pytest.mark.looptime
async def test_a_candidate_waits_with_jitter_between_attempts(random: float, period: float) -> None:
    lock = FakeLock(Server(held(seconds=3600)))
    async with running(elector(lock, jitter=lambda: random)):
        await asyncio.sleep(period * 3 + 0.1)
    assert lock.times == pytest.approx([0, period, 2 * period, 3 * period])


@pytest.mark.row("M-071", "M-072", "M-074")
@pytest.mark.looptime
async def test_a_dead_holder_is_replaced_only_after_its_lease_was_watched_to_the_end() -> None:
    lock = FakeLock(Server(held(seconds=15, age=3600)))
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await run.started.wait()
        assert run.led_at == 16
        record = lock.server.record
        assert record is not None
        assert (record.holder_identity, record.leader_transitions) == ("me", 4)
        assert record.acquire_time == record.renew_time == EPOCH + timedelta(seconds=16)


@pytest.mark.row("M-071")
@pytest.mark.looptime
async def test_the_lease_seconds_in_the_record_count_and_not_ones_own() -> None:
    lock = FakeLock(Server(held(seconds=5)))
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await run.started.wait()
        assert run.led_at == 6


@pytest.mark.row("M-071")
@pytest.mark.looptime
async def test_any_change_of_the_record_starts_the_watch_anew() -> None:
    server = Server(held())
    lock = FakeLock(server)
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await asyncio.sleep(13)
        # The holder's wall clock is far behind; that it moved at all is what counts.
        server.write(held(age=10_000))
        await run.started.wait()
        assert run.led_at == 14 + 16


@pytest.mark.row("M-071")
@pytest.mark.looptime
async def test_jumps_of_the_wall_clock_change_nothing() -> None:
    clock = SkewedClock()
    lock = FakeLock(Server(held()))
    candidate = elector(lock, jitter=lambda: 0, clock=clock)
    async with running(candidate) as run:
        clock.wall += timedelta(days=400)
        await asyncio.sleep(5)
        clock.wall -= timedelta(days=800)
        await run.started.wait()
        assert run.led_at == 16
        clock.wall -= timedelta(days=800)
        await asyncio.sleep(60)
        assert is_open(candidate)


@pytest.mark.row("M-073", "M-074")
@pytest.mark.looptime
async def test_a_released_lease_is_taken_at_once_and_counts_as_a_transition() -> None:
    lock = FakeLock(Server(held(by="")))
    async with running(elector(lock)) as run:
        await run.started.wait()
        assert run.led_at == 0
        record = lock.server.record
        assert record is not None
        assert (record.leader_transitions, record.acquire_time) == (4, EPOCH)


@pytest.mark.row("M-076")
@pytest.mark.looptime
async def test_who_comes_second_never_overwrites_the_first() -> None:
    server = Server(held(by=""))

    async def overtake(verb: str) -> None:
        if verb == "update":
            server.write(held(by="faster"))

    lock = FakeLock(server, hook=overtake)
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await asyncio.sleep(1)
        assert server.record == held(by="faster")
        assert not run.started.is_set()


@pytest.mark.row("M-127")
@pytest.mark.looptime
async def test_a_hanging_request_does_not_stop_a_candidate_for_ever() -> None:
    lock = FakeLock(Server(), hook=hang)
    async with running(elector(lock, jitter=lambda: 0)) as run:
        await asyncio.sleep(11)
        lock.hook = None
        await run.started.wait()
        assert run.led_at == 12


# Leading


@pytest.mark.row("M-074", "M-075", "M-078")
@pytest.mark.looptime
async def test_a_leader_renews_with_one_put_each_period() -> None:
    lock = FakeLock(Server(held(by="")))
    metrics = Metrics()
    async with running(elector(lock, metrics=metrics)) as run:
        await run.started.wait()
        await asyncio.sleep(6.5)
    assert lock.calls == [("get", 0), *[("update", moment) for moment in (0, 0, 2, 4, 6)]]
    record = lock.server.record
    assert record is not None
    assert (record.acquire_time, record.leader_transitions) == (EPOCH, 4)
    assert record.renew_time == EPOCH + timedelta(seconds=6)
    assert metrics.renewals == 4


@pytest.mark.row("M-075", "M-107")
@pytest.mark.looptime
async def test_a_failed_put_falls_back_to_get_and_put() -> None:
    server = Server(held(by=""))
    lock = FakeLock(server)
    metrics = Metrics()
    async with running(elector(lock, metrics=metrics)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.calls.clear()
        server.version += 1  # somebody labels the Lease
        await asyncio.sleep(2)
        assert lock.calls == [("update", 2), ("get", 2), ("update", 2)]
        assert not run.task.done()
    assert metrics.told == ["kcm off", "kcm on", "kcm slowpath", "kcm off"]


@pytest.mark.row("M-078", "M-107")
@pytest.mark.looptime
async def test_leadership_is_lost_when_no_renewal_succeeds_until_the_deadline() -> None:
    lock = FakeLock(Server())
    metrics = Metrics()

    async def refuse(_verb: str) -> None:
        raise TransportError("connection refused")

    async with running(elector(lock, metrics=metrics)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.hook = refuse
        lock.calls.clear()
        await run.lost()
        assert now() == pytest.approx(12)
        assert lock.calls == [(verb, moment) for moment in (2, 4, 6, 8, 10) for verb in ("update", "get")]
    assert metrics.told[-1] == "kcm off"
    assert lock.events == ["became leader", "stopped leading"]


@pytest.mark.row("M-078")
@pytest.mark.parametrize("error", [TransportError("reset"), ConfigError("plugin failed"), CONFLICT])
@pytest.mark.looptime
async def test_a_round_that_fails_for_a_while_is_no_loss(error: Exception) -> None:
    lock = FakeLock(Server())

    async def refuse(_verb: str) -> None:
        raise error

    candidate = elector(lock)
    async with running(candidate) as run:
        await run.started.wait()
        lock.hook = refuse
        await asyncio.sleep(7)
        lock.hook = None
        await asyncio.sleep(60)
        assert not run.task.done()
        assert is_open(candidate)


@pytest.mark.row("M-127", "M-078")
@pytest.mark.looptime
async def test_a_hanging_renewal_ends_with_the_deadline() -> None:
    lock = FakeLock(Server())
    async with running(elector(lock)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.hook = hang
        await run.lost()
        assert now() == pytest.approx(12)


@pytest.mark.looptime
async def test_a_deleted_lease_is_created_again() -> None:
    lock = FakeLock(Server())
    candidate = elector(lock)
    async with running(candidate) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.server.delete()
        await asyncio.sleep(2)
        assert lock.server.record is not None
        assert lock.server.record.holder_identity == "me"
        assert not run.task.done()


@pytest.mark.looptime
async def test_a_bug_in_the_lock_is_no_failed_attempt() -> None:
    lock = FakeLock(Server())

    async def broken(_verb: str) -> None:
        raise ZeroDivisionError

    candidate = elector(lock)
    async with running(candidate) as run:
        await run.started.wait()
        lock.hook = broken
        with pytest.raises(ZeroDivisionError):
            await run.task
        assert not is_open(candidate)


@pytest.mark.row("M-080")
@pytest.mark.looptime
async def test_each_new_holder_is_reported_once() -> None:
    leaders: list[str] = []
    server = Server(held(by="a"))
    lock = FakeLock(server)
    async with running(elector(lock, jitter=lambda: 0, on_new_leader=leaders.append)) as run:
        await asyncio.sleep(5)
        assert leaders == ["a"]
        server.write(held(by="b"))
        await run.started.wait()
        await asyncio.sleep(5)
        assert leaders == ["a", "b", "me"]
        server.write(held(by="thief"))
        await run.lost()
        assert leaders == ["a", "b", "me", "thief"]


@pytest.mark.row("M-083")
@pytest.mark.looptime
async def test_log_lines_name_the_lock() -> None:
    with capture() as records:
        lock = FakeLock(Server(held(seconds=1)))
        async with running(elector(lock, jitter=lambda: 0)) as run:
            await run.started.wait()
            await asyncio.sleep(1)
            lock.hook = hang
            await run.lost()
    assert {record.pairs["lock"] for record in records} == {"kube-system/kcm"}
    assert [(record.message, record.v) for record in records] == [
        ("Attempting to acquire leader lease...", 0),
        ("Lease is held by and has not yet expired", 4),
        ("Failed to acquire lease", 4),
        ("Successfully acquired lease", 0),
        ("Successfully renewed lease", 5),
        ("Failed to renew lease", 0),
    ]


@pytest.mark.row("M-084", "C-104")
@pytest.mark.looptime
async def test_the_health_check_fails_only_in_a_leader_that_outlived_its_lease() -> None:
    clock = SkewedClock()
    lock = FakeLock(Server(held(seconds=3)))
    candidate = elector(lock, jitter=lambda: 0, clock=clock)
    assert candidate.check(20) is None
    async with running(candidate) as run:
        await asyncio.sleep(1)
        clock.stopped += 100  # a candidate's age does not matter
        assert candidate.check(20) is None
        await run.started.wait()
        await asyncio.sleep(1)
        observed = clock.monotonic() - 1
        run.task.cancel()  # a stuck elector
        await asyncio.sleep(33)
        assert candidate.check(20) is None
        await asyncio.sleep(1.5)
        assert clock.monotonic() - observed > 35
        assert candidate.check(20) == "failed election to renew leadership on lease kcm"


# The fence and the watchdog


@pytest.mark.looptime
async def test_the_fence_is_shut_before_and_after_leading() -> None:
    server = Server(held(seconds=3))
    lock = FakeLock(server)
    metrics = Metrics()
    candidate = elector(lock, metrics=metrics)
    with pytest.raises(FencedError, match="lease kube-system/kcm is not held"):
        candidate.fence()
    async with running(candidate) as run:
        await asyncio.sleep(1)
        assert not is_open(candidate)
        await run.started.wait()
        assert is_open(candidate)
        await run.cancel()
        assert not is_open(candidate)
    assert metrics.told.count("fenced") == 3


@pytest.mark.looptime
async def test_the_fence_shuts_when_the_last_renewal_began_a_renew_deadline_ago() -> None:
    lock = FakeLock(Server())
    metrics = Metrics()
    candidate = elector(lock, metrics=metrics)

    async def slow(_verb: str) -> None:
        await asyncio.sleep(1.5)

    async with running(candidate) as run:
        await run.started.wait()
        lock.hook = slow
        await asyncio.sleep(3)  # the renewal of second 2 has begun
        lock.hook = hang
        await asyncio.sleep(1)
        assert candidate.last_renewal_began == pytest.approx(2, abs=0.001)
        assert metrics.age is not None
        assert metrics.age() == pytest.approx(2, abs=0.001)
        await asyncio.sleep(7.9)
        assert is_open(candidate)
        await asyncio.sleep(0.2)
        assert now() == pytest.approx(12.1, abs=0.001)
        with pytest.raises(FencedError, match=r"was last renewed 10\.1 seconds ago"):
            candidate.fence()
        assert not run.task.done()


@pytest.mark.looptime
async def test_the_fence_never_outlives_the_whole_seconds_that_others_wait() -> None:
    lock = FakeLock(Server())
    candidate = elector(lock, lease_duration=5.9, renew_deadline=5.5, retry_period=1)
    async with running(candidate) as run:
        await run.started.wait()
        lock.hook = hang
        await asyncio.sleep(0)
        await asyncio.sleep(4.9)
        assert is_open(candidate)
        await asyncio.sleep(0.2)
        assert not is_open(candidate)


@pytest.mark.looptime
async def test_the_fence_shuts_as_soon_as_another_holder_is_seen() -> None:
    server = Server()
    lock = FakeLock(server)
    candidate = elector(lock)
    async with running(candidate) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        server.write(held(by="thief"))
        await asyncio.sleep(1.1)
        assert not is_open(candidate)
        await run.lost()
        assert server.record == held(by="thief")


@pytest.mark.looptime
async def test_a_process_that_stood_still_does_not_lead_on() -> None:
    clock = SkewedClock()
    lock = FakeLock(Server())
    candidate = elector(lock, clock=clock)
    async with running(candidate) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.calls.clear()
        clock.stopped += 20
        assert not is_open(candidate)
        assert "stood still" in await run.lost()
        assert lock.calls == []


@pytest.mark.looptime
async def test_the_watchdog_ends_the_term_before_the_next_renewal() -> None:
    alive = True
    lock = FakeLock(Server())
    candidate = elector(lock, may_renew=lambda: alive, release_on_cancel=True)
    async with running(candidate) as run:
        await run.started.wait()
        await asyncio.sleep(3)
        lock.calls.clear()
        alive = False
        assert "no longer moves" in await run.lost()
        assert now() == pytest.approx(4)
        # The stuck work may still write, so the Lease is left to expire.
        assert lock.calls == []
        assert not is_open(candidate)


# Stopping


@pytest.mark.row("M-081")
@pytest.mark.looptime
async def test_a_cancelled_leader_releases_if_asked_to() -> None:
    lock = FakeLock(Server(held(by="")))
    candidate = elector(lock, release_on_cancel=True)
    async with running(candidate) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.calls.clear()
        await run.cancel()
    assert lock.verbs == ["get", "update"]
    moment = EPOCH + timedelta(seconds=1)
    assert lock.server.record == LeaderElectionRecord(
        holder_identity="", lease_duration_seconds=1, acquire_time=moment, renew_time=moment, leader_transitions=4
    )
    assert lock.events[-1] == "stopped leading"


@pytest.mark.looptime
async def test_a_cancelled_leader_leaves_the_lease_alone_by_default() -> None:
    lock = FakeLock(Server())
    async with running(elector(lock)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        before = lock.server.record
        await run.cancel()
        assert lock.server.record == before


@pytest.mark.row("M-081")
@pytest.mark.looptime
async def test_a_release_that_meets_a_late_renewal_is_repeated() -> None:
    server = Server()
    lock = FakeLock(server)
    late = True

    async def collide(verb: str) -> None:
        nonlocal late
        if verb == "update" and late:
            late = False
            assert server.record is not None
            server.write(replace(server.record, renew_time=EPOCH))

    async with running(elector(lock, release_on_cancel=True)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.calls.clear()
        lock.hook = collide
        await run.cancel()
    assert lock.verbs == ["get", "update", "get", "update"]
    assert server.record is not None
    assert server.record.holder_identity == ""


@pytest.mark.row("M-081")
@pytest.mark.looptime
async def test_a_lease_of_another_is_not_released() -> None:
    server = Server()
    lock = FakeLock(server)
    async with running(elector(lock, release_on_cancel=True)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        server.write(held(by="thief"))
        await run.cancel()
    assert server.record == held(by="thief")


@pytest.mark.row("M-081")
@pytest.mark.looptime
async def test_a_release_gives_up_after_the_renew_deadline() -> None:
    lock = FakeLock(Server())
    async with running(elector(lock, release_on_cancel=True)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.hook = hang
        await run.cancel()
        assert now() == pytest.approx(11)


@pytest.mark.looptime
async def test_a_second_cancellation_interrupts_the_release() -> None:
    lock = FakeLock(Server())
    async with running(elector(lock, release_on_cancel=True)) as run:
        await run.started.wait()
        await asyncio.sleep(1)
        lock.hook = hang
        run.task.cancel()
        await asyncio.sleep(1)
        await run.cancel()
        assert now() == pytest.approx(2)


@pytest.mark.looptime
async def test_a_cancelled_candidate_writes_nothing() -> None:
    lock = FakeLock(Server(held()))
    async with running(elector(lock, release_on_cancel=True)) as run:
        await asyncio.sleep(1)
        await run.cancel()
    assert lock.server.record == held()
    assert lock.events == []


# The Lease


class FakeClient(Client):
    """Answers with what a Lease would be after the request."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Document]] = []
        self.lease: Document | None = None
        self.answer: bytes | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        self.sent.append((method, path, {} if body is None else json.loads(msgspec.json.encode(body))))
        if body is not None:
            self.lease = json.loads(msgspec.json.encode(body))
            self.lease["metadata"]["resourceVersion"] = str(len(self.sent))
        return json.dumps(self.lease).encode() if self.answer is None else self.answer


LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def lease_lock(client: Client, record_event: Callable[[Lease, str, str], None] | None = None) -> LeaseLock:
    return LeaseLock(client, namespace="kube-system", name="kcm", identity="me", record_event=record_event)


@pytest.mark.row("M-077", "M-076")
async def test_an_update_sends_back_what_others_wrote() -> None:
    client = FakeClient()
    client.lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "kcm",
            "namespace": "kube-system",
            "uid": "u1",
            "resourceVersion": "77",
            "labels": {"team": "a"},
            "annotations": {"newer.example.com/field": "kept"},
            "managedFields": [{"manager": "somebody"}],
        },
        "spec": {
            "holderIdentity": "other",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "acquireTime": "2026-01-02T03:04:05.678901Z",
            "renewTime": "2026-01-02T03:04:05.678901Z",
            "strategy": "OldestEmulationVersion",
            "preferredHolder": "third",
        },
    }
    lock = lease_lock(client)
    record = await lock.get()
    assert record == replace(held(), strategy="OldestEmulationVersion", preferred_holder="third")
    await lock.update(held(by="me", transitions=4))
    await lock.update(held(by="me", transitions=5))
    method, path, body = client.sent[1]
    assert (method, path) == ("PUT", f"{LEASE_PATH}/kcm")
    assert body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "kcm",
            "namespace": "kube-system",
            "uid": "u1",
            "resourceVersion": "77",
            "labels": {"team": "a"},
            "annotations": {"newer.example.com/field": "kept"},
        },
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 4,
            "acquireTime": "2026-01-02T03:04:05.678901Z",
            "renewTime": "2026-01-02T03:04:05.678901Z",
        },
    }
    assert client.sent[2][2]["metadata"]["resourceVersion"] == "2"


@pytest.mark.row("M-077", "M-070")
async def test_a_new_lease_has_a_name_and_a_spec() -> None:
    client = FakeClient()
    lock = lease_lock(client)
    await lock.create(held(by="me", transitions=0))
    assert client.sent == [
        (
            "POST",
            LEASE_PATH,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "kcm", "namespace": "kube-system"},
                "spec": spec_from_record(held(by="me", transitions=0)),
            },
        )
    ]
    await lock.update(held(by="me", transitions=1))
    assert client.sent[1][0] == "PUT"


@pytest.mark.row("M-077")
def test_a_preferred_holder_and_a_strategy_are_written_if_there_are_any() -> None:
    spec = spec_from_record(LeaderElectionRecord(strategy="s", preferred_holder="p"))
    assert (spec["strategy"], spec["preferredHolder"]) == ("s", "p")
    assert spec["acquireTime"] is None


async def test_an_empty_spec_is_an_unheld_lease() -> None:
    client = FakeClient()
    client.lease = {"metadata": {"name": "kcm"}, "spec": {"holderIdentity": None, "renewTime": None}}
    assert await lease_lock(client).get() == LeaderElectionRecord()


async def test_an_answer_that_is_no_lease_is_a_failed_request() -> None:
    client = FakeClient()
    client.answer = b"<html>proxy</html>"
    with pytest.raises(TransportError, match="no Lease"):
        await lease_lock(client).get()


async def test_events_are_about_the_lease() -> None:
    events: list[tuple[str, str, str]] = []
    lock = lease_lock(FakeClient(), lambda lease, reason, text: events.append((lease.metadata.key, reason, text)))
    lock.record_event("became leader")
    await lock.create(held(by="me"))
    lock.record_event("stopped leading")
    assert events == [
        ("kube-system/kcm", "LeaderElection", "me became leader"),
        ("kube-system/kcm", "LeaderElection", "me stopped leading"),
    ]
