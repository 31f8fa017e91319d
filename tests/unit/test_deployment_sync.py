"""What a sync of a Deployment writes, in which order, and what stays when a write fails."""

from datetime import timedelta
from typing import Any

import pytest

from kcm.api.errors import FencedError, StatusError, TransportError, is_already_exists, is_conflict, is_not_found
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.meta import Document, format_time
from kcm.controllers.deployment.util import (
    DESIRED_REPLICAS_ANNOTATION,
    MAX_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
    REVISION_HISTORY_ANNOTATION,
    ROLLBACK_TO_ANNOTATION,
)
from tests.clocks import START
from tests.unit.fakes import (
    DeploymentWorld,
    deployment_document,
    pod_document,
    pod_template,
    refusal,
    replica_set_document,
)

STATUS = "PUT deployments/web/status"


@pytest.fixture
def world() -> DeploymentWorld:
    return DeploymentWorld()


def deployed(world: DeploymentWorld) -> Deployment:
    return world.api.one(DEPLOYMENTS, "web")


def replica_set(world: DeploymentWorld, name: str) -> ReplicaSet:
    return world.api.one(REPLICA_SETS, name)


def sizes(world: DeploymentWorld) -> dict[str, int]:
    return {rs.metadata.name: rs.spec.replicas for rs in world.api.all(REPLICA_SETS)}


def reasons(world: DeploymentWorld) -> dict[str, str]:
    return {condition.type: condition.reason for condition in deployed(world).status.conditions}


def noted(revision: str, desired: int = 3, most: int = 4) -> dict[str, str]:
    """The annotations that the controller keeps on a ReplicaSet."""
    return {
        REVISION_ANNOTATION: revision,
        DESIRED_REPLICAS_ANNOTATION: str(desired),
        MAX_REPLICAS_ANNOTATION: str(most),
    }


def progressing(reason: str = "NewReplicaSetAvailable", status: str = "True", *, ago: float = 0) -> Document:
    moment = format_time(START - timedelta(seconds=ago))
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }


AVAILABLE: Document = {
    "type": "Available",
    "status": "True",
    "reason": "MinimumReplicasAvailable",
    "message": "Deployment has minimum availability.",
    "lastUpdateTime": format_time(START),
    "lastTransitionTime": format_time(START),
}


def complete(replicas: int = 3, **more: Any) -> Document:
    """The status of a rollout that is done."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    conditions = [AVAILABLE, progressing()]
    return {**counts, "terminatingReplicas": 0, "observedGeneration": 1, "conditions": conditions, **more}


def settled(**options: Any) -> Document:
    """A Deployment whose rollout is done, at revision 1."""
    options.setdefault("status", complete(options.get("replicas", 3)))
    annotations = {REVISION_ANNOTATION: "1", **options.pop("annotations", {})}
    return deployment_document(annotations=annotations, **options)


async def conflict(world: DeploymentWorld) -> list[str]:
    """Sync, expecting that the last write is refused because the object was written before."""
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_conflict(caught.value)
    return [str(call) for call in world.api.calls]


# The new ReplicaSet is made


@pytest.mark.row("D-079", "D-085", "D-086", "D-087", "D-177")
async def test_the_first_sync_makes_the_replica_set_and_conflicts_with_itself(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    assert await conflict(world) == ["POST replicasets", STATUS, STATUS]
    [made] = world.api.all(REPLICA_SETS)
    assert made.metadata.name == f"web-{made.metadata.labels['pod-template-hash']}"
    assert (made.spec.replicas, made.metadata.annotations) == (3, noted("1"))
    assert world.events == [f"Normal ScalingReplicaSet: Scaled up replica set {made.metadata.name} from 0 to 3"]
    about = world.recorder.occurrences[0].about
    assert (about.api_version, about.kind, about.namespace, about.name, about.uid) == (
        "apps/v1",
        "Deployment",
        "ns",
        "web",
        "uid-web",
    )
    status = deployed(world).status
    assert deployed(world).metadata.annotations == {REVISION_ANNOTATION: "1"}
    [condition] = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("Progressing", "True", "NewReplicaSetCreated")
    assert condition.message == f'Created new replica set "{made.metadata.name}"'
    assert status.observed_generation == 0


@pytest.mark.row("D-025", "D-119", "D-147")
async def test_a_new_deployment_comes_to_rest(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    await world.settle()
    status = deployed(world).status
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (3, 3, 3)
    assert (status.unavailable_replicas, status.terminating_replicas, status.observed_generation) == (0, 0, 1)
    assert reasons(world) == {"Progressing": "NewReplicaSetAvailable", "Available": "MinimumReplicasAvailable"}
    assert len(world.api.all(REPLICA_SETS)) == 1


@pytest.mark.row("D-085", "D-086")
async def test_a_replica_set_of_no_size_makes_no_event_and_without_a_deadline_no_condition(
    world: DeploymentWorld,
) -> None:
    await world.have(deployment_document(replicas=0, deadline=None, annotations={REVISION_ANNOTATION: "1"}))
    assert await world.sync() == ["POST replicasets", STATUS]
    assert world.events == []
    assert "Progressing" not in reasons(world)


@pytest.mark.row("D-080")
async def test_a_taken_name_that_the_cache_does_not_know_is_no_collision(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    await conflict(world)
    world.api.changes.clear()
    world.recorder.occurrences.clear()
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_not_found(caught.value)
    assert [str(call) for call in world.api.calls] == ["POST replicasets"]
    assert deployed(world).status.collision_count is None
    assert world.events == []


async def with_taken_name(world: DeploymentWorld, edit: Document, **options: Any) -> str:
    """Have a Deployment, and under the name of its new ReplicaSet another one; give that name."""
    await world.have(deployment_document(**options))
    with pytest.raises(StatusError):
        await world.sync()
    name = world.api.all(REPLICA_SETS)[0].metadata.name
    world.api.remove(REPLICA_SETS, name)
    world.api.change(DEPLOYMENTS, "web", lambda d: d.update(status={}))
    world.api.seed(REPLICA_SETS, replica_set_document(name, **edit))
    await world.deliver()
    world.recorder.occurrences.clear()
    return name


@pytest.mark.row("D-082", "D-087", "D-176")
@pytest.mark.parametrize(
    "taken",
    [{"template": pod_template("other")}, {"owner": "other", "age": 9}],
    ids=["another template", "another owner"],
)
async def test_a_name_taken_by_another_replica_set_is_a_collision(world: DeploymentWorld, taken: Document) -> None:
    name = await with_taken_name(world, taken)
    world.api.fail("POST", "replicasets", refusal(409, "AlreadyExists"))
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_already_exists(caught.value)
    assert [str(call) for call in world.api.calls] == ["POST replicasets", STATUS]
    assert deployed(world).status.collision_count == 1
    assert world.events == []
    await world.deliver()
    await world.settle()
    assert deployed(world).status.collision_count == 1
    assert len({rs.metadata.name for rs in world.api.all(REPLICA_SETS)} - {name}) == 1


@pytest.mark.row("D-082")
async def test_a_collision_is_reported_as_such_even_if_it_cannot_be_noted(world: DeploymentWorld) -> None:
    await with_taken_name(world, {"template": pod_template("other")}, status={})
    world.api.fail("PUT", "deployments/web/status", refusal(409, "Conflict"))
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_already_exists(caught.value)
    assert deployed(world).status.collision_count is None


@pytest.mark.row("D-081")
async def test_a_name_taken_by_the_very_replica_set_is_success(
    world: DeploymentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was made before the cache saw it, the look-up comes after."""
    await world.have(deployment_document())
    await conflict(world)
    [made] = world.api.all(REPLICA_SETS)
    world.api.change(DEPLOYMENTS, "web", lambda d: (d["metadata"].pop("annotations"), d.update(status={})))
    await world.deliver()
    world.recorder.occurrences.clear()
    monkeypatch.setattr(world.replica_sets.store, "list", lambda _namespace: [])
    assert await conflict(world) == ["POST replicasets", STATUS, STATUS]
    assert deployed(world).metadata.annotations[REVISION_ANNOTATION] == "1"
    assert reasons(world) == {}
    assert world.events == []
    assert [rs.metadata.uid for rs in world.api.all(REPLICA_SETS)] == [made.metadata.uid]


@pytest.mark.row("D-026", "D-083")
async def test_nothing_is_said_of_a_namespace_that_is_going(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    world.api.fail("POST", "replicasets", refusal(403, "Forbidden", "", "NamespaceTerminating"))
    await world.controller.process("ns/web")
    assert [str(call) for call in world.api.calls] == ["POST replicasets"]
    assert world.events == []
    assert world.queue.forgotten == ["ns/web"]


@pytest.mark.row("D-084")
@pytest.mark.parametrize("error", [refusal(403, "Forbidden", "exceeded quota"), TransportError("exceeded quota")])
async def test_any_other_failure_to_make_it_is_told(world: DeploymentWorld, error: Exception) -> None:
    await world.have(deployment_document())
    world.api.fail("POST", "replicasets", error)
    with pytest.raises(type(error)) as caught:
        await world.sync()
    assert caught.value is error
    assert [str(call) for call in world.api.calls] == ["POST replicasets", STATUS]
    name = world.api.calls[0].body["metadata"]["name"]
    message = f'Failed to create new replica set "{name}": exceeded quota'
    assert world.events == [f"Warning ReplicaSetCreateError: {message}"]
    [condition] = deployed(world).status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "Progressing",
        "False",
        "ReplicaSetCreateError",
        message,
    )


@pytest.mark.row("D-084")
async def test_it_is_told_without_a_condition_where_there_is_no_deadline_or_no_writing(world: DeploymentWorld) -> None:
    quota = refusal(403, "Forbidden", "exceeded quota")
    await world.have(deployment_document(deadline=None))
    world.api.fail("POST", "replicasets", quota, times=2)
    with pytest.raises(StatusError):
        await world.sync()
    assert [str(call) for call in world.api.calls] == ["POST replicasets"]
    world.api.change(DEPLOYMENTS, "web", lambda d: d["spec"].update(progressDeadlineSeconds=60))
    await world.deliver()
    world.api.fail("PUT", "deployments/web/status", refusal(409, "Conflict"))
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert caught.value is quota
    assert len(world.events) == 2


async def test_a_lost_lease_is_no_failure_to_tell_of(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    world.api.fail("POST", "replicasets", FencedError("the lease is not held"))
    with pytest.raises(FencedError):
        await world.sync()
    assert world.events == []


# The new ReplicaSet exists


@pytest.mark.row("D-056", "D-057", "D-061", "D-179")
async def test_an_outdated_replica_set_is_written_and_the_deployment_not(world: DeploymentWorld) -> None:
    await world.have(
        settled(minReadySeconds=7, annotations={"note": "x"}),
        replica_set_document(annotations=noted("1", 3, 99)),
    )
    assert (await conflict(world))[:2] == ["PUT replicasets/web-1", "PUT replicasets/web-1"]
    body = world.api.calls[0].body
    assert body["spec"]["minReadySeconds"] == 7
    assert body["metadata"]["annotations"] == {"note": "x", **noted("1", 3, 99)}
    assert body["metadata"]["resourceVersion"] != replica_set(world, "web-1").metadata.resource_version


@pytest.mark.row("D-108")
async def test_finding_the_new_replica_set_twice_writes_it_twice_and_conflicts(world: DeploymentWorld) -> None:
    """Once to see whether this is a scaling, once to roll out, both on the same list."""
    await world.have(settled(annotations={"note": "x"}), replica_set_document(annotations=noted("1")))
    assert await conflict(world) == ["PUT replicasets/web-1", "PUT replicasets/web-1"]
    await world.deliver()
    assert await world.sync() == []


@pytest.mark.row("D-058", "D-060")
async def test_the_deployment_takes_over_the_revision_of_its_replica_set(world: DeploymentWorld) -> None:
    status = complete(readyReplicas=1)
    await world.have(
        settled(annotations={REVISION_ANNOTATION: "9"}, status=status),
        replica_set_document(annotations=noted("odd")),
    )
    assert await conflict(world) == [STATUS, STATUS]
    first = world.api.calls[0].body
    assert first["metadata"]["annotations"] == {REVISION_ANNOTATION: "odd"}
    assert first["status"]["readyReplicas"] == 1
    assert first["spec"] == deployed(world).document()["spec"]


@pytest.mark.row("D-058", "D-059")
async def test_a_deadline_that_came_later_counts_from_now(world: DeploymentWorld) -> None:
    status = complete(conditions=[AVAILABLE])
    await world.have(settled(status=status), replica_set_document(annotations=noted("1")))
    assert (await conflict(world))[0] == STATUS
    condition = deployed(world).status.conditions[-1]
    assert (condition.status, condition.reason) == ("True", "FoundNewReplicaSet")
    assert (condition.message, condition.last_update_time) == ('Found new replica set "web-1"', START)


@pytest.mark.row("D-060")
async def test_a_failure_to_write_the_revision_ends_the_sync(world: DeploymentWorld) -> None:
    await world.have(settled(annotations={REVISION_ANNOTATION: "0"}), replica_set_document(annotations=noted("1")))
    world.api.fail("PUT", "deployments/web/status", TransportError("gone"))
    with pytest.raises(TransportError):
        await world.sync()
    assert len(world.api.calls) == 1


@pytest.mark.row("D-055", "D-063", "D-065", "D-173")
async def test_going_back_to_an_old_template_raises_its_revision(world: DeploymentWorld) -> None:
    huge = 3546343826724305832
    await world.have(
        settled(annotations={REVISION_ANNOTATION: str(huge)}),
        replica_set_document("old", template=pod_template("web:2"), annotations=noted(str(huge))),
        replica_set_document("back", replicas=0, annotations=noted("1")),
    )
    await world.settle()
    annotations = replica_set(world, "back").metadata.annotations
    assert (annotations[REVISION_ANNOTATION], annotations[REVISION_HISTORY_ANNOTATION]) == (str(huge + 1), "1")
    assert deployed(world).metadata.annotations[REVISION_ANNOTATION] == str(huge + 1)
    assert sizes(world) == {"old": 0, "back": 3}


@pytest.mark.row("D-064")
async def test_a_copy_that_was_not_written_goes_along_with_the_next_scaling(world: DeploymentWorld) -> None:
    await world.have(
        settled(replicas=4, annotations={"note": "x", REVISION_ANNOTATION: "odd"}),
        replica_set_document(annotations={**noted("odd"), DESIRED_REPLICAS_ANNOTATION: "3"}),
    )
    assert (await world.sync())[0] == "PUT replicasets/web-1"
    body = world.api.calls[0].body
    assert body["metadata"]["annotations"]["note"] == "x"
    assert body["spec"]["replicas"] == 4


@pytest.mark.row("D-174", "D-180")
async def test_an_adopted_replica_set_is_used_as_it_is(world: DeploymentWorld) -> None:
    await world.have(deployment_document(), replica_set_document("orphan", owner=None))
    before = replica_set(world, "orphan").document()["spec"]
    await world.settle()
    [adopted] = world.api.all(REPLICA_SETS)
    assert adopted.document()["spec"] == before
    assert adopted.metadata.controller is not None
    assert adopted.metadata.controller.uid == "uid-web"


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
    assert deployed(world).status.available_replicas == 5


@pytest.mark.row("D-183")
async def test_the_status_of_that_sync_does_not_know_of_the_new_size_yet(world: DeploymentWorld) -> None:
    await world.have(settled(replicas=5, status=complete(3)), replica_set_document(annotations=noted("1")))
    await world.sync()
    assert deployed(world).status.unavailable_replicas == 0


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
    assert sizes(world) == {"old": 8, "new": 5}
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
    assert await conflict(world) == [STATUS, STATUS]
    assert reasons(world)["Progressing"] == "DeploymentPaused"
    await world.deliver()
    assert await world.sync() == [STATUS]
    world.api.change(DEPLOYMENTS, "web", lambda d: d["spec"].update(paused=False))
    await world.deliver()
    assert (await conflict(world))[0] == STATUS
    assert reasons(world)["Progressing"] == "DeploymentResumed"


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
    assert sizes(world) == {"two": 5}
    assert reasons(world)["Progressing"] == "DeploymentPaused"


@pytest.mark.row("D-158", "D-166")
async def test_a_paused_deployment_with_a_rollback_request_keeps_both(world: DeploymentWorld) -> None:
    await world.have(
        paused(history=0, annotations={ROLLBACK_TO_ANNOTATION: "1"}),
        replica_set_document("two", annotations=noted("2")),
        replica_set_document("one", replicas=0, template=pod_template("web:0"), annotations=noted("1"), age=9),
    )
    await world.settle()
    assert sizes(world) == {"two": 3, "one": 0}
    assert deployed(world).metadata.annotations[ROLLBACK_TO_ANNOTATION] == "1"


# Rolling update


def old_set(name: str = "old", replicas: int = 3, available: int | None = None, *, age: float = 9) -> Document:
    template = pod_template("web:0")
    return replica_set_document(
        name, replicas=replicas, available=available, template=template, annotations=noted("0"), age=age
    )


@pytest.mark.row("D-119", "D-166")
async def test_a_step_of_a_rollout_goes_up_or_down_and_cleans_nothing(world: DeploymentWorld) -> None:
    await world.have(
        settled(history=0, status=complete()),
        old_set("older", 0, age=99),
        old_set("old", 3),
        replica_set_document("new", replicas=0, annotations=noted("1")),
    )
    assert (await world.sync())[:1] == ["PUT replicasets/new"]
    assert sizes(world) == {"older": 0, "old": 3, "new": 1}
    world.run_pods("new")
    await world.deliver()
    assert (await world.sync())[:1] == ["PUT replicasets/old"]
    assert sizes(world) == {"older": 0, "old": 2, "new": 1}


@pytest.mark.row("D-119", "D-127", "D-152")
async def test_a_rollout_runs_to_its_end(world: DeploymentWorld) -> None:
    await world.have(settled(status=complete(conditions=[progressing("ProgressDeadlineExceeded", "False")])), old_set())
    await world.settle()
    assert sorted(sizes(world).values()) == [0, 3]
    assert reasons(world)["Progressing"] == "NewReplicaSetAvailable"
    assert deployed(world).metadata.annotations[REVISION_ANNOTATION] == "1"


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
    assert sizes(world) == {"a": 1, "b": 2, "new": 3}


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
    assert sizes(world) == {"a": 1, "b": 1, "c": 2, "new": 3}


@pytest.mark.row("D-137")
async def test_a_rollout_does_not_wait_for_terminating_pods(world: DeploymentWorld) -> None:
    old = old_set(replicas=0)
    old["status"].update(replicas=0, terminatingReplicas=9)
    await world.have(settled(podReplacementPolicy="TerminationComplete"), old)
    await conflict(world)
    assert [size for name, size in sizes(world).items() if name != "old"] == [3]


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
    assert deployed(world).status.collision_count == 1
    assert replica_set(world, first.metadata.name).metadata.controller is None
    relabel("web")
    await world.settle()
    assert replica_set(world, first.metadata.name).metadata.controller is not None


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
    assert await conflict(world) == ["POST replicasets", STATUS, STATUS]
    made = world.api.all(REPLICA_SETS)[-1]
    assert (made.spec.replicas, made.metadata.annotations[MAX_REPLICAS_ANNOTATION]) == (3, "3")
    await world.settle()
    assert list(sizes(world)) == [made.metadata.name]


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
    seen = deployed(world).status
    assert (seen.replicas, seen.updated_replicas, seen.terminating_replicas) == (0, 0, 6 if counted else None)
    assert list(sizes(world)) == ["old"]
    world.api.remove(world.pods.resource, "p")
    await world.settle()
    seen = deployed(world).status
    assert (seen.replicas, seen.terminating_replicas) == (6, 0 if counted else None)


@pytest.mark.row("D-130")
async def test_recreation_scales_an_existing_replica_set_at_once(world: DeploymentWorld) -> None:
    await world.have(
        recreating(), old_set("old", 0), replica_set_document("new", replicas=0, annotations=noted("1", 3, 3))
    )
    assert (await world.sync())[0] == "PUT replicasets/new"
    assert sizes(world)["new"] == 3


@pytest.mark.row("D-128")
async def test_a_failure_to_end_old_pods_ends_the_sync(world: DeploymentWorld) -> None:
    await world.have(recreating(), old_set("old", 2))
    world.api.fail("PUT", "replicasets/old", refusal(409, "Conflict"))
    with pytest.raises(StatusError):
        await world.sync()
    assert len(world.api.calls) == 1


# Status and wake-ups


@pytest.mark.row("D-142")
async def test_a_status_that_somebody_else_wrote_is_corrected(world: DeploymentWorld) -> None:
    await world.have(settled(), replica_set_document(annotations=noted("1")))
    assert await world.sync() == []
    world.api.change(DEPLOYMENTS, "web", lambda d: d["status"].update(readyReplicas=0))
    await world.deliver()
    assert await world.sync() == [STATUS]
    assert deployed(world).status.ready_replicas == 3


@pytest.mark.row("D-141")
async def test_a_status_write_carries_everything_else_as_it_was(world: DeploymentWorld) -> None:
    own = {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "name": "x", "kind": "App", "apiVersion": "v1"}]}
    await world.have(
        settled(metadata=own, annotations={"a": "b"}, status=complete(readyReplicas=0)),
        replica_set_document(annotations={"a": "b", **noted("1")}),
    )
    version = deployed(world).metadata.resource_version
    assert await world.sync() == [STATUS]
    body = world.api.calls[0].body
    assert body["metadata"]["resourceVersion"] == version
    stored = deployed(world).document()["metadata"]
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
    assert reasons(world)["Progressing"] == "ProgressDeadlineExceeded"
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
    assert deployed(world).document()["spec"]["template"] == pod_template()
    assert deployed(world).metadata.annotations == {REVISION_ANNOTATION: "2", "cause": "create"}
    assert world.events == ['Normal DeploymentRollback: Rolled back deployment "web" to revision 1']
    await world.settle()
    assert sizes(world) == {"one": 3, "two": 0}
    assert replica_set(world, "one").metadata.annotations[REVISION_ANNOTATION] == "3"


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
    assert deployed(world).metadata.annotations == {REVISION_ANNOTATION: "2", "cause": "edit"}
    assert deployed(world).document()["spec"]["template"] == pod_template("web:2")
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
    assert (await conflict(world))[:2] == ["POST replicasets", STATUS]


@pytest.mark.row("D-158")
async def test_an_unreadable_request_is_ignored_and_left(world: DeploymentWorld) -> None:
    await world.have(rolled("first"), *versions())
    await world.settle()
    assert deployed(world).metadata.annotations[ROLLBACK_TO_ANNOTATION] == "first"
    assert sizes(world) == {"one": 0, "two": 3}


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
