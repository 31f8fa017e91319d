"""Conditions of a Deployment, and whether its rollout is complete, moving or stuck."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kcm.api.types.apps import (
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    ReplicaSetCondition,
    status_document,
)
from kcm.controllers.deployment.conditions import (
    deployment_complete,
    deployment_progressing,
    deployment_timed_out,
    get_deployment_condition,
    has_progress_deadline,
    new_deployment_condition,
    remove_deployment_condition,
    replica_set_to_deployment_condition,
    set_deployment_condition,
)
from kcm.controllers.deployment.util import MAX_INT32
from tests.clocks import START
from tests.unit.fakes import make_deployment

EARLIER = START - timedelta(hours=1)


def condition(type_: str, status: str = "True", reason: str = "Why", *, at: datetime = EARLIER) -> DeploymentCondition:
    return new_deployment_condition(type_, status, reason, "message", at)


def status(*conditions: DeploymentCondition, **counters: Any) -> DeploymentStatus:
    return DeploymentStatus(conditions=conditions, **counters)


PROGRESSING, AVAILABLE = condition("Progressing"), condition("Available")


def test_a_condition_is_found_by_its_type() -> None:
    assert get_deployment_condition(status(PROGRESSING, AVAILABLE), "Available") == AVAILABLE
    assert get_deployment_condition(status(PROGRESSING), "ReplicaFailure") is None


@pytest.mark.row("D-139")
def test_a_condition_of_the_same_status_and_reason_stays_as_it_was() -> None:
    before = status(PROGRESSING, AVAILABLE)
    again = new_deployment_condition("Progressing", "True", "Why", "another message", START)
    assert set_deployment_condition(before, again) is before


@pytest.mark.row("D-139")
def test_a_changed_condition_goes_to_the_end_and_keeps_its_transition_while_the_status_stays() -> None:
    foreign = condition("Foreign")
    before = status(PROGRESSING, foreign, AVAILABLE)
    same = set_deployment_condition(before, condition("Progressing", "True", "Other", at=START))
    assert [c.type for c in same.conditions] == ["Foreign", "Available", "Progressing"]
    assert (same.conditions[-1].last_update_time, same.conditions[-1].last_transition_time) == (START, EARLIER)
    other = set_deployment_condition(before, condition("Progressing", "False", "Why", at=START))
    assert (other.conditions[-1].last_update_time, other.conditions[-1].last_transition_time) == (START, START)
    assert set_deployment_condition(status(), AVAILABLE).conditions == (AVAILABLE,)


def test_conditions_are_removed_by_type() -> None:
    doubled = status(PROGRESSING, AVAILABLE, condition("Progressing", "False"))
    assert remove_deployment_condition(doubled, "Progressing").conditions == (AVAILABLE,)
    assert remove_deployment_condition(doubled, "ReplicaFailure") == doubled


@pytest.mark.row("D-153")
def test_a_replica_sets_condition_brings_its_transition_as_both_times() -> None:
    failure = ReplicaSetCondition(
        type="ReplicaFailure", status="True", reason="FailedCreate", message="quota", last_transition_time=EARLIER
    )
    assert replica_set_to_deployment_condition(failure) == DeploymentCondition(
        type="ReplicaFailure",
        status="True",
        reason="FailedCreate",
        message="quota",
        last_transition_time=EARLIER,
        last_update_time=EARLIER,
    )


@pytest.mark.row("D-157")
def test_times_are_written_in_whole_seconds() -> None:
    late = condition("Progressing", at=START + timedelta(microseconds=999_999))
    assert status_document(status(late))["conditions"][0]["lastUpdateTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.row("D-100")
@pytest.mark.parametrize(("seconds", "in_force"), [(None, False), (MAX_INT32, False), (0, True), (600, True)])
def test_the_longest_deadline_is_none(seconds: int | None, *, in_force: bool) -> None:
    assert has_progress_deadline(make_deployment(deadline=seconds)) is in_force


@pytest.mark.row("D-146")
@pytest.mark.parametrize(
    ("desired", "replicas", "updated", "available", "complete"),
    [
        (5, 5, 5, 5, True),
        (5, 5, 5, 4, False),
        (5, 5, 4, 5, False),
        (5, 6, 5, 5, False),
        (1, 2, 1, 1, False),
        (1, 1, 1, 0, False),
        (0, 0, 0, 0, True),
    ],
)
def test_a_rollout_is_complete_with_all_pods_new_and_available_and_no_others(
    desired: int, replicas: int, updated: int, available: int, *, complete: bool
) -> None:
    deployment = make_deployment(replicas=desired)
    counters = {"replicas": replicas, "updated_replicas": updated, "available_replicas": available}
    assert deployment_complete(deployment, status(observed_generation=1, **counters)) is complete


@pytest.mark.row("D-146")
def test_a_rollout_is_not_complete_before_the_spec_was_seen() -> None:
    deployment = make_deployment(replicas=0, metadata={"generation": 5})
    assert not deployment_complete(deployment, status(observed_generation=4))
    assert deployment_complete(deployment, status(observed_generation=6))


@pytest.mark.row("D-148")
@pytest.mark.parametrize(
    ("before", "after", "progressing"),
    [
        ((10, 4, 4, 4), (10, 6, 4, 4), True),
        ((10, 4, 4, 4), (10, 4, 4, 4), False),
        ((10, 4, 6, 6), (8, 4, 6, 6), True),
        ((10, 7, 3, 3), (10, 6, 3, 3), False),
        ((10, 4, 7, 7), (8, 8, 5, 5), True),
        ((10, 10, 9, 8), (10, 10, 10, 8), True),
        ((10, 10, 10, 9), (10, 10, 10, 10), True),
        ((10, 10, 10, 10), (10, 10, 9, 9), False),
    ],
)
def test_progress_is_more_new_ready_or_available_pods_or_fewer_old_ones(
    before: tuple[int, ...], after: tuple[int, ...], *, progressing: bool
) -> None:
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    deployment = make_deployment(status=dict(zip(names, before, strict=True)))
    names = ("replicas", "updated_replicas", "ready_replicas", "available_replicas")
    assert deployment_progressing(deployment, status(**dict(zip(names, after, strict=True)))) is progressing


def timed_out(reason: str, seconds_ago: float, *, deadline: int | None = 10, type_: str = "Progressing") -> bool:
    deployment: Deployment = make_deployment(deadline=deadline)
    since = START - timedelta(seconds=seconds_ago)
    return deployment_timed_out(deployment, status(condition(type_, "True", reason, at=since)), START)


@pytest.mark.row("D-150")
def test_time_runs_out_strictly_after_the_deadline() -> None:
    assert not timed_out("ReplicaSetUpdated", 9)
    assert not timed_out("ReplicaSetUpdated", 10)
    assert timed_out("ReplicaSetUpdated", 10.001)
    assert timed_out("ReplicaSetUpdated", 11)


@pytest.mark.row("D-150")
def test_time_does_not_run_out_without_deadline_or_condition_or_after_success() -> None:
    assert not timed_out("", 11, deadline=None)
    assert not timed_out("", 11, deadline=MAX_INT32)
    assert not timed_out("NewReplicaSetAvailable", 11)
    assert not timed_out("ReplicaSetUpdated", 11, type_="Available")
    assert not timed_out("ProgressDeadlineExceeded", 11, deadline=None)


@pytest.mark.row("D-150")
def test_a_timeout_once_noted_stays_and_an_undated_condition_is_overdue() -> None:
    assert timed_out("ProgressDeadlineExceeded", 0)
    undated = DeploymentCondition(type="Progressing", status="True")
    assert deployment_timed_out(make_deployment(), status(undated), START)
