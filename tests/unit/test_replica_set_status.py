"""What a ReplicaSet's status says."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kcm.api.types.apps import (
    PodTemplate,
    ReplicaSet,
    ReplicaSetCondition,
    ReplicaSetSpec,
    ReplicaSetStatus,
    status_document,
)
from kcm.api.types.core import Pod, PodCondition, PodStatus
from kcm.api.types.meta import ObjectMeta
from kcm.controllers.replicaset.replica_set_utils import calculate_status, get_condition, needs_update, set_condition

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILURE = ReplicaSetCondition(
    type="ReplicaFailure", status="True", reason="", message="as it was", last_transition_time=NOW
)


def replica_set(*, replicas: int = 2, min_ready_seconds: int = 0, status: ReplicaSetStatus | None = None) -> ReplicaSet:
    return ReplicaSet(
        metadata=ObjectMeta(name="rs", namespace="ns", generation=1),
        spec=ReplicaSetSpec(
            replicas=replicas,
            min_ready_seconds=min_ready_seconds,
            template=PodTemplate(metadata=ObjectMeta(labels={"app": "web", "extra": "yes"})),
        ),
        status=status or ReplicaSetStatus(),
    )


def pod(*, ready: bool = True, seconds_ago: float = 0, **labels: str) -> Pod:
    since = NOW - timedelta(seconds=seconds_ago)
    condition = PodCondition(type="Ready", status="True" if ready else "False", last_transition_time=since)
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", labels={"app": "web", **labels}),
        status=PodStatus(phase="Running", conditions=(condition,)),
    )


@pytest.mark.row("R-106", "R-202")
def test_only_pods_with_all_labels_of_the_template_are_fully_labelled() -> None:
    status = calculate_status(replica_set(), [pod(), pod(extra="yes", more="x"), pod(extra="no")], 0, None, NOW)
    assert (status.replicas, status.fully_labeled_replicas) == (3, 1)


@pytest.mark.row("R-107", "R-200", "R-201")
def test_a_pod_is_available_once_ready_for_long_enough() -> None:
    pods = [pod(ready=False), pod(), pod(seconds_ago=7200)]
    status = calculate_status(replica_set(min_ready_seconds=3600), pods, 0, None, NOW)
    assert (status.replicas, status.ready_replicas, status.available_replicas) == (3, 2, 1)
    assert (
        calculate_status(replica_set(min_ready_seconds=5), [pod(seconds_ago=5)], 0, None, NOW).available_replicas == 1
    )
    assert (
        calculate_status(replica_set(min_ready_seconds=5), [pod(seconds_ago=4.9)], 0, None, NOW).available_replicas == 0
    )


@pytest.mark.row("R-109", "R-110", "R-205")
def test_a_failure_becomes_a_condition_once_and_goes_with_success() -> None:
    error = RuntimeError("quota")
    few = calculate_status(replica_set(), [pod()], 0, error, NOW)
    assert get_condition(few, "ReplicaFailure") == ReplicaSetCondition(
        type="ReplicaFailure", status="True", reason="FailedCreate", message="quota", last_transition_time=NOW
    )
    many = calculate_status(replica_set(), [pod(), pod(), pod()], 0, error, NOW)
    assert [c.reason for c in many.conditions] == ["FailedDelete"]
    failing = replica_set(status=ReplicaSetStatus(conditions=(FAILURE,)))
    assert calculate_status(failing, [pod()], 0, error, NOW).conditions == (FAILURE,)
    recovered = calculate_status(failing, [pod()], 0, None, NOW)
    assert recovered.conditions == ()
    assert "conditions" not in status_document(recovered)


@pytest.mark.row("R-112", "R-206")
def test_conditions_of_others_stay_and_a_new_one_goes_last() -> None:
    other = ReplicaSetCondition(type="Other", status="True")
    status = ReplicaSetStatus(conditions=(FAILURE, other))
    assert set_condition(status, msgspec.structs.replace(FAILURE, message="new")) is status
    changed = msgspec.structs.replace(FAILURE, reason="FailedCreate")
    assert set_condition(status, changed).conditions == (other, changed)


@pytest.mark.row("R-113", "R-117")
def test_a_status_is_written_when_anything_differs_and_unset_is_not_zero() -> None:
    status = ReplicaSetStatus(replicas=1, observed_generation=1, terminating_replicas=0)
    settled = replica_set(status=status)
    assert not needs_update(settled, status)
    for change in ({"replicas": 2}, {"ready_replicas": 1}, {"terminating_replicas": None}, {"conditions": (FAILURE,)}):
        assert needs_update(settled, msgspec.structs.replace(status, **change))
    moved = msgspec.structs.replace(settled, metadata=ObjectMeta(generation=2))
    assert needs_update(moved, status)


def test_a_status_is_written_as_the_api_writes_it() -> None:
    assert status_document(ReplicaSetStatus()) == {"replicas": 0}
    status = ReplicaSetStatus(replicas=2, terminating_replicas=0, conditions=(FAILURE,))
    assert status_document(status) == {
        "replicas": 2,
        "terminatingReplicas": 0,
        "conditions": [
            {
                "type": "ReplicaFailure",
                "status": "True",
                "message": "as it was",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
    }
