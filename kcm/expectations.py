"""What a controller still waits to see in its cache.

Follows pkg/controller/controller_utils.go (ControllerExpectations, UIDTrackingControllerExpectations).

A controller that has just created or deleted pods must not count pods again before its cache shows what it did, or it would
create or delete too many. So it notes here how many of each it expects, and its handlers strike them off as they arrive.

Guarantees:
- The counters of a key are those last set, less what was observed since, and may fall below zero.
- A deletion counts once, though it is seen twice: when the pod gets its deletionTimestamp, and when it vanishes.
- What never arrives blocks for five minutes at most.

Not guaranteed: that a creation which is observed is one that was expected, or that anybody is woken when expectations expire.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kcm.clock import REAL, Clock
from kcm.logs import get_logger

log = get_logger(__name__)

#: Seconds after which expectations no longer hold a controller back.
EXPECTATIONS_TIMEOUT = 300.0


class Expectations(NamedTuple):
    """What one key waits for, as it is now."""

    adds: int
    dels: int
    #: When they were set, on the monotonic clock; lowering and raising do not move it.
    set_at: float

    @property
    def fulfilled(self) -> bool:
        """Whether nothing is waited for any more."""
        return self.adds <= 0 and self.dels <= 0


class ControllerExpectations:
    """The expectations of one controller's keys (`namespace/name`)."""

    def __init__(self, clock: Clock = REAL) -> None:
        self._clock = clock
        self._expectations: dict[str, Expectations] = {}
        self._deletions: dict[str, set[str]] = {}

    def get(self, key: str) -> Expectations | None:
        """What the key waits for; expired and fulfilled expectations stay until they are replaced or deleted."""
        return self._expectations.get(key)

    def satisfied(self, key: str) -> bool:
        """Whether the key may create and delete: it expects nothing (more), or has done so for more than five minutes."""
        expectations = self._expectations.get(key)
        if expectations is None:
            log.info("Controller either never recorded expectations, or the ttl expired", v=4, controller=key)
            return True
        if expectations.fulfilled:
            log.info("Controller expectations fulfilled", v=4, controller=key, expectations=expectations)
            return True
        if self._clock.monotonic() - expectations.set_at > EXPECTATIONS_TIMEOUT:
            log.info("Controller expectations expired", v=4, controller=key, expectations=expectations)
            return True
        log.info("Controller still waiting on expectations", v=4, controller=key, expectations=expectations)
        return False

    def overdue(self, seconds: float) -> int:
        """How many keys have been waiting for longer than this."""
        now = self._clock.monotonic()
        waiting = [expectations for expectations in list(self._expectations.values()) if not expectations.fulfilled]
        return sum(now - expectations.set_at > seconds for expectations in waiting)

    def expect_creations(self, key: str, count: int) -> None:
        """Expect `count` creations and no deletions from now on; pods whose deletion was expected are still known."""
        self._set(key, count, 0)

    def expect_deletions(self, key: str, pod_keys: Iterable[str]) -> None:
        """Expect the deletion of these pods (`namespace/name`), and of no others, and no creations from now on."""
        expected = set(pod_keys)
        if known := self._deletions.get(key):
            log.error("Clobbering existing delete keys", controller=key, keys=sorted(known))
        self._deletions[key] = expected
        self._set(key, 0, len(expected))

    def creation_observed(self, key: str) -> None:
        """Strike off one creation."""
        self.lower(key, 1, 0)

    def deletion_observed(self, key: str, pod_key: str) -> None:
        """Strike off the deletion of a pod if it was expected and not observed before."""
        expected = self._deletions.get(key)
        if expected is not None and pod_key in expected:
            log.info("Controller received delete for pod", v=4, controller=key, key=pod_key)
            expected.remove(pod_key)
            self.lower(key, 0, 1)

    def lower(self, key: str, adds: int, dels: int) -> None:
        """Expect that much less, if the key has expectations."""
        self._change("Lowered expectations", key, -adds, -dels)

    def raise_(self, key: str, adds: int, dels: int) -> None:
        """Expect that much more, if the key has expectations."""
        self._change("Raised expectations", key, adds, dels)

    def delete(self, key: str) -> None:
        """Forget all about a key."""
        self._expectations.pop(key, None)
        self._deletions.pop(key, None)

    def _change(self, message: str, key: str, adds: int, dels: int) -> None:
        known = self._expectations.get(key)
        if known is not None:
            expectations = Expectations(known.adds + adds, known.dels + dels, known.set_at)
            self._expectations[key] = expectations
            log.info(message, v=4, controller=key, expectations=expectations)

    def _set(self, key: str, adds: int, dels: int) -> None:
        expectations = Expectations(adds, dels, self._clock.monotonic())
        log.info("Setting expectations", v=4, controller=key, expectations=expectations)
        self._expectations[key] = expectations
