"""Expectations against the list of what happened since they were last set."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kcm.expectations import EXPECTATIONS_TIMEOUT, ControllerExpectations
from tests.clocks import FakeClock

pods = st.sampled_from(["ns/a", "ns/b", "ns/c", "ns/d"])
counts = st.integers(min_value=0, max_value=4)


class ExpectationsMachine(RuleBasedStateMachine):
    """A controller that creates and deletes, and a cache that shows it sooner, later or never."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.expectations = ControllerExpectations(self.clock)
        self.set_at: float | None = None
        self.expected = (0, 0)
        self.struck_off = [0, 0]
        self.awaited: list[str] = []

    def model_set(self, adds: int, dels: int) -> None:
        self.set_at = self.clock.seconds
        self.expected = (adds, dels)
        self.struck_off = [0, 0]

    @rule(count=counts)
    def expect_creations(self, count: int) -> None:
        self.expectations.expect_creations("ns/rs", count)
        self.model_set(count, 0)

    @rule(keys=st.lists(pods, max_size=6))
    def expect_deletions(self, keys: list[str]) -> None:
        self.expectations.expect_deletions("ns/rs", keys)
        self.awaited = sorted(set(keys))
        self.model_set(0, len(self.awaited))

    @rule()
    def creation_observed(self) -> None:
        self.expectations.creation_observed("ns/rs")
        self.struck_off[0] += 1

    @rule(pod=pods)
    def deletion_observed(self, pod: str) -> None:
        self.expectations.deletion_observed("ns/rs", pod)
        if pod in self.awaited:
            self.awaited.remove(pod)
            self.struck_off[1] += 1

    @rule(adds=counts, dels=counts)
    def change(self, adds: int, dels: int) -> None:
        self.expectations.raise_("ns/rs", adds, 0)
        self.expectations.lower("ns/rs", 0, dels)
        self.struck_off[0] -= adds
        self.struck_off[1] += dels

    @rule()
    def delete(self) -> None:
        self.expectations.delete("ns/rs")
        self.set_at = None
        self.awaited = []

    @rule(seconds=st.sampled_from([1.0, 299.0, 300.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds

    @invariant()
    def agrees_with_the_model(self) -> None:
        found = self.expectations.get("ns/rs")
        assert (found is None) == (self.set_at is None)
        if found is None or self.set_at is None:
            assert self.expectations.satisfied("ns/rs")
            return
        left = [expected - struck for expected, struck in zip(self.expected, self.struck_off, strict=True)]
        assert [found.adds, found.dels] == left
        expired = self.clock.seconds > self.set_at + EXPECTATIONS_TIMEOUT
        assert self.expectations.satisfied("ns/rs") == (expired or max(left) <= 0)

    @invariant()
    def other_keys_are_not_touched(self) -> None:
        assert self.expectations.get("ns/other") is None


def test_expectations_agree_with_the_model() -> None:
    run_state_machine_as_test(ExpectationsMachine, settings=settings(max_examples=200, deadline=None))
