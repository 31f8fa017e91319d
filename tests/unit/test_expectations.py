"""Expectations: what satisfies them, what strikes them off, when they expire."""

import pytest

from kcm.expectations import ControllerExpectations
from kcm.logs import capture
from tests.clocks import FakeClock

RS = "ns/rs"


def counters(expectations: ControllerExpectations, key: str = RS) -> tuple[int, int] | None:
    found = expectations.get(key)
    return None if found is None else (found.adds, found.dels)


@pytest.mark.row("R-030")
def test_a_key_that_expects_nothing_is_satisfied() -> None:
    assert ControllerExpectations(FakeClock()).satisfied(RS)


@pytest.mark.row("R-029", "R-030", "R-032")
def test_creations_hold_a_key_back_until_all_are_observed() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_creations(RS, 2)
    expectations.creation_observed(RS)
    assert not expectations.satisfied(RS)
    expectations.creation_observed(RS)
    assert expectations.satisfied(RS)
    expectations.creation_observed(RS)
    assert counters(expectations) == (-1, 0)
    assert expectations.satisfied(RS)


@pytest.mark.row("R-029")
def test_setting_replaces_both_counters_and_the_time() -> None:
    clock = FakeClock()
    expectations = ControllerExpectations(clock)
    expectations.expect_creations(RS, 5)
    expectations.raise_(RS, 0, 3)
    clock.seconds += 200
    expectations.expect_creations(RS, 2)
    assert counters(expectations) == (2, 0)
    clock.seconds += 200
    assert not expectations.satisfied(RS)
    expectations.expect_deletions(RS, ["ns/a"])
    assert counters(expectations) == (0, 1)


@pytest.mark.row("R-032", "R-161")
def test_without_expectations_observing_lowering_and_raising_do_nothing() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.creation_observed(RS)
    expectations.deletion_observed(RS, "ns/a")
    expectations.lower(RS, 1, 1)
    expectations.raise_(RS, 1, 1)
    assert expectations.get(RS) is None


@pytest.mark.row("R-161")
def test_raising_and_lowering_change_both_counters_and_not_the_time() -> None:
    clock = FakeClock()
    expectations = ControllerExpectations(clock)
    expectations.expect_creations(RS, 3)
    clock.seconds += 299
    expectations.raise_(RS, 2, 4)
    assert counters(expectations) == (5, 4)
    expectations.lower(RS, 3, 1)
    assert counters(expectations) == (2, 3)
    assert not expectations.satisfied(RS)
    clock.seconds += 2
    assert expectations.satisfied(RS)


@pytest.mark.row("R-030", "R-031", "R-162")
def test_they_expire_after_more_than_five_minutes_and_stay_recorded() -> None:
    clock = FakeClock()
    expectations = ControllerExpectations(clock)
    expectations.expect_creations(RS, 1)
    clock.seconds += 300
    assert not expectations.satisfied(RS)
    clock.seconds += 0.001
    assert expectations.satisfied(RS)
    assert counters(expectations) == (1, 0)


@pytest.mark.row("R-031")
def test_fulfilled_ones_stay_recorded() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_creations(RS, 1)
    expectations.creation_observed(RS)
    assert expectations.satisfied(RS)
    assert counters(expectations) == (0, 0)


@pytest.mark.row("R-033")
def test_each_expected_deletion_counts_once() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_deletions(RS, ["ns/a", "ns/b"])
    expectations.deletion_observed(RS, "ns/a")
    expectations.deletion_observed(RS, "ns/a")
    expectations.deletion_observed(RS, "ns/stranger")
    assert counters(expectations) == (0, 1)
    expectations.deletion_observed(RS, "ns/b")
    assert expectations.satisfied(RS)


@pytest.mark.row("R-034")
def test_expecting_deletions_counts_distinct_pods_and_replaces_the_old_ones() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_deletions(RS, ["ns/a", "ns/b", "ns/a"])
    assert counters(expectations) == (0, 2)
    with capture(verbosity=0) as records:
        expectations.expect_deletions(RS, ["ns/c"])
    assert [(record.level, record.message, record.pairs["keys"]) for record in records] == [
        ("error", "Clobbering existing delete keys", ["ns/a", "ns/b"])
    ]
    expectations.deletion_observed(RS, "ns/a")
    assert counters(expectations) == (0, 1)
    expectations.deletion_observed(RS, "ns/c")
    assert counters(expectations) == (0, 0)
    with capture(verbosity=0) as records:
        expectations.expect_deletions(RS, ["ns/d"])
    assert records == []


@pytest.mark.row("R-035", "R-163")
def test_a_late_deletion_after_creations_were_expected_makes_dels_negative() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_deletions(RS, ["ns/a"])
    expectations.expect_creations(RS, 1)
    expectations.deletion_observed(RS, "ns/a")
    assert counters(expectations) == (1, -1)
    expectations.creation_observed(RS)
    assert expectations.satisfied(RS)


@pytest.mark.row("R-036")
def test_deleting_forgets_counters_and_pods() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_deletions(RS, ["ns/a"])
    expectations.delete(RS)
    expectations.delete(RS)
    assert expectations.get(RS) is None
    assert expectations.satisfied(RS)
    expectations.expect_creations(RS, 1)
    expectations.deletion_observed(RS, "ns/a")
    assert counters(expectations) == (1, 0)


def test_keys_are_independent() -> None:
    expectations = ControllerExpectations(FakeClock())
    expectations.expect_deletions(RS, ["ns/a"])
    expectations.expect_deletions("ns/other", ["ns/a"])
    expectations.deletion_observed(RS, "ns/a")
    assert expectations.satisfied(RS)
    assert not expectations.satisfied("ns/other")
