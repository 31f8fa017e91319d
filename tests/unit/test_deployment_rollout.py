"""What a sync writes in a rolling update, a recreation or a rollback, in which order, and what a failed write leaves."""

from typing import Any

import pytest

from kcm.api.errors import FencedError, StatusError, TransportError
from kcm.api.resources import REPLICA_SETS
from kcm.api.types.meta import Document
from kcm.controllers.deployment.util import (
    MAX_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
    ROLLBACK_TO_ANNOTATION,
)
from tests.unit.deployment_world import (
    STATUS,
    DeploymentWorld,
    complete,
    noted,
    old_set,
    progressing,
    settled,
)
from tests.unit.fakes import (
    deployment_document,
    pod_document,
    pod_template,
    refusal,
    replica_set_document,
)


@pytest.fixture
def world() -> DeploymentWorld:
    return DeploymentWorld()


# Rolling update


@pytest.mark.row("D-119", "D-166")
async def test_a_step_of_a_rollout_goes_up_or_down_and_cleans_nothing(world: DeploymentWorld) -> None:
    await world.have(
        settled(history=0, status=complete()),
        old_set("older", 0, age=99),
        old_set("old", 3),
        replica_set_document("new", replicas=0, annotations=noted("1")),
    )
    assert (await world.sync())[:1] == ["PUT replicasets/new"]
    assert world.sizes == {"older": 0, "old": 3, "new": 1}
    world.run_pods("new")
    await world.deliver()
    assert (await world.sync())[:1] == ["PUT replicasets/old"]
    assert world.sizes == {"older": 0, "old": 2, "new": 1}


@pytest.mark.row("D-119", "D-127", "D-152")
async def test_a_rollout_runs_to_its_end(world: DeploymentWorld) -> None:
    await world.have(settled(status=complete(conditions=[progressing("ProgressDeadlineExceeded", "False")])), old_set())
    await world.settle()
    assert sorted(world.sizes.values()) == [0, 3]
    assert world.reasons["Progressing"] == "NewReplicaSetAvailable"
    assert world.deployment.metadata.annotations[REVISION_ANNOTATION] == "1"


@pytest.mark.row("D-123", "D-124")
async def test_unavailable_pods_and_spare_ones_go_in_one_sync(world: DeploymentWorld) -> None:
    """Two writes of one ReplicaSet: the second goes out with the version that the first came back with."""
    await world.have(
        settled(replicas=10, max_surge=0, max_unavailable=2, status=complete(10)),
        replica_set_document(
            "old", replicas=10, available=9, template=pod_template("web:0"), annotations=noted("0", 10, 10), age=9
        ),
        replica_set_document("new", replicas=0, annotations=noted("1", 10, 10)),
    )
    assert (await world.sync())[:2] == ["PUT replicasets/old", "PUT replicasets/old"]
    assert [call.body["spec"]["replicas"] for call in world.api.calls[:2]] == [9, 8]
    assert world.events == [
        "Normal ScalingReplicaSet: Scaled down replica set old from 10 to 9",
        "Normal ScalingReplicaSet: Scaled down replica set old from 9 to 8",
    ]


@pytest.mark.row("D-125", "D-166")
@pytest.mark.parametrize("error", [refusal(409, "Conflict"), TransportError("timeout")])
async def test_a_failure_to_shrink_old_sets_is_swallowed(world: DeploymentWorld, error: Exception) -> None:
    """What was written before it stays, and the sync goes on, to the clean-up even."""
    await world.have(
        settled(replicas=3, max_unavailable=3, history=0, status=complete(3, readyReplicas=0)),
        old_set("a", 2, 1, age=99),
        old_set("b", 2, 1, age=50),
        old_set("gone", 0, age=100),
        replica_set_document("new", replicas=3, annotations=noted("1")),
    )
    world.api.fail("PUT", "replicasets/b", error)
    calls = await world.sync()
    assert calls == ["PUT replicasets/a", "PUT replicasets/b", "DELETE replicasets/gone", STATUS]
    assert world.sizes == {"a": 1, "b": 2, "new": 3}


@pytest.mark.row("D-125")
async def test_a_lost_lease_is_not_swallowed(world: DeploymentWorld) -> None:
    await world.have(settled(), old_set("old", 3), replica_set_document("new", annotations=noted("1")))
    world.api.fail("PUT", "replicasets/old", FencedError("the lease is not held"))
    with pytest.raises(FencedError):
        await world.sync()


@pytest.mark.row("D-126")
async def test_a_status_that_lags_behind_ends_the_scale_down(world: DeploymentWorld) -> None:
    lagging = old_set("b", 1, age=5)
    lagging["status"]["availableReplicas"] = 3
    await world.have(
        settled(max_unavailable=3, status=complete()),
        old_set("a", 2, 1, age=9),
        lagging,
        old_set("c", 2, 1, age=1),
        replica_set_document("new", annotations=noted("1")),
    )
    assert (await world.sync())[:2] == ["PUT replicasets/a", STATUS]
    assert world.sizes == {"a": 1, "b": 1, "c": 2, "new": 3}


@pytest.mark.row("D-137")
async def test_a_rollout_does_not_wait_for_terminating_pods(world: DeploymentWorld) -> None:
    old = old_set(replicas=0)
    old["status"].update(replicas=0, terminatingReplicas=9)
    await world.have(settled(podReplacementPolicy="TerminationComplete"), old)
    await world.conflict()
    assert [size for name, size in world.sizes.items() if name != "old"] == [3]


@pytest.mark.row("D-121")
async def test_old_sets_without_pods_are_not_written(world: DeploymentWorld) -> None:
    await world.have(settled(), old_set("old", 0), replica_set_document("new", annotations=noted("1")))
    assert await world.sync() == []


@pytest.mark.row("D-178")
async def test_two_deployments_with_one_selector_have_a_replica_set_each(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), deployment_document("twin"))
    await world.settle()
    await world.settle("twin")
    owners = [rs.metadata.controller.name for rs in world.api.all(REPLICA_SETS) if rs.metadata.controller]
    assert sorted(owners) == ["twin", "web"]


@pytest.mark.row("D-175")
async def test_a_replica_set_that_stops_matching_is_replaced_and_taken_back_later(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    await world.settle()
    [first] = world.api.all(REPLICA_SETS)

    def relabel(app: str) -> None:
        world.api.change(REPLICA_SETS, first.metadata.name, lambda d: d["metadata"]["labels"].update(app=app))

    relabel("db")
    await world.settle()
    assert len(world.api.all(REPLICA_SETS)) == 2
    assert world.deployment.status.collision_count == 1
    assert world.replica_set(first.metadata.name).metadata.controller is None
    relabel("web")
    await world.settle()
    assert world.replica_set(first.metadata.name).metadata.controller is not None


# Recreate


def recreating(**options: Any) -> Document:
    return settled(strategy="Recreate", **options)


@pytest.mark.row("D-128", "D-130", "D-132")
async def test_recreation_ends_old_pods_before_it_makes_anything_new(world: DeploymentWorld) -> None:
    await world.have(
        recreating(history=0), old_set("a", 2, age=99), old_set("b", 1, age=50), pod_document("p", owner="b")
    )
    assert (await world.sync()) == ["PUT replicasets/a", "PUT replicasets/b", STATUS]
    assert world.events == [
        "Normal ScalingReplicaSet: Scaled down replica set a from 2 to 0",
        "Normal ScalingReplicaSet: Scaled down replica set b from 1 to 0",
    ]
    world.run_pods("a")
    world.run_pods("b")
    await world.deliver()
    assert await world.sync() == [STATUS]
    world.api.remove(world.pods.resource, "p")
    await world.deliver()
    assert await world.conflict() == ["POST replicasets", STATUS, STATUS]
    made = world.api.all(REPLICA_SETS)[-1]
    assert (made.spec.replicas, made.metadata.annotations[MAX_REPLICAS_ANNOTATION]) == (3, "3")
    await world.settle()
    assert list(world.sizes) == [made.metadata.name]


@pytest.mark.row("D-039", "D-129")
async def test_recreation_waits_for_the_pods_of_its_own_replica_sets_only(world: DeploymentWorld) -> None:
    await world.have(
        recreating(deadline=None),
        old_set("old", 0),
        replica_set_document("foreign", owner="other"),
        pod_document("theirs", owner="foreign"),
        pod_document("done", owner="old", phase="Succeeded"),
        pod_document("orphan", owner=None),
    )
    assert (await world.sync())[0] == "POST replicasets"


@pytest.mark.row("D-181", "D-185")
@pytest.mark.parametrize("counted", [True, False])
async def test_recreation_shows_no_new_pods_while_old_ones_end(*, counted: bool) -> None:
    world = DeploymentWorld(terminating_replicas=counted)
    status = complete(6)
    await world.have(recreating(replicas=6, status=status), old_set("old", 6), pod_document("p", owner="old"))
    await world.sync()

    def terminate(document: Document) -> None:
        document["status"].update(replicas=0, readyReplicas=0, availableReplicas=0, terminatingReplicas=6)

    world.api.change(REPLICA_SETS, "old", terminate)
    await world.deliver()
    await world.sync()
    seen = world.deployment.status
    assert (seen.replicas, seen.updated_replicas, seen.terminating_replicas) == (0, 0, 6 if counted else None)
    assert list(world.sizes) == ["old"]
    world.api.remove(world.pods.resource, "p")
    await world.settle()
    seen = world.deployment.status
    assert (seen.replicas, seen.terminating_replicas) == (6, 0 if counted else None)


@pytest.mark.row("D-130")
async def test_recreation_scales_an_existing_replica_set_at_once(world: DeploymentWorld) -> None:
    await world.have(
        recreating(), old_set("old", 0), replica_set_document("new", replicas=0, annotations=noted("1", 3, 3))
    )
    assert (await world.sync())[0] == "PUT replicasets/new"
    assert world.sizes["new"] == 3


@pytest.mark.row("D-128")
async def test_a_failure_to_end_old_pods_ends_the_sync(world: DeploymentWorld) -> None:
    await world.have(recreating(), old_set("old", 2))
    world.api.fail("PUT", "replicasets/old", refusal(409, "Conflict"))
    with pytest.raises(StatusError):
        await world.sync()
    assert len(world.api.calls) == 1


# Rollback


def rolled(to: str, **options: Any) -> Document:
    annotations = {ROLLBACK_TO_ANNOTATION: to, REVISION_ANNOTATION: "2", "cause": "edit"}
    return settled(template=pod_template("web:2"), annotations=annotations, **options)


def versions() -> tuple[Document, Document]:
    current = {"cause": "edit", **noted("2")}
    return (
        replica_set_document("one", replicas=0, annotations={"cause": "create", **noted("1")}, age=9),
        replica_set_document("two", template=pod_template("web:2"), annotations=current),
    )


@pytest.mark.row("D-162", "D-164", "D-165")
@pytest.mark.parametrize("to", ["0", "1"])
async def test_a_rollback_is_one_write_of_the_deployment(world: DeploymentWorld, to: str) -> None:
    await world.have(rolled(to), *versions())
    assert await world.sync() == ["PUT deployments/web"]
    assert world.deployment.document()["spec"]["template"] == pod_template()
    assert world.deployment.metadata.annotations == {REVISION_ANNOTATION: "2", "cause": "create"}
    assert world.events == ['Normal DeploymentRollback: Rolled back deployment "web" to revision 1']
    await world.settle()
    assert world.sizes == {"one": 3, "two": 0}
    assert world.replica_set("one").metadata.annotations[REVISION_ANNOTATION] == "3"


@pytest.mark.row("D-160", "D-161", "D-163", "D-164")
@pytest.mark.parametrize(
    ("to", "event"),
    [
        ("7", "DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to."),
        (
            "2",
            "DeploymentRollbackTemplateUnchanged: "
            'The rollback revision contains the same template as current deployment "web"',
        ),
    ],
)
async def test_a_refused_rollback_only_clears_its_request(world: DeploymentWorld, to: str, event: str) -> None:
    await world.have(rolled(to), *versions())
    assert await world.sync() == ["PUT deployments/web"]
    assert world.deployment.metadata.annotations == {REVISION_ANNOTATION: "2", "cause": "edit"}
    assert world.deployment.document()["spec"]["template"] == pod_template("web:2")
    assert world.events == [f"Warning {event}"]


@pytest.mark.row("D-160", "D-165")
async def test_the_warning_repeats_when_the_write_fails_and_the_success_is_told_after_it(
    world: DeploymentWorld,
) -> None:
    one, two = versions()
    await world.have(rolled("0"), two)
    world.api.fail("PUT", "deployments/web", refusal(409, "Conflict"), times=2)
    for _ in range(2):
        with pytest.raises(StatusError):
            await world.sync()
    warning = "Warning DeploymentRollbackRevisionNotFound: Unable to find last revision."
    assert world.events == [warning, warning]
    world.recorder.occurrences.clear()
    await world.have(one)
    world.api.fail("PUT", "deployments/web", refusal(409, "Conflict"))
    with pytest.raises(StatusError):
        await world.sync()
    assert world.events == []


@pytest.mark.row("D-159")
async def test_a_rollback_makes_the_new_replica_set_first(world: DeploymentWorld) -> None:
    one, _ = versions()
    await world.have(rolled("1"), one)
    assert (await world.conflict())[:2] == ["POST replicasets", STATUS]


@pytest.mark.row("D-158")
async def test_an_unreadable_request_is_ignored_and_left(world: DeploymentWorld) -> None:
    await world.have(rolled("first"), *versions())
    await world.settle()
    assert world.deployment.metadata.annotations[ROLLBACK_TO_ANNOTATION] == "first"
    assert world.sizes == {"one": 0, "two": 3}
