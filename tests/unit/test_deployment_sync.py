"""What a sync writes outside of a rollout: scaling, pause, status, clean-up and wake-ups, and what a failed write leaves."""

from typing import Any

import pytest

from kcm.api.errors import StatusError
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.meta import Document
from kcm.controllers.deployment.util import (
    DESIRED_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
    ROLLBACK_TO_ANNOTATION,
)
from tests.unit.deployment_world import (
    AVAILABLE,
    STATUS,
    DeploymentWorld,
    complete,
    noted,
    old_set,
    progressing,
    settled,
)
from tests.unit.fakes import (
    pod_template,
    refusal,
    replica_set_document,
)


@pytest.fixture
def world() -> DeploymentWorld:
    return DeploymentWorld()


# Scaling and pausing


@pytest.mark.row("D-067", "D-089", "D-090", "D-107", "D-109")
async def test_scaling_writes_the_only_replica_set_in_full(world: DeploymentWorld) -> None:
    await world.have(settled(replicas=5, status=complete(3)), replica_set_document(annotations=noted("1"), odd=[1]))
    assert await world.sync() == ["PUT replicasets/web-1", STATUS]
    body = world.api.calls[0].body
    assert (body["spec"]["replicas"], body["spec"]["odd"]) == (5, [1])
    assert body["metadata"]["annotations"] == noted("1", 5, 7)
    assert body["metadata"]["ownerReferences"]
    assert world.events == ["Normal ScalingReplicaSet: Scaled up replica set web-1 from 3 to 5"]
    await world.settle()
    assert world.deployment.status.available_replicas == 5


@pytest.mark.row("D-183")
async def test_the_status_of_that_sync_does_not_know_of_the_new_size_yet(world: DeploymentWorld) -> None:
    await world.have(settled(replicas=5, status=complete(3)), replica_set_document(annotations=noted("1")))
    await world.sync()
    assert world.deployment.status.unavailable_replicas == 0


@pytest.mark.row("D-088")
async def test_the_right_size_with_outdated_annotations_is_left_alone_unless_several_are_scaled(
    world: DeploymentWorld,
) -> None:
    await world.have(settled(), replica_set_document(annotations=noted("1", 7, 9)))
    assert await world.sync() == []
    old = replica_set_document("old", replicas=1, template=pod_template("web:0"), annotations=noted("0", 7, 9), age=9)
    await world.have(old)
    await world.sync()
    assert {call.target for call in world.api.calls if call.method == "PUT" and "replicasets" in call.target} == {
        "replicasets/web-1",
        "replicasets/old",
    }
    assert all(rs.metadata.annotations[DESIRED_REPLICAS_ANNOTATION] == "3" for rs in world.api.all(REPLICA_SETS))


@pytest.mark.row("D-090", "D-117")
async def test_annotations_alone_are_written_without_an_event(world: DeploymentWorld) -> None:
    await world.have(
        settled(replicas=10, max_surge=3, status=complete(10)),
        replica_set_document("old", replicas=8, template=pod_template("web:0"), annotations=noted("0", 9, 12), age=9),
        replica_set_document("new", replicas=5, available=0, annotations=noted("1", 9, 12)),
    )
    calls = await world.sync()
    assert calls[:2] == ["PUT replicasets/old", "PUT replicasets/new"]
    assert world.sizes == {"old": 8, "new": 5}
    assert world.events == []


@pytest.mark.row("D-091", "D-110", "D-117")
async def test_a_failed_scaling_ends_the_sync_without_an_event(world: DeploymentWorld) -> None:
    await world.have(
        settled(replicas=30, max_surge=3, status=complete(10)),
        replica_set_document("old", replicas=8, template=pod_template("web:0"), annotations=noted("0", 10, 13), age=9),
        replica_set_document("new", replicas=5, available=0, annotations=noted("1", 10, 13)),
    )
    world.api.fail("PUT", "replicasets/old", refusal(409, "Conflict"))
    with pytest.raises(StatusError):
        await world.sync()
    assert [str(call) for call in world.api.calls] == ["PUT replicasets/old"]
    assert world.events == []


@pytest.mark.row("D-102", "D-103", "D-104", "D-105")
async def test_pause_and_resume_are_noted_before_anything_else(world: DeploymentWorld) -> None:
    """That note makes a status write at the end of the same sync conflict."""
    await world.have(
        settled(paused=True, status=complete(readyReplicas=0)), replica_set_document(annotations=noted("1"))
    )
    assert await world.conflict() == [STATUS, STATUS]
    assert world.reasons["Progressing"] == "DeploymentPaused"
    await world.deliver()
    assert await world.sync() == [STATUS]
    world.api.change(DEPLOYMENTS, "web", lambda d: d["spec"].update(paused=False))
    await world.deliver()
    assert (await world.conflict())[0] == STATUS
    assert world.reasons["Progressing"] == "DeploymentResumed"


@pytest.mark.row("D-105")
async def test_a_failed_note_ends_the_sync(world: DeploymentWorld) -> None:
    await world.have(settled(paused=True, replicas=9), replica_set_document(annotations=noted("1")))
    world.api.fail("PUT", "deployments/web/status", refusal(500, "InternalError"))
    with pytest.raises(StatusError):
        await world.sync()
    assert len(world.api.calls) == 1


def paused(**options: Any) -> Document:
    conditions = [AVAILABLE, progressing("DeploymentPaused", "Unknown")]
    return settled(paused=True, status=complete(3, conditions=conditions), **options)


@pytest.mark.row("D-069", "D-106", "D-140")
async def test_a_paused_deployment_is_scaled_and_cleaned_but_makes_no_replica_set(world: DeploymentWorld) -> None:
    await world.have(
        paused(replicas=5, history=0, template=pod_template("web:9")),
        replica_set_document("two", annotations=noted("2")),
        replica_set_document("one", replicas=0, template=pod_template("web:0"), annotations=noted("1"), age=9),
    )
    assert await world.sync() == ["PUT replicasets/two", "DELETE replicasets/one", STATUS]
    assert world.sizes == {"two": 5}
    assert world.reasons["Progressing"] == "DeploymentPaused"


@pytest.mark.row("D-158", "D-166")
async def test_a_paused_deployment_with_a_rollback_request_keeps_both(world: DeploymentWorld) -> None:
    await world.have(
        paused(history=0, annotations={ROLLBACK_TO_ANNOTATION: "1"}),
        replica_set_document("two", annotations=noted("2")),
        replica_set_document("one", replicas=0, template=pod_template("web:0"), annotations=noted("1"), age=9),
    )
    await world.settle()
    assert world.sizes == {"two": 3, "one": 0}
    assert world.deployment.metadata.annotations[ROLLBACK_TO_ANNOTATION] == "1"


# Status and wake-ups


@pytest.mark.row("D-142")
async def test_a_status_that_somebody_else_wrote_is_corrected(world: DeploymentWorld) -> None:
    await world.have(settled(), replica_set_document(annotations=noted("1")))
    assert await world.sync() == []
    world.api.change(DEPLOYMENTS, "web", lambda d: d["status"].update(readyReplicas=0))
    await world.deliver()
    assert await world.sync() == [STATUS]
    assert world.deployment.status.ready_replicas == 3


@pytest.mark.row("D-141")
async def test_a_status_write_carries_everything_else_as_it_was(world: DeploymentWorld) -> None:
    own = {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "name": "x", "kind": "App", "apiVersion": "v1"}]}
    await world.have(
        settled(metadata=own, annotations={"a": "b"}, status=complete(readyReplicas=0)),
        replica_set_document(annotations={"a": "b", **noted("1")}),
    )
    version = world.deployment.metadata.resource_version
    assert await world.sync() == [STATUS]
    body = world.api.calls[0].body
    assert body["metadata"]["resourceVersion"] == version
    stored = world.deployment.document()["metadata"]
    assert {key: stored[key] for key in own} == own
    assert stored["annotations"] == {REVISION_ANNOTATION: "1", "a": "b"}


def stuck(**options: Any) -> Document:
    """A Deployment whose new ReplicaSet has one pod of three available."""
    counts = {"readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 2}
    unavailable = AVAILABLE | {
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
    }
    conditions = [unavailable, options.pop("condition", progressing("ReplicaSetUpdated", ago=20))]
    return settled(deadline=60, status=complete(3, conditions=conditions, **counts), **options)


@pytest.mark.row("D-154", "D-155", "D-156")
async def test_a_rollout_without_news_is_looked_at_again_after_its_deadline(world: DeploymentWorld) -> None:
    await world.have(stuck(), replica_set_document(available=1, annotations=noted("1")))
    assert await world.sync() == []
    assert (world.queue.delayed, world.queue.rate_limited) == ([("ns/web", 41.0)], [])
    world.clock.seconds += 39
    await world.sync()
    assert (world.queue.delayed[1:], world.queue.rate_limited) == ([("ns/web", 2.0)], [])
    world.clock.seconds += 0.5
    await world.sync()
    assert (len(world.queue.delayed), world.queue.rate_limited) == (2, ["ns/web"])
    world.clock.seconds += 0.500001
    assert await world.sync() == [STATUS]
    assert world.reasons["Progressing"] == "ProgressDeadlineExceeded"
    assert (len(world.queue.delayed), world.queue.rate_limited) == (2, ["ns/web"])
    assert world.events == []


@pytest.mark.row("D-154", "D-155")
async def test_nothing_is_looked_at_again_after_a_write_or_when_it_is_over(world: DeploymentWorld) -> None:
    await world.have(settled(status=complete(readyReplicas=0)), replica_set_document(annotations=noted("1")))
    assert await world.sync() == [STATUS]
    await world.deliver()
    assert await world.sync() == []
    assert (world.queue.delayed, world.queue.rate_limited) == ([], [])


@pytest.mark.row("D-184")
async def test_a_completed_rollout_that_lost_pods_is_looked_at_all_the_time(world: DeploymentWorld) -> None:
    await world.have(stuck(condition=progressing(ago=3600)), replica_set_document(available=1, annotations=noted("1")))
    assert await world.sync() == []
    assert (world.queue.delayed, world.queue.rate_limited) == ([], ["ns/web"])


# Clean-up


@pytest.mark.row("D-166", "D-170", "D-171")
async def test_history_is_cleaned_when_the_stored_status_says_complete(world: DeploymentWorld) -> None:
    await world.have(
        settled(history=0, status=complete(3, availableReplicas=2)),
        old_set("old", 0),
        replica_set_document("new", annotations=noted("1")),
    )
    assert await world.sync() == [STATUS]
    await world.deliver()
    assert await world.sync() == ["DELETE replicasets/old"]
    assert world.api.calls[0].body == {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert world.events == []


@pytest.mark.row("D-170")
async def test_a_replica_set_that_is_gone_already_is_cleaned_and_another_failure_ends_the_sync(
    world: DeploymentWorld,
) -> None:
    await world.have(
        settled(history=0, status=complete(3, readyReplicas=1)),
        old_set("a", 0, age=99),
        old_set("b", 0, age=9),
        old_set("c", 0, age=5),
        replica_set_document("new", annotations=noted("1")),
    )
    world.api.fail("DELETE", "replicasets/a", refusal(404, "NotFound"))
    world.api.fail("DELETE", "replicasets/b", refusal(500, "InternalError"))
    with pytest.raises(StatusError):
        await world.sync()
    assert [str(call) for call in world.api.calls] == ["DELETE replicasets/a", "DELETE replicasets/b"]
