"""What rolling updates, recreations and rollbacks decide."""

from typing import Any

import pytest

from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.core import Pod
from kcm.controllers.deployment.recreate import old_pods_running
from kcm.controllers.deployment.rollback import Refusal, Rollback, plan_rollback, rollback_document
from kcm.controllers.deployment.rolling import (
    max_scaled_down,
    plan_new_replica_set,
    plan_old_scale_down,
    plan_unhealthy_cleanup,
)
from kcm.controllers.deployment.util import REVISION_ANNOTATION, ROLLBACK_TO_ANNOTATION, SKIPPED_ANNOTATIONS
from tests.unit.fakes import make_deployment, make_pod, make_replica_set, pod_template


def rolling(replicas: int = 10, surge: int = 0, unavailable: int = 0) -> Deployment:
    return make_deployment(replicas=replicas, max_surge=surge, max_unavailable=unavailable)


def new(size: int, available: int | None = None) -> ReplicaSet:
    return make_replica_set("new", replicas=size, available=available)


def old(name: str, size: int, available: int | None = None, *, age: float = 10) -> ReplicaSet:
    return make_replica_set(name, replicas=size, available=available, age=age, template=pod_template("web:0"))


def sizes(steps: list[tuple[ReplicaSet, int]]) -> dict[str, int]:
    return {rs.metadata.name: size for rs, size in steps}


# Rolling update


@pytest.mark.row("D-097", "D-120")
@pytest.mark.parametrize(
    ("surge", "old_size", "new_size", "expected"),
    [(1, 10, 1, 1), (2, 10, 0, 2), (2, 5, 0, 7), (2, 10, 2, 2), (2, 2, 11, 10), (2, 2, 10, 10)],
)
def test_the_new_replica_set_goes_up_within_surge_and_down_to_the_desired_size(
    surge: int, old_size: int, new_size: int, expected: int
) -> None:
    plan = plan_new_replica_set(rolling(surge=surge, unavailable=1), new(new_size), [old("old", old_size)])
    assert plan == expected


@pytest.mark.row("D-122")
@pytest.mark.parametrize(
    ("unavailable", "old_size", "new_size", "new_available", "expected"),
    [(0, 10, 0, 0, 0), (2, 10, 0, 0, 2), (2, 8, 2, 0, 0), (2, 8, 5, 0, 0), (2, 8, 5, 5, 5), (2, 8, 1, 0, 0)],
)
def test_unavailable_new_pods_cost_no_old_ones(
    unavailable: int, old_size: int, new_size: int, new_available: int, expected: int
) -> None:
    deployment = rolling(surge=3, unavailable=unavailable)
    assert max_scaled_down(deployment, new(new_size, new_available), [old("old", old_size)]) == expected


@pytest.mark.row("D-123")
@pytest.mark.parametrize(("limit", "expected"), [(1, {"old": 9}), (3, {"old": 8}), (0, {})])
def test_unavailable_old_pods_go_first(limit: int, expected: dict[str, int]) -> None:
    plan = plan_unhealthy_cleanup([old("old", 10, 8)], limit)
    assert (sizes(plan.steps), plan.cut_short) == (expected, False)


@pytest.mark.row("D-123")
def test_the_oldest_replica_sets_are_cleaned_first_and_healthy_and_empty_ones_passed_over() -> None:
    sets = [old("young", 5, 1, age=1), old("old", 3, 1, age=9), old("empty", 0, age=8), old("healthy", 4, age=7)]
    assert sizes(plan_unhealthy_cleanup(sets, 5).steps) == {"old": 1, "young": 2}
    assert list(sizes(plan_unhealthy_cleanup(sets, 5).steps)) == ["old", "young"]
    assert sizes(plan_unhealthy_cleanup(sets, 2).steps) == {"old": 1}


@pytest.mark.row("D-126")
def test_a_replica_set_whose_status_lags_behind_ends_the_plan() -> None:
    sets = [old("a", 5, 3, age=9), old("b", 2, 4, age=5), old("c", 5, 0, age=1)]
    plan = plan_unhealthy_cleanup(sets, 9)
    assert (sizes(plan.steps), plan.cut_short) == ({"a": 3}, True)
    assert not plan_unhealthy_cleanup(sets, 2).cut_short


@pytest.mark.row("D-124")
@pytest.mark.parametrize(
    ("unavailable", "size", "available", "expected"),
    [(0, 10, 10, {}), (2, 10, 10, {"old": 8}), (2, 10, 8, {}), (2, 0, 10, {}), (2, 10, 1, {})],
)
def test_available_old_pods_go_as_far_as_unavailability_allows(
    unavailable: int, size: int, available: int, expected: dict[str, int]
) -> None:
    deployment = rolling(surge=1, unavailable=unavailable)
    assert sizes(plan_old_scale_down(deployment, new(0), [old("old", size, available)])) == expected


@pytest.mark.row("D-093", "D-124")
def test_with_both_bounds_zero_one_pod_goes_at_a_time() -> None:
    assert sizes(plan_old_scale_down(rolling(), new(0), [old("old", 10)])) == {"old": 9}


@pytest.mark.row("D-124")
def test_available_pods_of_all_sets_count_and_the_oldest_shrinks_first() -> None:
    sets = [old("young", 4, age=1), old("old", 3, age=9)]
    assert sizes(plan_old_scale_down(rolling(unavailable=2), new(5), sets)) == {"old": 0, "young": 3}
    assert list(sizes(plan_old_scale_down(rolling(unavailable=2), new(5), sets))) == ["old", "young"]


# Recreate


def pods(**phases: list[str]) -> dict[str, list[Pod]]:
    return {
        uid: [make_pod(f"{uid}-{i}", phase=phase) for i, phase in enumerate(found)] for uid, found in phases.items()
    }


@pytest.mark.row("D-129")
@pytest.mark.parametrize(
    ("phases", "running"),
    [
        ({}, False),
        ({"a": [], "b": []}, False),
        ({"a": ["", ""]}, True),
        ({"a": ["Failed", "Succeeded"]}, False),
        ({"a": ["Unknown"]}, True),
        ({"a": ["Pending"]}, True),
        ({"a": ["Running"]}, True),
        ({"a": ["Failed"], "b": [], "c": ["Pending"]}, True),
    ],
)
def test_every_old_pod_that_has_not_ended_may_run(phases: dict[str, list[str]], *, running: bool) -> None:
    assert old_pods_running(None, [old("old", 0)], pods(**phases)) is running


@pytest.mark.row("D-129")
def test_new_pods_do_not_count_and_an_old_status_does() -> None:
    current = make_replica_set("new", metadata={"uid": "n"})
    assert not old_pods_running(current, [], pods(n=["Running"]))
    assert old_pods_running(current, [], pods(n=["Running"], o=["Running"]))
    assert old_pods_running(current, [make_replica_set("old", replicas=0, status={"replicas": 1})], {})


# Rollback


def revision(name: str, value: str, *, image: str = "web:0", **annotations: str) -> ReplicaSet:
    return make_replica_set(name, template=pod_template(image), annotations={REVISION_ANNOTATION: value, **annotations})


CURRENT = make_deployment(template=pod_template("web:3"))


@pytest.mark.row("D-160", "D-161")
def test_a_rollback_finds_the_first_replica_set_of_its_revision() -> None:
    sets = [revision("odd", "x"), revision("one", "1"), revision("two", "2"), revision("also", "2")]
    sets.append(revision("three", "3", image="web:3"))
    assert plan_rollback(CURRENT, sets, 2) == Rollback(sets[2], 2)
    assert plan_rollback(CURRENT, sets, 0) == Rollback(sets[2], 2)
    assert plan_rollback(CURRENT, sets, 1) == Rollback(sets[1], 1)


@pytest.mark.row("D-160", "D-161", "D-163")
def test_a_rollback_is_refused_where_there_is_nothing_to_go_back_to() -> None:
    only = [revision("three", "3", image="web:3")]
    not_found = "DeploymentRollbackRevisionNotFound"
    assert plan_rollback(CURRENT, only, 0) == Refusal(not_found, "Unable to find last revision.")
    assert plan_rollback(CURRENT, only, 7) == Refusal(not_found, "Unable to find the revision to rollback to.")
    assert plan_rollback(CURRENT, only, 3) == Refusal(
        "DeploymentRollbackTemplateUnchanged",
        'The rollback revision contains the same template as current deployment "web"',
    )


@pytest.mark.row("D-162")
def test_a_rollback_brings_template_and_annotations_back() -> None:
    own: dict[str, Any] = {key: "own" for key in SKIPPED_ANNOTATIONS if key != ROLLBACK_TO_ANNOTATION}
    deployment = make_deployment(
        template=pod_template("web:3"), annotations={**own, ROLLBACK_TO_ANNOTATION: "1", "cause": "edit", "lost": "x"}
    )
    source = revision("one", "1", cause="create", **{"deployment.kubernetes.io/max-replicas": "theirs"})
    document = rollback_document(deployment, source)
    assert document["metadata"]["annotations"] == {**own, "cause": "create"}
    assert document["spec"]["template"] == pod_template("web:0")
    assert document["spec"]["replicas"] == 3


@pytest.mark.row("D-163", "D-164")
def test_without_a_source_only_the_request_goes() -> None:
    deployment = make_deployment(annotations={ROLLBACK_TO_ANNOTATION: "1", "cause": "edit"})
    document = rollback_document(deployment, None)
    assert document["metadata"]["annotations"] == {"cause": "edit"}
    assert document["spec"] == deployment.document()["spec"]
