"""Waits between rounds of a reflector."""

import pytest

from kcm.informers.backoff import Backoff
from tests.clocks import FakeClock


@pytest.mark.row("M-003")
def test_waits_double_up_to_the_most_plus_jitter() -> None:
    waits = Backoff(clock=FakeClock(), uniform=lambda low, _: low)
    assert [waits.next() for _ in range(8)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30])
    waits = Backoff(clock=FakeClock(), uniform=lambda _, high: high)
    assert [waits.next() for _ in range(8)] == pytest.approx([1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60])


@pytest.mark.row("M-004")
def test_waits_start_over_two_minutes_after_the_last() -> None:
    clock = FakeClock()
    waits = Backoff(clock=clock, uniform=lambda low, _: low)
    for _ in range(5):
        waits.next()
    clock.seconds += 120
    assert waits.next() == pytest.approx(25.6)
    clock.seconds += 120.1
    assert waits.next() == pytest.approx(0.8)
