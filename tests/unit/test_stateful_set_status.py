"""What a StatefulSet's status says."""

from datetime import timedelta
from typing import Any

import pytest

from kcm.api.types.apps import StatefulSetCondition, StatefulSetStatus, status_document
from kcm.controllers.statefulset.stateful_set_status import (
    complete_update,
    count_replicas,
    inconsistent_status,
    set_progressing,
)
from tests.clocks import START
from tests.unit.stateful_set_world import R1, R2, Counters, make_stateful_pod, make_stateful_set

NAMED = StatefulSetStatus(current_revision=R1, update_revision=R2)


def counters(status: StatefulSetStatus) -> Counters:
    return Counters(
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.current_replicas,
        status.updated_replicas,
    )


@pytest.mark.row("S-179", "S-180", "S-097", "S-098")
@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, (1, 1, 1, 1, 0)),
        ({"revision": R2}, (1, 1, 1, 0, 1)),
        ({"revision": "third"}, (1, 1, 1, 0, 0)),
        ({"labels": {}}, (1, 1, 1, 0, 0)),
        ({"ready": False}, (1, 0, 0, 1, 0)),
        ({"ready_for": 9.0}, (1, 1, 0, 1, 0)),
        ({"phase": "Failed"}, (1, 0, 0, 1, 0)),
        ({"phase": "Succeeded", "revision": R2}, (1, 0, 0, 0, 1)),
        ({"phase": "Pending"}, (1, 0, 0, 1, 0)),
        ({"phase": ""}, (0, 0, 0, 0, 0)),
        ({"deleted": True}, (1, 0, 0, 0, 0)),
    ],
)
def test_what_a_pod_adds(pod: dict[str, Any], expected: tuple[int, ...]) -> None:
    pods = [make_stateful_pod(**{"ready_for": 60.0, **pod})]
    assert counters(count_replicas(NAMED, pods, 10, START)) == expected


@pytest.mark.row("S-180")
def test_a_terminating_pod_counts_as_ready_while_it_is() -> None:
    pod = make_stateful_pod(ready_for=60)
    meta = type(pod.metadata)(labels=pod.metadata.labels, deletion_timestamp=START)
    pod = type(pod)(metadata=meta, status=pod.status)
    assert counters(count_replicas(NAMED, [pod], 0, START)) == (1, 1, 1, 0, 0)
    same = StatefulSetStatus(current_revision=R1, update_revision=R1)
    assert counters(count_replicas(same, [make_stateful_pod()] * 3, 0, START)) == (3, 3, 3, 3, 3)


@pytest.mark.row("S-200", "S-183", "S-184")
@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete"])
@pytest.mark.parametrize(
    ("ready", "updated", "replicas", "completes"),
    [(3, 3, 3, True), (3, 1, 3, False), (2, 3, 3, False), (2, 2, 2, False), (3, 3, 4, False)],
)
def test_an_update_is_complete_when_all_are_new_and_ready(
    strategy: str, ready: int, updated: int, replicas: int, completes: bool
) -> None:
    status = StatefulSetStatus(
        ready_replicas=ready,
        updated_replicas=updated,
        replicas=replicas,
        available_replicas=0,
        current_replicas=1,
        current_revision=R1,
        update_revision=R2,
    )
    done = complete_update(make_stateful_set(strategy=strategy), status, START, recreate=False)
    assert (done.current_replicas, done.current_revision) == ((3, R2) if completes else (1, R1))


@pytest.mark.row("S-176")
@pytest.mark.parametrize(
    ("strategy", "gate", "condition", "changes"),
    [
        ("Recreate", True, True, True),
        ("Recreate", False, True, False),
        ("RollingUpdate", True, True, False),
        ("Recreate", True, False, False),
    ],
)
def test_a_recreation_that_is_complete_progresses_no_more(
    strategy: str, gate: bool, condition: bool, changes: bool
) -> None:
    status = StatefulSetStatus(ready_replicas=3, updated_replicas=3, replicas=3)
    if condition:
        status = set_progressing(status, "True", "RecreateInProgress", "m", START - timedelta(seconds=5))
    done = complete_update(make_stateful_set(strategy=strategy), status, START, recreate=gate)
    if changes:
        (found,) = done.conditions
        assert (found.status, found.reason) == ("False", "RecreateCompleted")
        assert found.message == "All pods recreated successfully"
        assert found.last_transition_time == START
    else:
        assert done.conditions == status.conditions


@pytest.mark.row("S-177")
def test_a_condition_keeps_its_time_while_its_value_stays() -> None:
    other = StatefulSetCondition(type="Other", status="True")
    later = START + timedelta(seconds=9)
    first = set_progressing(StatefulSetStatus(conditions=(other,)), "True", "A", "a", START)
    assert [condition.type for condition in first.conditions] == ["Other", "Progressing"]
    assert set_progressing(first, "True", "A", "a", later) is first
    again = set_progressing(first, "True", "B", "a", later)
    assert (again.conditions[1].reason, again.conditions[1].last_transition_time) == ("B", START)
    ended = set_progressing(again, "False", "B", "a", later)
    assert (ended.conditions[1].status, ended.conditions[1].last_transition_time) == ("False", later)
    assert ended.conditions[0] is other


@pytest.mark.row("S-185")
def test_what_is_worth_a_write() -> None:
    stored = {
        "replicas": 3,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": R1,
        "updateRevision": R2,
        "observedGeneration": 5,
        "collisionCount": 1,
        "conditions": [{"type": "Progressing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    stateful_set = make_stateful_set(status=stored)
    status = stateful_set.status

    def differs(**changes: Any) -> bool:
        fields = {name: getattr(status, name) for name in StatefulSetStatus.__struct_fields__}
        return inconsistent_status(stateful_set, StatefulSetStatus(**{**fields, **changes}))

    assert not differs()
    assert not differs(collision_count=7)
    assert not differs(observed_generation=4)
    assert differs(observed_generation=6)
    for name in ("replicas", "current_replicas", "ready_replicas", "updated_replicas", "available_replicas"):
        assert differs(**{name: 9}), name
    assert differs(current_revision="x")
    assert differs(update_revision="x")
    assert differs(conditions=())
    moved = StatefulSetCondition(type="Progressing", status="True", last_transition_time=START)
    assert differs(conditions=(moved,))


@pytest.mark.row("S-181", "S-182")
def test_which_zeroes_are_written() -> None:
    status = StatefulSetStatus(collision_count=0, current_revision=R1, update_revision=R2)
    assert status_document(status) == {
        "replicas": 0,
        "availableReplicas": 0,
        "collisionCount": 0,
        "currentRevision": R1,
        "updateRevision": R2,
    }
    condition = StatefulSetCondition(type="T", status="True", last_transition_time=START)
    (written,) = status_document(StatefulSetStatus(conditions=(condition,)))["conditions"]
    assert written["lastTransitionTime"] == f"{START:%Y-%m-%dT%H:%M:%SZ}"
