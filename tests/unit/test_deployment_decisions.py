"""What a sync decides before it writes: status, pause, scaling, clean-up, the new ReplicaSet's body."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kcm.api.types.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from kcm.api.types.meta import format_time
from kcm.controllers.deployment.conditions import get_deployment_condition
from kcm.controllers.deployment.decisions import (
    calculate_status,
    generate_replica_set_name,
    is_scaling,
    new_replica_set_document,
    paused_condition,
    plan_cleanup,
    plan_scale,
)
from kcm.controllers.deployment.util import (
    DESIRED_REPLICAS_ANNOTATION,
    MAX_INT32,
    MAX_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
)
from tests.clocks import START
from tests.unit.fakes import make_deployment, make_replica_set, owner_reference, pod_template

EARLIER = START - timedelta(hours=1)


def progressing(reason: str, status: str = "True") -> dict[str, Any]:
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "lastUpdateTime": format_time(EARLIER),
        "lastTransitionTime": format_time(EARLIER),
    }


# Status


def calculate(
    deployment: Deployment, old: list[ReplicaSet], new: ReplicaSet | None, *, terminating: bool = True
) -> DeploymentStatus:
    all_rss = [*old, *([new] if new else [])]
    return calculate_status(deployment, all_rss, new, now=START, terminating_replicas=terminating)


@pytest.mark.row("D-133", "D-134", "D-135")
def test_counters_are_sums_over_the_replica_sets() -> None:
    counts = {"replicas": 4, "readyReplicas": 3, "availableReplicas": 2, "terminatingReplicas": 1}
    old = make_replica_set("old", replicas=3, status=counts)
    new = make_replica_set("new", replicas=6, status={**counts, "replicas": 5})
    deployment = make_deployment(
        replicas=9, metadata={"generation": 7}, status={"collisionCount": 2, "observedGeneration": 6, "odd": 1}
    )
    status = calculate(deployment, [old], new)
    assert (status.replicas, status.ready_replicas, status.available_replicas) == (9, 6, 4)
    assert (status.updated_replicas, status.unavailable_replicas, status.terminating_replicas) == (5, 5, 2)
    assert (status.observed_generation, status.collision_count) == (7, 2)
    assert calculate(deployment, [old], None).updated_replicas == 0


@pytest.mark.row("D-134")
def test_more_available_pods_than_wanted_are_not_negative_unavailability() -> None:
    shrinking = make_replica_set(replicas=1, status={"replicas": 4, "availableReplicas": 4})
    assert calculate(make_deployment(replicas=1), [], shrinking).unavailable_replicas == 0


@pytest.mark.row("D-136")
def test_terminating_pods_are_not_counted_with_the_gate_off() -> None:
    deployment = make_deployment(status={"terminatingReplicas": 3})
    assert calculate(deployment, [], make_replica_set(), terminating=False).terminating_replicas is None
    assert calculate(deployment, [], None).terminating_replicas == 0


@pytest.mark.row("D-138")
@pytest.mark.parametrize(
    ("strategy", "available", "expected"),
    [("RollingUpdate", 8, "True"), ("RollingUpdate", 7, "False"), ("Recreate", 10, "True"), ("Recreate", 9, "False")],
)
def test_available_needs_all_but_the_allowed_unavailable(strategy: str, available: int, expected: str) -> None:
    deployment = make_deployment(replicas=10, max_unavailable=2, strategy=strategy)
    status = calculate(deployment, [], make_replica_set(replicas=10, available=available))
    condition = get_deployment_condition(status, "Available")
    assert condition == DeploymentCondition(
        type="Available",
        status=expected,
        reason="MinimumReplicasAvailable" if expected == "True" else "MinimumReplicasUnavailable",
        message="Deployment has minimum availability."
        if expected == "True"
        else "Deployment does not have minimum availability.",
        last_update_time=START,
        last_transition_time=START,
    )


@pytest.mark.row("D-140", "D-142")
def test_other_conditions_and_an_unchanged_status_stay() -> None:
    deployment = make_deployment(status={"conditions": [progressing("DeploymentPaused", "Unknown")]})
    status = calculate(deployment, [], make_replica_set())
    assert [c.type for c in status.conditions] == ["Progressing", "Available"]
    settled = make_deployment(
        status={"replicas": 3, "updatedReplicas": 3, "readyReplicas": 0, "availableReplicas": 3}
        | {"observedGeneration": 1, "terminatingReplicas": 0}
    )
    corrected = calculate(settled, [], make_replica_set())
    assert (settled.status.ready_replicas, corrected.ready_replicas) == (0, 3)


# Pause


@pytest.mark.row("D-102", "D-103", "D-104")
@pytest.mark.parametrize(
    ("paused", "reason", "deadline", "expected"),
    [
        (True, "ReplicaSetUpdated", 600, ("DeploymentPaused", "Deployment is paused")),
        (True, None, 600, ("DeploymentPaused", "Deployment is paused")),
        (True, "DeploymentPaused", 600, None),
        (True, "ProgressDeadlineExceeded", 600, None),
        (True, "ReplicaSetUpdated", None, None),
        (False, "DeploymentPaused", 600, ("DeploymentResumed", "Deployment is resumed")),
        (False, "ReplicaSetUpdated", 600, None),
        (False, None, 600, None),
        (False, "DeploymentPaused", MAX_INT32, None),
    ],
)
def test_pause_and_resume_are_noted_once(
    reason: str | None, deadline: int | None, expected: tuple[str, str] | None, *, paused: bool
) -> None:
    conditions = [] if reason is None else [progressing(reason)]
    condition = paused_condition(
        make_deployment(paused=paused, deadline=deadline, status={"conditions": conditions}), START
    )
    if expected is None:
        assert condition is None
    else:
        assert condition is not None
        assert (condition.type, condition.status) == ("Progressing", "Unknown")
        assert (condition.reason, condition.message) == expected
        assert (condition.last_update_time, condition.last_transition_time) == (START, START)


# Scaling


@pytest.mark.row("D-107")
@pytest.mark.parametrize(
    ("size", "desired", "scaling"),
    [(3, "2", True), (3, "3", False), (0, "2", False), (3, None, False), (3, "two", False), (3, "+2", False)],
)
def test_an_active_replica_set_made_for_another_size_means_scaling(
    size: int, desired: str | None, *, scaling: bool
) -> None:
    annotations = {} if desired is None else {DESIRED_REPLICAS_ANNOTATION: desired}
    sets = [make_replica_set("settled"), make_replica_set("other", replicas=size, annotations=annotations)]
    assert is_scaling(make_deployment(replicas=3), sets) is scaling


def scaled(
    replicas: int,
    sizes: list[int],
    *,
    before: int,
    surge: int = 0,
    surge_before: int | None = None,
    new: bool = True,
) -> list[int]:
    """The sizes after a scaling of ReplicaSets that are given oldest first; the last is the new one."""
    was = make_deployment(replicas=before, max_surge=surge if surge_before is None else surge_before)
    most = before + (surge if surge_before is None else surge_before)
    annotations = {DESIRED_REPLICAS_ANNOTATION: str(was.spec.replicas), MAX_REPLICAS_ANNOTATION: str(most)}
    sets = [
        make_replica_set(f"foo-v{i}", replicas=size, age=100 - i, annotations=annotations)
        for i, size in enumerate(sizes, 1)
    ]
    deployment = make_deployment(replicas=replicas, max_surge=surge, max_unavailable=1)
    plan = plan_scale(deployment, sets[-1] if new else None, sets[:-1] if new else sets)
    result = {rs.metadata.name: rs.spec.replicas for rs in sets} | {rs.metadata.name: n for rs, n in plan.steps}
    return [result[rs.metadata.name] for rs in sets]


@pytest.mark.row("D-109", "D-111", "D-116", "D-118")
@pytest.mark.parametrize(
    ("sizes", "before", "replicas", "after"),
    [
        ([10], 10, 12, [12]),
        ([10], 10, 5, [5]),
        ([3, 2], 5, 10, [6, 4]),
        ([3, 2], 5, 3, [2, 1]),
        ([1, 8], 9, 4, [0, 4]),
        ([2, 3, 2], 7, 10, [3, 4, 3]),
        ([3, 8, 2], 13, 8, [2, 5, 1]),
        ([1, 1, 1], 3, 4, [1, 1, 2]),
        ([1, 1, 1], 3, 2, [0, 1, 1]),
        ([1, 2, 3], 6, 0, [0, 0, 0]),
        ([0, 0, 0], 6, 6, [0, 0, 6]),
    ],
)
def test_replica_sets_grow_and_shrink_in_proportion(
    sizes: list[int], before: int, replicas: int, after: list[int]
) -> None:
    assert scaled(replicas, sizes, before=before) == after


@pytest.mark.row("D-111", "D-118")
def test_proportions_with_surge() -> None:
    assert scaled(20, [6, 6], before=10, surge=2) == [11, 11]
    assert scaled(50, [8, 5], before=10, surge=6, surge_before=3) == [34, 22]
    assert scaled(30, [8, 5], before=10, surge=3) == [20, 13]
    assert scaled(120, [100, 20], before=100, surge=20) == [117, 23]
    assert scaled(0, [8, 5], before=10, surge=3) == [0, 0]


@pytest.mark.row("D-109", "D-111")
def test_proportions_without_a_new_replica_set() -> None:
    assert scaled(5, [2, 2], before=4, new=False) == [2, 3]
    assert scaled(14, [3, 7], before=10, new=False) == [4, 10]
    assert scaled(5, [], before=4, new=False) == []


@pytest.mark.row("D-111", "D-117")
def test_a_scaling_of_several_is_written_in_full_even_where_sizes_stay() -> None:
    """Also when nothing is to be added: one replica set was left behind by a write that failed, say."""
    sets = [make_replica_set("v1", replicas=2, age=3), make_replica_set("v2", replicas=3, age=2)]
    plan = plan_scale(make_deployment(replicas=5, max_surge=1), make_replica_set("v3", replicas=1, available=0), sets)
    assert plan.force
    assert [(rs.metadata.name, size) for rs, size in plan.steps] == [("v2", 3), ("v1", 2), ("v3", 1)]


@pytest.mark.row("D-110")
def test_a_saturated_new_replica_set_ends_the_others() -> None:
    annotations = {DESIRED_REPLICAS_ANNOTATION: "2"}
    new_rs = make_replica_set("v3", replicas=2, annotations=annotations)
    old = [make_replica_set("v1", replicas=1, age=9), make_replica_set("v2", replicas=1, age=5)]
    deployment = make_deployment(replicas=2, max_surge=1, max_unavailable=1)
    plan = plan_scale(deployment, new_rs, old)
    assert [(rs.metadata.name, size) for rs, size in plan.steps] == [("v2", 0), ("v1", 0)]
    assert not plan.force


@pytest.mark.row("D-110")
def test_a_new_replica_set_without_available_pods_does_not_end_the_others() -> None:
    annotations = {DESIRED_REPLICAS_ANNOTATION: "2", MAX_REPLICAS_ANNOTATION: "3"}
    new_rs = make_replica_set("v2", replicas=2, available=0, annotations=annotations)
    old = make_replica_set("v1", replicas=1, age=9, annotations=annotations)
    plan = plan_scale(make_deployment(replicas=2, max_surge=1, max_unavailable=1), new_rs, [old])
    assert {rs.metadata.name: size for rs, size in plan.steps} == {"v1": 1, "v2": 2}


@pytest.mark.row("D-111")
def test_several_active_ones_are_left_alone_without_a_rolling_update() -> None:
    sets = [make_replica_set("v1", replicas=2), make_replica_set("v2", replicas=3)]
    assert plan_scale(make_deployment(replicas=9, strategy="Recreate"), None, sets).steps == []


@pytest.mark.row("D-112")
def test_large_sets_are_written_first_and_equals_by_direction() -> None:
    def order(replicas: int) -> list[str]:
        sets = [make_replica_set(f"v{i}", replicas=n, age=9 - i) for i, n in enumerate([2, 1, 2])]
        return [
            rs.metadata.name for rs, _ in plan_scale(make_deployment(replicas=replicas, max_surge=0), None, sets).steps
        ]

    assert order(9) == ["v2", "v0", "v1"]
    assert order(3) == ["v0", "v2", "v1"]


# Clean-up


def empty_set(name: str, revision: str | None = None, *, spec: int = 0, status: int = 0, age: float = 0) -> ReplicaSet:
    annotations = {} if revision is None else {REVISION_ANNOTATION: revision}
    return make_replica_set(name, replicas=spec, status={"replicas": status}, age=age, annotations=annotations)


def cleaned(limit: int | None, *sets: ReplicaSet) -> list[str]:
    return [rs.metadata.name for rs in plan_cleanup(make_deployment(history=limit), sets)]


@pytest.mark.row("D-100", "D-167", "D-171")
def test_old_replica_sets_beyond_the_limit_are_deleted() -> None:
    sets = [empty_set(f"v{i}", str(i)) for i in (1, 2, 3)]
    assert cleaned(1, *sets) == ["v1", "v2"]
    assert cleaned(0, *sets) == ["v1", "v2", "v3"]
    assert cleaned(3, *sets) == []
    assert cleaned(10, *sets) == []
    assert cleaned(MAX_INT32, *sets) == []
    assert cleaned(None, *sets) == []


@pytest.mark.row("D-167", "D-169")
def test_replica_sets_that_have_pods_or_were_not_seen_are_kept() -> None:
    kept = [
        empty_set("spec", spec=1),
        empty_set("status", status=1),
        make_replica_set("unseen", replicas=0, metadata={"generation": 2}),
        make_replica_set("going", replicas=0, metadata={"deletionTimestamp": format_time(START)}),
    ]
    assert cleaned(0, *kept, empty_set("v1")) == ["v1"]


@pytest.mark.row("D-168")
def test_the_lowest_revisions_are_looked_at_and_nothing_replaces_those_that_must_stay() -> None:
    assert cleaned(1, empty_set("v1", "2", age=9), empty_set("v2", "1")) == ["v2"]
    assert cleaned(1, empty_set("v1", "1", age=9), empty_set("v2")) == ["v2"]
    assert cleaned(1, empty_set("v1", age=9), empty_set("v2", "2")) == ["v1"]
    busy = [empty_set("v1", "1", spec=1), empty_set("v2", "2", status=1), empty_set("v3", "3")]
    assert cleaned(1, *busy) == []
    sets = [empty_set(f"v{i}", revision) for i, revision in enumerate(["3", "1", "4", "2"])]
    assert cleaned(2, *sets) == ["v1", "v3"]


@pytest.mark.row("D-167")
def test_a_replica_set_that_is_going_does_not_count() -> None:
    going = make_replica_set("going", replicas=0, metadata={"deletionTimestamp": format_time(START)})
    assert cleaned(1, going, empty_set("v1")) == []


# The new ReplicaSet


@pytest.mark.row("D-076")
@pytest.mark.parametrize(
    ("name", "hash_", "expected"),
    [
        ("my-deployment", "abcde12345", "my-deployment-abcde12345"),
        ("a" * 242, "abcde12345", "a" * 242 + "-abcde12345"),
        ("b" * 250, "abcde12345", "b" * 242 + "-abcde12345"),
        ("web", "h" * 252, "web-" + "h" * 252),
        ("web", "h" * 251, "w-" + "h" * 251),
    ],
)
def test_a_name_is_cut_to_what_a_name_may_be(name: str, hash_: str, expected: str) -> None:
    assert generate_replica_set_name(name, hash_) == expected


@pytest.mark.row("D-006", "D-077", "D-078", "D-177", "D-182")
def test_the_new_replica_set_is_a_faithful_copy_with_the_hash() -> None:
    template = pod_template()
    template["metadata"]["fieldFromTheFuture"] = {"deep": [1, {}]}
    template["spec"]["fieldFromTheFuture"] = []
    expression = {"key": "app", "operator": "Exists"}
    deployment = make_deployment(
        replicas=4,
        max_surge=1,
        template=template,
        selector={"matchLabels": {"app": "web"}, "matchExpressions": [expression]},
        minReadySeconds=5,
        annotations={"note": "x", REVISION_ANNOTATION: "6"},
    )
    labels = {"app": "web", "pod-template-hash": "hash"}
    document = new_replica_set_document(deployment, "web-hash", "hash", size=2, revision=7)
    assert msgspec.to_builtins(document) == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-hash",
            "namespace": "ns",
            "labels": labels,
            "annotations": {
                "note": "x",
                REVISION_ANNOTATION: "7",
                DESIRED_REPLICAS_ANNOTATION: "4",
                MAX_REPLICAS_ANNOTATION: "5",
            },
            "ownerReferences": [owner_reference()],
        },
        "spec": {
            "replicas": 2,
            "minReadySeconds": 5,
            "selector": {"matchLabels": labels, "matchExpressions": [expression]},
            "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
        },
    }
    assert "pod-template-hash" not in deployment.raw.decode()
