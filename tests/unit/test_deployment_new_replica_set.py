"""How a Deployment comes to its new ReplicaSet: makes it, finds it, and what it tells when it cannot."""

from typing import Any

import pytest

from kcm.api.errors import FencedError, StatusError, TransportError, is_already_exists, is_not_found
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.meta import Document
from kcm.controllers.deployment.util import (
    DESIRED_REPLICAS_ANNOTATION,
    REVISION_ANNOTATION,
    REVISION_HISTORY_ANNOTATION,
)
from tests.clocks import START
from tests.unit.deployment_world import AVAILABLE, STATUS, DeploymentWorld, complete, noted, settled
from tests.unit.fakes import (
    deployment_document,
    pod_template,
    refusal,
    replica_set_document,
)


@pytest.fixture
def world() -> DeploymentWorld:
    return DeploymentWorld()


# The new ReplicaSet is made


@pytest.mark.row("D-079", "D-085", "D-086", "D-087", "D-177")
async def test_the_first_sync_makes_the_replica_set_and_conflicts_with_itself(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    assert await world.conflict() == ["POST replicasets", STATUS, STATUS]
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
    status = world.deployment.status
    assert world.deployment.metadata.annotations == {REVISION_ANNOTATION: "1"}
    [condition] = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("Progressing", "True", "NewReplicaSetCreated")
    assert condition.message == f'Created new replica set "{made.metadata.name}"'
    assert status.observed_generation == 0


@pytest.mark.row("D-025", "D-119", "D-147")
async def test_a_new_deployment_comes_to_rest(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    await world.settle()
    status = world.deployment.status
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (3, 3, 3)
    assert (status.unavailable_replicas, status.terminating_replicas, status.observed_generation) == (0, 0, 1)
    assert world.reasons == {"Progressing": "NewReplicaSetAvailable", "Available": "MinimumReplicasAvailable"}
    assert len(world.api.all(REPLICA_SETS)) == 1


@pytest.mark.row("D-085", "D-086")
async def test_a_replica_set_of_no_size_makes_no_event_and_without_a_deadline_no_condition(
    world: DeploymentWorld,
) -> None:
    await world.have(deployment_document(replicas=0, deadline=None, annotations={REVISION_ANNOTATION: "1"}))
    assert await world.sync() == ["POST replicasets", STATUS]
    assert world.events == []
    assert "Progressing" not in world.reasons


@pytest.mark.row("D-080")
async def test_a_taken_name_that_the_cache_does_not_know_is_no_collision(world: DeploymentWorld) -> None:
    await world.have(deployment_document())
    await world.conflict()
    world.api.changes.clear()
    world.recorder.occurrences.clear()
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_not_found(caught.value)
    assert [str(call) for call in world.api.calls] == ["POST replicasets"]
    assert world.deployment.status.collision_count is None
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
    assert world.deployment.status.collision_count == 1
    assert world.events == []
    await world.deliver()
    await world.settle()
    assert world.deployment.status.collision_count == 1
    assert len({rs.metadata.name for rs in world.api.all(REPLICA_SETS)} - {name}) == 1


@pytest.mark.row("D-082")
async def test_a_collision_is_reported_as_such_even_if_it_cannot_be_noted(world: DeploymentWorld) -> None:
    await with_taken_name(world, {"template": pod_template("other")}, status={})
    world.api.fail("PUT", "deployments/web/status", refusal(409, "Conflict"))
    with pytest.raises(StatusError) as caught:
        await world.sync()
    assert is_already_exists(caught.value)
    assert world.deployment.status.collision_count is None


@pytest.mark.row("D-081")
async def test_a_name_taken_by_the_very_replica_set_is_success(
    world: DeploymentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was made before the cache saw it, the look-up comes after."""
    await world.have(deployment_document())
    await world.conflict()
    [made] = world.api.all(REPLICA_SETS)
    world.api.change(DEPLOYMENTS, "web", lambda d: (d["metadata"].pop("annotations"), d.update(status={})))
    await world.deliver()
    world.recorder.occurrences.clear()
    monkeypatch.setattr(world.replica_sets.store, "list", lambda _namespace: [])
    assert await world.conflict() == ["POST replicasets", STATUS, STATUS]
    assert world.deployment.metadata.annotations[REVISION_ANNOTATION] == "1"
    assert world.reasons == {}
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
    [condition] = world.deployment.status.conditions
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
    assert (await world.conflict())[:2] == ["PUT replicasets/web-1", "PUT replicasets/web-1"]
    body = world.api.calls[0].body
    assert body["spec"]["minReadySeconds"] == 7
    assert body["metadata"]["annotations"] == {"note": "x", **noted("1", 3, 99)}
    assert body["metadata"]["resourceVersion"] != world.replica_set("web-1").metadata.resource_version


@pytest.mark.row("D-108")
async def test_finding_the_new_replica_set_twice_writes_it_twice_and_conflicts(world: DeploymentWorld) -> None:
    """Once to see whether this is a scaling, once to roll out, both on the same list."""
    await world.have(settled(annotations={"note": "x"}), replica_set_document(annotations=noted("1")))
    assert await world.conflict() == ["PUT replicasets/web-1", "PUT replicasets/web-1"]
    await world.deliver()
    assert await world.sync() == []


@pytest.mark.row("D-058", "D-060")
async def test_the_deployment_takes_over_the_revision_of_its_replica_set(world: DeploymentWorld) -> None:
    status = complete(readyReplicas=1)
    await world.have(
        settled(annotations={REVISION_ANNOTATION: "9"}, status=status),
        replica_set_document(annotations=noted("odd")),
    )
    assert await world.conflict() == [STATUS, STATUS]
    first = world.api.calls[0].body
    assert first["metadata"]["annotations"] == {REVISION_ANNOTATION: "odd"}
    assert first["status"]["readyReplicas"] == 1
    assert first["spec"] == world.deployment.document()["spec"]


@pytest.mark.row("D-058", "D-059")
async def test_a_deadline_that_came_later_counts_from_now(world: DeploymentWorld) -> None:
    status = complete(conditions=[AVAILABLE])
    await world.have(settled(status=status), replica_set_document(annotations=noted("1")))
    assert (await world.conflict())[0] == STATUS
    condition = world.deployment.status.conditions[-1]
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
    annotations = world.replica_set("back").metadata.annotations
    assert (annotations[REVISION_ANNOTATION], annotations[REVISION_HISTORY_ANNOTATION]) == (str(huge + 1), "1")
    assert world.deployment.metadata.annotations[REVISION_ANNOTATION] == str(huge + 1)
    assert world.sizes == {"old": 0, "back": 3}


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
    before = world.replica_set("orphan").document()["spec"]
    await world.settle()
    [adopted] = world.api.all(REPLICA_SETS)
    assert adopted.document()["spec"] == before
    assert adopted.metadata.controller is not None
    assert adopted.metadata.controller.uid == "uid-web"
