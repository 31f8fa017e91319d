"""Facts about pods."""

from datetime import datetime, timedelta

import pytest

from kcm.api.types.core import Pod, PodCondition, PodStatus
from kcm.api.types.meta import ObjectMeta
from kcm.controllers.pod_utils import (
    is_active,
    is_terminating,
    min_next_availability_check,
    next_availability_check,
)
from tests.clocks import START, FakeClock


def ready_pod(seconds: float | None, *, ready: bool = True) -> Pod:
    """A pod that turned ready this long after START, or nobody knows when."""
    since: datetime | None = None if seconds is None else START + timedelta(seconds=seconds)
    condition = PodCondition(type="Ready", status="True" if ready else "False", last_transition_time=since)
    return Pod(metadata=ObjectMeta(name=str(seconds)), status=PodStatus(phase="Running", conditions=(condition,)))


def at(seconds: float) -> FakeClock:
    clock = FakeClock()
    clock.seconds = seconds
    return clock


@pytest.mark.row("R-040")
@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "Succeeded", "Failed"])
@pytest.mark.parametrize("deleted", [True, False])
def test_ended_pods_are_neither_active_nor_terminating(phase: str, *, deleted: bool) -> None:
    meta = ObjectMeta(name="p", deletion_timestamp=START if deleted else None)
    pod = Pod(metadata=meta, status=PodStatus(phase=phase))
    ended = phase in {"Succeeded", "Failed"}
    assert is_active(pod) is (not ended and not deleted)
    assert is_terminating(pod) is (not ended and deleted)


@pytest.mark.row("R-167")
def test_a_pod_is_checked_again_only_while_time_makes_it_available() -> None:
    assert next_availability_check(ready_pod(0), 10, START + timedelta(seconds=4)) == 6
    assert next_availability_check(ready_pod(0), 10, START + timedelta(seconds=10)) is None
    assert next_availability_check(ready_pod(0), 0, START) is None
    assert next_availability_check(ready_pod(None), 10, START) is None
    assert next_availability_check(ready_pod(0, ready=False), 10, START) is None
    assert next_availability_check(Pod(), 10, START) is None


@pytest.mark.row("R-119", "R-122", "R-168", "R-210")
def test_the_pod_that_was_next_at_the_status_decides_measured_now() -> None:
    pods = [ready_pod(0), ready_pod(2), ready_pod(4)]
    status = START + timedelta(seconds=4)
    assert min_next_availability_check(pods, 10, status, at(6)) == 4
    assert min_next_availability_check(pods, 10, status, at(11)) == 0
    pods = [ready_pod(0), ready_pod(2), ready_pod(4.3)]
    assert min_next_availability_check(pods, 5, START + timedelta(seconds=4.3), at(4.3)) == pytest.approx(0.7)
    assert min_next_availability_check([ready_pod(None)], 10, status, at(6)) is None
    assert min_next_availability_check([], 10, status, at(6)) is None
