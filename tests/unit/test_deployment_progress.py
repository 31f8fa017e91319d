"""What the status says of a rollout, and when a stuck one is looked at again."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kcm.api.types.apps import Deployment, DeploymentCondition, ReplicaSet
from kcm.api.types.meta import format_time
from kcm.controllers.deployment.conditions import get_deployment_condition
from kcm.controllers.deployment.progress import get_replica_failure, rollout_status, time_to_deadline
from kcm.controllers.deployment.util import MAX_INT32
from tests.clocks import START
from tests.unit.fakes import make_deployment, make_replica_set

EARLIER = START - timedelta(hours=1)


def condition(reason: str, status: str = "True", *, at: datetime = EARLIER, type_: str = "Progressing") -> Any:
    times = {"lastUpdateTime": format_time(at), "lastTransitionTime": format_time(EARLIER)}
    return {"type": type_, "status": status, "reason": reason, "message": "as it was", **times}


def deployment(
    *conditions: Any, deadline: int | None = 60, desired: int = 3, counts: tuple[int, ...] = ()
) -> Deployment:
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = dict(zip(names, counts, strict=False)) | {"conditions": list(conditions), "observedGeneration": 1}
    return make_deployment(replicas=desired, strategy="Recreate", deadline=deadline, status=status)


def rs(name: str = "new", *, spec: int = 3, replicas: int = 3, available: int = 3, **status: Any) -> ReplicaSet:
    counts = {"replicas": replicas, "readyReplicas": available, "availableReplicas": available}
    return make_replica_set(name, replicas=spec, status=counts | status)


def progressing(
    deployment: Deployment, old: list[ReplicaSet], new: ReplicaSet | None, *, now: datetime = START
) -> DeploymentCondition | None:
    all_rss = [*old, *([new] if new else [])]
    status = rollout_status(deployment, all_rss, new, now=now, terminating_replicas=True)
    return get_deployment_condition(status, "Progressing")


def expected(status: str, reason: str, message: str, *, transition: datetime = START) -> DeploymentCondition:
    return DeploymentCondition(
        type="Progressing",
        status=status,
        reason=reason,
        message=message,
        last_update_time=START,
        last_transition_time=transition,
    )


@pytest.mark.row("D-143")
@pytest.mark.parametrize("deadline", [None, MAX_INT32])
def test_without_a_deadline_there_is_no_progressing_condition(deadline: int | None) -> None:
    stored = deployment(condition("ReplicaSetUpdated"), deadline=deadline, counts=(2, 2, 2, 2))
    assert progressing(stored, [rs("old", spec=0, replicas=1, available=1)], rs(replicas=2, available=2)) is None


@pytest.mark.row("D-144")
def test_a_rollout_that_was_completed_is_not_judged_again() -> None:
    stored = deployment(condition("NewReplicaSetAvailable"), counts=(3, 3, 3, 3))
    now = progressing(stored, [], rs(available=0))
    assert now is not None
    assert (now.reason, now.message, now.last_update_time) == ("NewReplicaSetAvailable", "as it was", EARLIER)


@pytest.mark.row("D-144", "D-149")
def test_a_new_rollout_after_a_completed_one_is_judged() -> None:
    stored = deployment(condition("NewReplicaSetAvailable"), counts=(3, 0, 3, 3))
    now = progressing(stored, [rs("old", replicas=2, available=2)], rs(replicas=1, available=0))
    assert now == expected("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.', transition=EARLIER)


@pytest.mark.row("D-139", "D-147", "D-152")
@pytest.mark.parametrize(
    ("before", "transition"),
    [
        ([condition("ReplicaSetUpdated")], EARLIER),
        ([condition("ProgressDeadlineExceeded", "False")], START),
        ([], START),
    ],
)
def test_completion(before: list[Any], transition: datetime) -> None:
    now = progressing(deployment(*before, counts=(3, 3, 3, 2)), [], rs())
    message = 'ReplicaSet "new" has successfully progressed.'
    assert now == expected("True", "NewReplicaSetAvailable", message, transition=transition)


@pytest.mark.row("D-147")
def test_completion_without_a_new_replica_set_names_the_deployment() -> None:
    stored = deployment(condition("ReplicaSetUpdated"), desired=0, counts=(3, 3, 3, 3))
    now = progressing(stored, [rs("old", spec=0, replicas=0, available=0)], None)
    message = 'Deployment "web" has successfully progressed.'
    assert now == expected("True", "NewReplicaSetAvailable", message, transition=EARLIER)


@pytest.mark.row("D-149", "D-152")
@pytest.mark.parametrize(
    ("before", "transition"),
    [
        ([condition("ReplicaSetUpdated")], EARLIER),
        ([condition("NewReplicaSetCreated")], EARLIER),
        ([condition("ProgressDeadlineExceeded", "False")], START),
        ([], START),
    ],
)
def test_each_step_of_progress_moves_the_update_time(before: list[Any], transition: datetime) -> None:
    """Even under the same reason; the condition goes to the end."""
    stored = deployment(*before, condition("x", type_="Foreign"), counts=(3, 1, 1, 1))
    old, new = rs("old", spec=1, replicas=1, available=1), rs(replicas=2, available=1)
    status = rollout_status(stored, [old, new], new, now=START, terminating_replicas=True)
    message = 'ReplicaSet "new" is progressing.'
    assert status.conditions[-1] == expected("True", "ReplicaSetUpdated", message, transition=transition)
    assert [c.type for c in status.conditions] == ["Foreign", "Available", "Progressing"]


@pytest.mark.row("D-149")
def test_progress_without_a_new_replica_set_names_the_deployment() -> None:
    stored = deployment(condition("ReplicaSetUpdated"), counts=(3, 0, 3, 3))
    now = progressing(stored, [rs("old", replicas=2, available=2)], None)
    assert now is not None
    assert now.message == 'Deployment "web" is progressing.'


@pytest.mark.row("D-145", "D-151")
def test_no_progress_for_too_long() -> None:
    stuck = deployment(condition("ReplicaSetUpdated"), counts=(2, 2, 2, 2))
    now = progressing(stuck, [], rs(replicas=2, available=2))
    assert now == expected("False", "ProgressDeadlineExceeded", 'ReplicaSet "new" has timed out progressing.')
    without = progressing(deployment(condition("x"), counts=(2, 0, 2, 2)), [rs("old", replicas=2, available=2)], None)
    assert without is not None
    assert without.message == 'Deployment "web" has timed out progressing.'


@pytest.mark.row("D-145", "D-151")
def test_a_timeout_is_noted_once() -> None:
    stored = deployment(condition("ProgressDeadlineExceeded", "False"), counts=(2, 2, 2, 2))
    now = progressing(stored, [], rs(replicas=2, available=2))
    assert now is not None
    assert (now.message, now.last_update_time) == ("as it was", EARLIER)


@pytest.mark.row("D-145", "D-154")
def test_no_news_before_the_deadline_leaves_the_status_as_it_is() -> None:
    recent = condition("ReplicaSetUpdated", at=START - timedelta(seconds=30))
    available = condition("MinimumReplicasUnavailable", "False", type_="Available")
    stored = deployment(recent, available, counts=(2, 2, 2, 2))
    new = rs(replicas=2, available=2)
    status = rollout_status(stored, [new], new, now=START, terminating_replicas=False)
    assert status.conditions == stored.status.conditions


def failure(message: str, status: str = "True") -> Any:
    return condition("FailedCreate", status, type_="ReplicaFailure") | {"message": message}


@pytest.mark.row("D-153")
def test_a_failure_of_the_new_replica_set_is_reported_before_that_of_an_old_one() -> None:
    first, second = rs("a", conditions=[failure("a")]), rs("b", conditions=[failure("b")])
    quiet, new = rs("quiet", conditions=[condition("x", type_="Odd")]), rs("new", conditions=[failure("new")])

    def message(sets: list[ReplicaSet], new_rs: ReplicaSet | None) -> str | None:
        found = get_replica_failure(sets, new_rs)
        return None if found is None else found.message

    assert message([first, second, new], new) == "new"
    assert message([first, second, quiet], quiet) == "a"
    assert message([quiet, second], None) == "b"
    assert message([quiet], quiet) is None


@pytest.mark.row("D-153")
def test_a_failure_comes_and_goes_but_a_mere_new_message_is_not_copied() -> None:
    def failures(stored: list[Any], now: list[Any]) -> list[str]:
        new = rs(conditions=now)
        status = rollout_status(deployment(*stored), [new], new, now=START, terminating_replicas=True)
        return [c.message for c in status.conditions if c.type == "ReplicaFailure"]

    assert failures([], [failure("quota")]) == ["quota"]
    assert failures([failure("quota")], []) == []
    assert failures([failure("quota")], [failure("another")]) == ["quota"]
    assert failures([failure("quota", "False")], [failure("another")]) == ["another"]


@pytest.mark.row("D-155", "D-157")
@pytest.mark.parametrize(
    ("seconds_ago", "left"), [(30, 30), (59, 1), (60, 0), (61, -1), (120, -60), (59.000001, 0.999999)]
)
def test_the_time_that_is_left(seconds_ago: float, left: float) -> None:
    stored = deployment(condition("ReplicaSetUpdated", at=START), counts=(3, 3, 1, 1))
    now = START + timedelta(seconds=seconds_ago)
    assert time_to_deadline(stored, stored.status, now) == timedelta(seconds=left)


@pytest.mark.row("D-155")
def test_nothing_is_waited_for_without_a_deadline_or_condition_or_when_it_is_over() -> None:
    stuck = condition("ReplicaSetUpdated")
    for over in (
        deployment(stuck, deadline=None, counts=(3, 3, 1, 1)),
        deployment(stuck, deadline=MAX_INT32, counts=(3, 3, 1, 1)),
        deployment(counts=(3, 3, 1, 1)),
        deployment(stuck, counts=(3, 3, 3, 3)),
        deployment(condition("ProgressDeadlineExceeded", "False"), counts=(3, 3, 0, 0)),
    ):
        assert time_to_deadline(over, over.status, START) is None


@pytest.mark.row("D-184")
def test_a_completed_rollout_that_lost_pods_is_waited_for_but_not_timed_out() -> None:
    stored = deployment(condition("NewReplicaSetAvailable"), counts=(3, 3, 1, 1))
    left = time_to_deadline(stored, stored.status, START)
    assert left is not None
    assert left < timedelta(0)
    now = progressing(stored, [], rs(available=1))
    assert now is not None
    assert now.reason == "NewReplicaSetAvailable"
