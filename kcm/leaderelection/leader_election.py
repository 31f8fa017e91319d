"""The election loop. Follows client-go tools/leaderelection/{leaderelection,healthzadaptor,metrics}.go.

A candidate tries to get the Lease until it succeeds, then renews it until that fails for too long. What the elector adds to
the reference:
- the fence, which the thread that does the leader's work asks right before each write;
- the watchdog, which stops renewing when that thread no longer moves;
- a time limit around every attempt, whatever the client's own limits are;
- after a term that ended by failure nothing is released, since the work may not have stopped yet; the Lease expires instead.

Everything but `fence`, `check`, `leader` and `last_renewal_began` belongs to one event loop; those may be used in any thread.
The package's docstring says what the whole promises.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NoReturn, Protocol

from kcm.api.errors import ConfigError, FencedError, StatusError, TransportError, is_conflict, is_not_found
from kcm.clock import REAL, Clock
from kcm.leaderelection.lease_lock import LeaderElectionRecord
from kcm.logs import get_logger

log = get_logger(__name__)

JITTER_FACTOR = 1.2

_Write = Callable[[LeaderElectionRecord], Awaitable[None]]

_NEVER = -math.inf
# What can go wrong with one request without anything being wrong with this program.
_FAILURES = (StatusError, TransportError, ConfigError)


class LeadershipLostError(Exception):
    """This process may no longer act as leader; the text says why."""


class Lock(Protocol):
    """Where the election record is kept; `str()` names the place. `LeaseLock` is the real one and tells what is raised."""

    @property
    def identity(self) -> str:
        """What this candidate writes as holder."""
        ...

    async def get(self) -> LeaderElectionRecord:
        """Read the record."""
        ...

    async def create(self, record: LeaderElectionRecord) -> None:
        """Write a record where there is none."""
        ...

    async def update(self, record: LeaderElectionRecord) -> None:
        """Replace the record that was last read or written."""
        ...

    def record_event(self, what: str) -> None:
        """Tell the world that this candidate did something."""
        ...


class LeaderElectionMetrics(Protocol):
    """What the elector tells of itself; `name` is the Lease's."""

    def leader_on(self, name: str, renewal_age: Callable[[], float]) -> None:
        """Leading begins; `renewal_age` gives the seconds since the last successful renewal began, in any thread."""

    def leader_off(self, name: str) -> None:
        """Not leading, or no longer."""

    def slowpath_exercised(self, name: str) -> None:
        """A renewal had to read the Lease first."""

    def renewed(self, name: str, seconds: float) -> None:
        """A renewal succeeded."""

    def write_fenced(self) -> None:
        """The fence forbade a write; called in the thread that wanted to write."""


class NoMetrics:
    """Tells nobody."""

    def leader_on(self, name: str, renewal_age: Callable[[], float]) -> None:
        """Drop it."""

    def leader_off(self, name: str) -> None:
        """Drop it."""

    def slowpath_exercised(self, name: str) -> None:
        """Drop it."""

    def renewed(self, name: str, seconds: float) -> None:
        """Drop it."""

    def write_fenced(self) -> None:
        """Drop it."""


class LeaderElector:
    """One candidate for one lock."""

    def __init__(
        self,
        lock: Lock,
        *,
        name: str,
        lease_duration: float,
        renew_deadline: float,
        retry_period: float,
        release_on_cancel: bool = False,
        on_new_leader: Callable[[str], None] | None = None,
        may_renew: Callable[[], bool] | None = None,
        metrics: LeaderElectionMetrics | None = None,
        clock: Clock = REAL,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Make a candidate.

        Args:
            lock: What is competed for.
            name: Names the lock in metrics and in the health check.
            lease_duration: Seconds for which others respect the record after they saw it change; written as whole seconds.
            renew_deadline: Seconds that a leader goes on without a successful renewal.
            retry_period: Seconds between attempts.
            release_on_cancel: Give the Lease up when `run` is cancelled while leading. Only for a caller that stops the
                leader's work before it cancels.
            on_new_leader: Told each time another holder is seen, also oneself or none (""). Must return at once.
            may_renew: The watchdog, asked before every attempt to renew: False ends the term. Must return at once.
            metrics: Told of what happens.
            clock: What time it is.
            jitter: A random number between 0 and 1.

        Raises:
            ValueError: the durations do not fit together, or the identity is empty.
        """
        if lease_duration <= renew_deadline:
            raise ValueError("leaseDuration must be greater than renewDeadline")
        if renew_deadline <= JITTER_FACTOR * retry_period:
            raise ValueError("renewDeadline must be greater than retryPeriod*JitterFactor")
        if retry_period <= 0:
            raise ValueError("retryPeriod must be greater than zero")
        if not lock.identity:
            raise ValueError("the lock's identity is empty")
        self._lock = lock
        self._name = name
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        # Others go by the whole seconds in the record.
        self._fence_after = min(renew_deadline, int(lease_duration))
        self._release_on_cancel = release_on_cancel
        self._on_new_leader = on_new_leader
        self._may_renew = may_renew
        self._metrics: LeaderElectionMetrics = metrics or NoMetrics()
        self._clock = clock
        self._jitter = jitter
        self._observed: LeaderElectionRecord | None = None
        self._observed_at = _NEVER
        self._reported_leader = ""
        # The only thing that decides about writes: one float, so that another thread never sees half a change.
        self._renewal_began = _NEVER
        self._metrics.leader_off(name)

    @property
    def leader(self) -> str:
        """Who was last seen holding the Lease; empty if nobody was, or nothing was seen yet."""
        observed = self._observed
        return "" if observed is None else observed.holder_identity

    @property
    def last_renewal_began(self) -> float:
        """When the write that last got or renewed the Lease was started (monotonic seconds); -inf while not leading."""
        return self._renewal_began

    def fence(self) -> None:
        """Return if a write may be sent now.

        Raises:
            FencedError: the Lease is not held, or was not renewed for so long that it may soon be another's.
        """
        age = self._renewal_age()
        if age >= self._fence_after:
            self._metrics.write_fenced()
            state = f"was last renewed {age:.1f} seconds ago" if math.isfinite(age) else "is not held"
            raise FencedError(f"lease {self._lock} {state}")

    def check(self, tolerance: float) -> str | None:
        """The health check named leaderElection: what is wrong, or None.

        It fails only in a process that believes to lead and has not renewed for the lease duration plus `tolerance` seconds;
        such a process should have ended long before.
        """
        if self._leads() and self._clock.monotonic() - self._observed_at > self._lease_duration + tolerance:
            return f"failed election to renew leadership on lease {self._name}"
        return None

    async def run(self, on_started_leading: Callable[[], None]) -> NoReturn:
        """Wait for leadership, say that it was gained, and hold it.

        Args:
            on_started_leading: Called once the Lease is held; renewing goes on when it returns, so it must return at once.

        Raises:
            LeadershipLostError: leadership was gained and lost.
            asyncio.CancelledError: the caller wants no more; the Lease was released first if that was asked for.
        """
        await self._acquire()
        try:
            try:
                on_started_leading()
                await self._renew()
            finally:
                self._renewal_began = _NEVER
                self._metrics.leader_off(self._name)
        except asyncio.CancelledError:
            if self._release_on_cancel:
                await self._release()
            raise
        finally:
            self._lock.record_event("stopped leading")

    async def _acquire(self) -> None:
        log.info("Attempting to acquire leader lease...", lock=str(self._lock))
        while not await self._acquire_once():
            log.info("Failed to acquire lease", v=4, lock=str(self._lock))
            await asyncio.sleep(self._retry_period * (1 + self._jitter() * JITTER_FACTOR))
        self._lock.record_event("became leader")
        self._metrics.leader_on(self._name, self._renewal_age)
        log.info("Successfully acquired lease", lock=str(self._lock))

    async def _acquire_once(self) -> bool:
        try:
            async with asyncio.timeout(self._renew_deadline):
                return await self._try_acquire_or_renew()
        except TimeoutError:
            log.warning("Timed out acquiring lease", lock=str(self._lock))
            return False
        finally:
            self._report_transition()

    async def _renew(self) -> NoReturn:
        try:
            while True:
                await self._renew_round()
                log.info("Successfully renewed lease", v=5, lock=str(self._lock))
                await asyncio.sleep(self._retry_period)
        except LeadershipLostError as lost:
            log.info("Failed to renew lease", lock=str(self._lock), err=str(lost))
            raise

    async def _renew_round(self) -> None:
        # Renewing now would be correct, but writes were already refused, or would have been.
        if self._renewal_age() >= self._fence_after:
            raise LeadershipLostError(f"the process stood still for {self._renewal_age():.1f} seconds")
        try:
            async with asyncio.timeout(self._renew_deadline):
                while True:
                    if self._may_renew is not None and not self._may_renew():
                        raise LeadershipLostError("the leader's work no longer moves")
                    began = self._clock.monotonic()
                    if await self._try_acquire_or_renew():
                        self._metrics.renewed(self._name, self._clock.monotonic() - began)
                        return
                    await asyncio.sleep(began + self._retry_period - self._clock.monotonic())
        except TimeoutError:
            raise LeadershipLostError(f"could not renew for {self._renew_deadline:g} seconds") from None
        finally:
            self._report_transition()

    async def _try_acquire_or_renew(self) -> bool:
        now = self._clock.now()
        record = LeaderElectionRecord(
            holder_identity=self._lock.identity,
            lease_duration_seconds=int(self._lease_duration),
            acquire_time=now,
            renew_time=now,
        )
        if self._observed is not None and self._leads() and self._is_valid():
            try:
                await self._write(self._lock.update, _continued(record, self._observed))
            except _FAILURES as error:
                log.info(
                    "Failed to update lease optimistically, falling back to slow path",
                    v=2,
                    lock=str(self._lock),
                    err=str(error),
                )
            else:
                return True

        try:
            current = await self._lock.get()
        except _FAILURES as error:
            if is_not_found(error):
                return await self._try_write("Error initially creating lease lock", self._lock.create, record)
            log.error("Error retrieving lease lock", err=error, lock=str(self._lock))
            return False

        if current != self._observed:
            self._observe(current)
        if self._leads():
            self._metrics.slowpath_exercised(self._name)
            return await self._try_write("Failed to update lease", self._lock.update, _continued(record, current))
        if current.holder_identity and self._is_valid():
            log.info(
                "Lease is held by and has not yet expired", v=4, lock=str(self._lock), holder=current.holder_identity
            )
            return False
        taken = replace(record, leader_transitions=current.leader_transitions + 1)
        return await self._try_write("Failed to update lease", self._lock.update, taken)

    async def _try_write(self, failure: str, write: _Write, record: LeaderElectionRecord) -> bool:
        try:
            await self._write(write, record)
        except _FAILURES as error:
            log.error(failure, err=error, lock=str(self._lock))
            return False
        return True

    async def _write(self, write: _Write, record: LeaderElectionRecord) -> None:
        began = self._clock.monotonic()
        await write(record)
        self._observe(record)
        self._renewal_began = began

    def _observe(self, record: LeaderElectionRecord) -> None:
        self._observed = record
        self._observed_at = self._clock.monotonic()
        if record.holder_identity != self._lock.identity:
            self._renewal_began = _NEVER

    def _leads(self) -> bool:
        return self.leader == self._lock.identity

    def _is_valid(self) -> bool:
        seconds = 0 if self._observed is None else self._observed.lease_duration_seconds
        return self._observed_at + seconds > self._clock.monotonic()

    def _renewal_age(self) -> float:
        return self._clock.monotonic() - self._renewal_began

    def _report_transition(self) -> None:
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self._on_new_leader is not None:
                self._on_new_leader(self.leader)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._renew_deadline):
                while not await self._try_release():
                    log.info("Conflict when releasing lease, retrying", v=4, lock=str(self._lock))
        except _FAILURES as error:
            log.error("Failed to release lease", err=error, lock=str(self._lock))
        except TimeoutError:
            log.warning("Timed out releasing lease", lock=str(self._lock))

    async def _try_release(self) -> bool:
        """Give the Lease up if it is ours; False on a conflict, as when a cancelled renewal came through after all."""
        current = await self._lock.get()
        if current.holder_identity != self._lock.identity:
            return True
        now = self._clock.now()
        released = LeaderElectionRecord(
            lease_duration_seconds=1, acquire_time=now, renew_time=now, leader_transitions=current.leader_transitions
        )
        try:
            await self._lock.update(released)
        except StatusError as error:
            if is_conflict(error):
                return False
            raise
        self._observe(released)
        return True


def _continued(record: LeaderElectionRecord, current: LeaderElectionRecord) -> LeaderElectionRecord:
    """The record of a holder that stays."""
    return replace(record, acquire_time=current.acquire_time, leader_transitions=current.leader_transitions)
