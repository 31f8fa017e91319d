"""What one sync does with the pods of a StatefulSet, besides the stories of test_stateful_set_examples."""

from typing import Any

import pytest

from kcm.api.errors import AggregateError, StatusError
from kcm.api.intstr import IntOrStringError
from kcm.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.api.types.meta import Document, format_time
from kcm.controllers.statefulset.stateful_set_control import MAX_BATCH_SIZE, UnknownStrategyError
from kcm.controllers.statefulset.stateful_set_utils import RevisionError
from tests.clocks import START
from tests.unit.fakes import refusal
from tests.unit.stateful_set_world import (
    R1,
    R2,
    STATUS,
    StatefulSetWorld,
    claim_document,
    make_revision,
    name_of,
    reference_to_pod,
    reference_to_set,
    revision_document,
    running,
    stateful_pod_document,
    stateful_set_document,
)

NEW_REVISION = "POST controllerrevisions"
CREATE, CREATE_CLAIM = "POST pods", "POST persistentvolumeclaims"
R3 = name_of("web:3")


def delete(ordinal: int | str) -> str:
    return f"DELETE pods/web-{ordinal}"


# One slot


@pytest.mark.row("S-123")
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_an_ended_pod_is_deleted_before_anything_else(phase: str) -> None:
    w = await running(pods=0)
    await w.have(stateful_pod_document(0, phase=phase, labels={"app": "web"}))
    assert await w.sync() == [delete(0), STATUS]
    w = await running(pods=0, policy="Parallel", replicas=2)
    await w.have(stateful_pod_document(0, phase=phase, deleted=True))
    assert await w.sync() == [CREATE, STATUS], "one on its way out is waited for"
    w = await running(pods=0, replicas=2)
    await w.have(stateful_pod_document(0, phase=phase, deleted=True))
    assert await w.sync() == [STATUS]


@pytest.mark.row("S-124", "S-166")
async def test_an_ended_old_pod_is_deleted_twice_in_parallel() -> None:
    w = await running(policy="Parallel")
    w.end(1)
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(1), delete(1), STATUS]
    assert w.counters == (3, 2, 2, 2, 0)
    assert w.reasons == ["SuccessfulDelete"] * 2


@pytest.mark.row("S-125", "S-127")
async def test_ordered_creation_goes_one_at_a_time() -> None:
    w = await running(pods=0)
    assert await w.sync() == [CREATE]
    assert await w.sync() == [STATUS]
    w.run(0, ready=False)
    assert await w.sync() == []
    w.run(0)
    assert await w.sync() == [CREATE, STATUS]


@pytest.mark.row("S-127", "S-098")
async def test_the_next_one_waits_until_a_pod_is_available() -> None:
    w = await running(pods=1, minReadySeconds=10)
    w.clock.seconds = 9
    assert CREATE not in await w.sync()
    w.clock.seconds = 10
    assert CREATE in await w.sync()


@pytest.mark.row("S-126", "S-206")
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_a_pending_pod_gets_the_claims_that_are_missing(policy: str) -> None:
    w = await running(pods=0, replicas=1, claims=("data",), policy=policy)
    await w.have(stateful_pod_document(0, phase="Pending", claims=("data",), deleted=True))
    assert await w.sync() == [CREATE_CLAIM, STATUS]
    assert await w.sync() == []
    w.api.remove(PERSISTENT_VOLUME_CLAIMS, "data-web-0")
    assert await w.sync() == [CREATE_CLAIM]
    assert w.reasons == ["SuccessfulCreate"] * 2


@pytest.mark.row("S-126")
async def test_a_pending_pod_gets_the_owners_of_its_claims_right() -> None:
    w = await running(pods=0, replicas=1, claims=("data",), retention=("Retain", "Delete"))
    await w.have(stateful_pod_document(0, phase="Pending", claims=("data",)), claim_document("data-web-0"))
    assert await w.sync() == ["PUT persistentvolumeclaims/data-web-0", STATUS]
    assert w.reasons == []
    assert await w.sync() == []


@pytest.mark.row("S-126")
async def test_claims_that_cannot_be_created_end_the_sync() -> None:
    w = await running(pods=0, replicas=2, claims=("data",))
    await w.have(stateful_pod_document(0, phase="Pending", claims=("data",)))
    w.api.fail("POST", "persistentvolumeclaims", refusal(403, "Forbidden", "full"))
    assert await w.fail("full") == [CREATE_CLAIM, STATUS]


@pytest.mark.row("S-129", "S-128", "S-139")
async def test_only_available_pods_are_corrected_in_order_and_all_in_parallel() -> None:
    repair = ["GET pods/web-0", "PUT pods/web-0"]
    for policy, fixes_unready in (("OrderedReady", False), ("Parallel", True)):
        states: tuple[dict[str, Any], ...] = ({"ready": False}, {"deleted": True})
        for state in states:
            w = await running(pods=0, replicas=1, policy=policy)
            labels = {"app": "web", "controller-revision-hash": R1}
            await w.have(stateful_pod_document(0, labels=labels, **state))
            assert await w.sync() == [*(repair if fixes_unready else []), STATUS]
        w = await running(pods=0, replicas=1, policy=policy)
        await w.have(stateful_pod_document(0, labels=labels))
        assert (await w.sync())[:2] == repair
        assert w.reasons == ["SuccessfulUpdate"]


@pytest.mark.row("S-128", "S-130", "S-102")
async def test_wrong_storage_is_repaired_in_vain_and_a_wrong_revision_is_not() -> None:
    w = await running(replicas=1, strategy="OnDelete")
    w.edit(volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": {}}])
    w.api.fail("PUT", "pods/.*", refusal(422, "Invalid", "immutable"), times=2)
    assert await w.fail("immutable") == [CREATE_CLAIM, "GET pods/web-0", "PUT pods/web-0", STATUS]
    assert await w.fail("immutable") == ["GET pods/web-0", "PUT pods/web-0"]
    w = await running(strategy="OnDelete")
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, STATUS]


@pytest.mark.row("S-129", "S-142")
async def test_in_parallel_a_corrected_claim_still_looks_wrong_and_meets_a_conflict() -> None:
    w = await running(pods=0, replicas=1, claims=("data",), policy="Parallel", retention=("Retain", "Delete"))
    await w.have(claim_document("data-web-0"))
    claim = "PUT persistentvolumeclaims/data-web-0"

    async def see_the_claim(requests: int) -> None:
        if requests == 3:
            await w.api.deliver([w.claims])

    w.api.meanwhile = see_the_claim
    calls = await w.sync()
    assert calls == [CREATE, claim, claim]
    assert w.reasons == ["SuccessfulCreate", "FailedUpdate"]


@pytest.mark.row("S-121", "S-122", "S-155")
async def test_a_stale_claim_blocks_in_order_and_its_own_slot_in_parallel() -> None:
    for policy, calls in (("OrderedReady", []), ("Parallel", [CREATE_CLAIM, CREATE])):
        w = await running(pods=0, replicas=2, claims=("data",), policy=policy, retention=("Delete", "Retain"))
        await w.have(claim_document("data-web-0", reference_to_pod("web-0", "old")))
        assert await w.sync() == calls
        assert [reason for reason in w.reasons if reason != "SuccessfulCreate"] == []
        assert w.queue.delayed == []


@pytest.mark.row("S-205", "S-132")
async def test_a_foreign_pod_with_the_name_of_a_slot_blocks_it() -> None:
    w = await running(pods=0)
    await w.have(stateful_pod_document(0, owner=None, labels={"app": "else"}))
    assert await w.fail("already exists", StatusError) == [CREATE]
    assert w.reasons == []


# Condemned pods


@pytest.mark.row("S-147", "S-149", "S-162")
async def test_in_order_a_terminating_condemned_pod_is_waited_for() -> None:
    w = await running(pods=2, replicas=1, max_unavailable=2)
    await w.have(stateful_pod_document(2, deleted=True))
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, STATUS]
    w.finish(2)
    assert await w.sync() == [delete(1), STATUS]


@pytest.mark.row("S-147")
async def test_an_ended_condemned_pod_is_just_not_ready() -> None:
    w = await running(pods=2, replicas=1)
    await w.have(stateful_pod_document(2, phase="Failed"))
    w.run(1, ready=False)
    assert await w.sync() == [STATUS]
    w.run(1)
    assert (await w.sync())[0] == delete(2)


@pytest.mark.row("S-148", "S-098")
async def test_a_condemned_pod_that_is_not_available_waits_for_lower_ones() -> None:
    w = await running(pods=1, replicas=1, minReadySeconds=10)
    await w.have(stateful_pod_document(1), stateful_pod_document(2))
    w.clock.seconds = 5
    w.api.change(PODS, "web-0", _ready_since_long_ago)
    assert delete(2) not in await w.sync()
    w.api.change(PODS, "web-1", _ready_since_long_ago)
    assert delete(2) in await w.sync()


def _ready_since_long_ago(document: Document) -> None:
    document["status"]["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"


@pytest.mark.row("S-150", "S-156", "S-152")
async def test_in_parallel_all_condemned_pods_go_and_the_update_goes_on() -> None:
    w = await running(pods=2, replicas=2, policy="Parallel")
    for ordinal, state in ((2, {}), (3, {"ready": False}), (4, {"phase": "Failed"}), (5, {"deleted": True})):
        await w.have(stateful_pod_document(ordinal, **state))
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(4), delete(3), delete(2), delete(1), STATUS]


@pytest.mark.row("S-146", "S-156")
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_the_claims_of_all_condemned_pods_come_before_the_first_deletion(policy: str) -> None:
    w = await running(pods=2, replicas=1, policy=policy, claims=("data",), retention=("Delete", "Retain"))
    await w.have(stateful_pod_document(2, claims=("data",), deleted=True), claim_document("data-web-2"))
    calls = await w.sync()
    claims = [f"PUT persistentvolumeclaims/data-web-{ordinal}" for ordinal in (2, 1)]
    assert calls == [*claims, *([delete(1)] if policy == "Parallel" else []), STATUS]
    assert "SuccessfulUpdate" not in w.reasons
    w.api.change(PERSISTENT_VOLUME_CLAIMS, "data-web-1", lambda document: document["metadata"].pop("ownerReferences"))
    w.api.fail("PUT", "persistentvolumeclaims/.*", refusal(409, "Conflict", "changed"))
    calls = await w.fail("could not update claim data-web-1 for delete policy ownerRefs: changed")
    assert calls[0] == claims[1]
    assert delete(1) not in calls
    assert w.reasons == []


@pytest.mark.row("S-151")
async def test_a_condemned_pod_that_is_wanted_again_is_waited_for() -> None:
    w = await running(replicas=2)
    w.edit(replicas=1)
    assert (await w.sync())[0] == delete(1)
    w.edit(replicas=2)
    assert await w.sync() == [STATUS]
    w.finish(1)
    assert (await w.sync())[0] == CREATE


# Rolling update and the other strategies


@pytest.mark.row("S-159")
async def test_the_partition_counts_slots() -> None:
    w = await running(start=3, partition=1, max_unavailable=9)
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(5), delete(4), STATUS]


@pytest.mark.row("S-161")
async def test_a_deletion_that_fails_ends_the_update() -> None:
    w = await running(max_unavailable=3)
    w.set_image("web:2")
    w.api.fail("DELETE", "pods/web-1", refusal(500, "InternalError", "no"))
    assert await w.fail("^no$") == [NEW_REVISION, delete(2), delete(1), STATUS]
    assert w.counters == (3, 3, 3, 2, 0)


@pytest.mark.row("S-166", "S-167")
async def test_the_current_count_may_fall_below_zero() -> None:
    w = await running(revision=R3, max_unavailable=3)
    await w.have(revision_document("web:3", number=3))
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(updateRevision=R1))
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(2), delete(1), delete(0), STATUS]
    assert w.named == (R3, R2)
    assert w.status["currentReplicas"] == -3


@pytest.mark.row("S-168")
async def test_a_pod_may_be_created_and_deleted_in_one_sync() -> None:
    w = await running(pods=2, policy="Parallel", partition=None)
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(currentReplicas=3))
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, CREATE, delete(2), STATUS]


@pytest.mark.row("S-169", "S-192", "S-193", "S-011")
async def test_without_the_gate_one_pod_at_a_time_is_updated() -> None:
    w = await running(max_unavailable=3, policy="Parallel", many=False)
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(2), STATUS]
    assert w.counters == (3, 3, 3, 2, 0)
    assert await w.sync() == [STATUS]
    w.finish(2)
    assert CREATE in await w.sync()
    assert delete(1) not in await w.sync()
    w.run(2)
    assert delete(1) in await w.sync()
    assert "statefulset_max_unavailable{" not in w.metrics.render().decode()
    assert "statefulset_unavailable_replicas{" not in w.metrics.render().decode()


@pytest.mark.row("S-158", "S-190")
async def test_a_bound_that_is_no_number_fails_before_the_status_is_written() -> None:
    for state in ({}, {"metadata": {"deletionTimestamp": format_time(START)}}, {"strategy": "RollingUpdate"}):
        w = await running(pods=2, max_unavailable="many", **state)
        await w.fail("invalid", IntOrStringError)
        assert STATUS not in w.api.take_calls()


@pytest.mark.row("S-171", "S-192", "S-193", "S-093")
async def test_on_delete_nobody_deletes_for_an_update() -> None:
    w = await running(strategy="OnDelete")
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, STATUS]
    assert w.counters == (3, 3, 3, 3, 0)
    for ordinal in range(3):
        w.finish(ordinal)
        assert CREATE in await w.sync()
        assert w.revision_of(ordinal) == R2
        w.run(ordinal)
    assert await w.sync() == [STATUS]
    assert w.counters == (3, 3, 3, 3, 3)
    assert w.named == (R2, R2)
    text = w.metrics.render().decode()
    labels = 'pod_management_policy="OrderedReady",statefulset_name="web",statefulset_namespace="ns"'
    assert f"statefulset_controller_statefulset_max_unavailable{{{labels}}} 1" in text
    assert "statefulset_unavailable_replicas{" not in text


@pytest.mark.row("S-172", "S-189", "S-011")
@pytest.mark.parametrize("deleted", [False, True])
async def test_recreate_has_to_be_switched_on(deleted: bool) -> None:
    metadata = {"deletionTimestamp": format_time(START)} if deleted else {}
    w = await running(strategy="Recreate", metadata=metadata, revisionHistoryLimit=0)
    await w.have(revision_document("web:9", number=0))
    w.set_image("web:2")
    text = "statefulset ns/web uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled"
    calls = await w.fail(f"^{text}$", UnknownStrategyError)
    assert calls == [NEW_REVISION, f"DELETE controllerrevisions/{name_of('web:9')}"]
    assert await w.fail(text) == []
    assert w.events == [f"Warning UnknownStrategy: {text}"] * 2


@pytest.mark.row("S-173", "S-174", "S-175", "S-176", "S-156")
async def test_recreate_replaces_all_pods_at_once() -> None:
    w = await running(strategy="Recreate", recreate=True)
    await w.have(stateful_pod_document(7))
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, delete(0), delete(1), delete(2), delete(7), STATUS]
    assert w.counters == (4, 4, 4, 4, 0)
    assert progress(w) == ("True", "RecreateInProgress", "Deleting old revision pods")
    w.finish(0, 2, 7)
    assert await w.sync() == [STATUS]
    w.finish(1)
    assert await w.sync() == [CREATE, STATUS]
    assert progress(w) == ("True", "RecreateInProgress", "Waiting for new-revision pods to be created")
    for ordinal in range(3):
        assert w.revision_of(ordinal) == R2
        w.run(ordinal)
        await w.sync()
        await w.sync()
    assert progress(w) == ("False", "RecreateCompleted", "All pods recreated successfully")
    assert w.named == (R2, R2)
    assert await w.sync() == []


@pytest.mark.row("S-173")
async def test_recreation_that_fails_ends_the_sync_with_a_status() -> None:
    w = await running(strategy="Recreate", recreate=True)
    w.set_image("web:2")
    w.api.fail("DELETE", "pods/web-0", refusal(500, "InternalError", "no"))
    assert await w.fail("^no$", AggregateError) == [NEW_REVISION, delete(0), STATUS]
    assert "conditions" not in w.status


@pytest.mark.row("S-175")
async def test_a_first_rollout_under_recreate_has_no_condition() -> None:
    w = StatefulSetWorld(recreate=True)
    await w.have(stateful_set_document(strategy="Recreate", replicas=1))
    await w.sync()
    w.run(0)
    await w.sync()
    assert "conditions" not in w.status
    assert w.counters == (1, 1, 1, 1, 1)


def progress(w: StatefulSetWorld) -> tuple[str, str, str]:
    (condition,) = w.status["conditions"]
    return condition["status"], condition["reason"], condition["message"]


# Status


@pytest.mark.row("S-037", "S-178", "S-184", "S-189")
async def test_a_set_that_is_being_deleted_only_gets_a_status() -> None:
    w = await running(pods=0, metadata={"deletionTimestamp": format_time(START)}, claims=("data",))
    await w.have(
        stateful_pod_document(0),
        stateful_pod_document(1, phase="Failed"),
        stateful_pod_document(8),
        stateful_pod_document(name="web-99999999999"),
        stateful_pod_document(2, labels={"app": "else"}),
        stateful_pod_document(name="web-5", owner=None),
    )
    w.set_image("web:2")
    assert await w.sync() == [NEW_REVISION, STATUS]
    assert w.counters == (4, 3, 3, 4, 0)


@pytest.mark.row("S-091", "S-178", "S-179")
async def test_pods_without_a_usable_ordinal_do_not_count_otherwise() -> None:
    w = await running(replicas=1)
    await w.have(stateful_pod_document(name="web-99999999999"), stateful_pod_document(2))
    assert await w.sync() == [delete(2), STATUS]
    assert w.counters == (2, 2, 2, 2, 2)


@pytest.mark.row("S-088", "S-089", "S-144")
async def test_a_second_pod_of_an_ordinal_is_nobodys_business() -> None:
    w = await running(replicas=1)
    await w.have(stateful_pod_document(name="web-00"))
    assert await w.sync() == ["GET pods/web-00", "PUT pods/web-0"]
    assert w.reasons == ["SuccessfulUpdate"]
    assert w.counters == (1, 1, 1, 1, 1)


@pytest.mark.row("S-181", "S-186")
async def test_a_status_is_written_with_the_whole_object() -> None:
    document = stateful_set_document(status={"replicas": 7, "availableReplicas": 7, "observedGeneration": 1})
    document["metadata"]["labels"] = {"mine": "kept"}
    document["spec"]["fieldOfTheFuture"] = 7
    document["metadata"]["managedFields"] = [{"manager": "x"}]
    w = StatefulSetWorld()
    await w.have(document)
    await w.sync()
    body = w.body(STATUS)
    assert body["metadata"]["labels"] == {"mine": "kept"}
    assert body["spec"] == document["spec"]
    assert body["status"] == {
        "replicas": 0,
        "availableReplicas": 0,
        "observedGeneration": 1,
        "currentRevision": R1,
        "updateRevision": R1,
        "collisionCount": 0,
    }


@pytest.mark.looptime
@pytest.mark.row("S-186", "S-145", "S-187")
async def test_a_status_that_meets_conflicts_is_written_on_what_is_cached_then() -> None:
    w = await running()
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(readyReplicas=1))
    await w.deliver()
    w.api.change(STATEFUL_SETS, "web", lambda document: document["metadata"].update(labels={"new": "label"}))

    async def see_the_label(_requests: int) -> None:
        await w.deliver()

    w.api.meanwhile = see_the_label
    calls = await w.sync_stale()
    assert calls == [STATUS, STATUS]
    assert w.stateful_set.metadata.labels == {"new": "label"}
    assert w.counters == (3, 3, 3, 3, 3)


@pytest.mark.looptime
@pytest.mark.row("S-186", "S-188", "S-200")
async def test_five_conflicts_are_enough_and_other_errors_end_it() -> None:
    w = await running(pods=2, replicas=2)
    w.run(1, ready=False)
    w.api.fail("PUT", STATUS.removeprefix("PUT "), refusal(409, "Conflict", "changed"), times=5)
    assert await w.fail("^changed$", StatusError) == [STATUS] * 5
    w.api.fail("PUT", STATUS.removeprefix("PUT "), refusal(500, "InternalError", "broken"))
    assert await w.fail("^broken$", StatusError) == [STATUS]
    w.finish(1)
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "no quota"))
    w.api.fail("PUT", STATUS.removeprefix("PUT "), refusal(500, "InternalError", "broken"))
    assert await w.fail("^no quota$", StatusError) == [CREATE, STATUS]


@pytest.mark.row("S-189", "S-079")
async def test_a_revision_without_a_template_ends_the_sync_without_a_status() -> None:
    w = await running(pods=2)
    bad = make_revision("web:9", name=R1)
    w.set_image("web:9")
    await w.deliver()
    w.revisions.store.put(type(bad)(metadata=bad.metadata, data=b'{"spec":{}}', revision=1))
    assert await _fail_stale(w, RevisionError) == [NEW_REVISION]


@pytest.mark.row("S-183")
async def test_condemned_pods_can_complete_an_update() -> None:
    w = await running()
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(currentRevision="before"))
    w.edit(ordinals={"start": 3})
    assert await w.sync() == [CREATE, STATUS]
    assert w.named == (R1, R1)


def test_batches_have_a_limit() -> None:
    assert MAX_BATCH_SIZE == 500


@pytest.mark.row("S-117", "S-009")
async def test_a_set_reference_is_complete() -> None:
    w = await running(replicas=1, claims=("data",), retention=("Retain", "Delete"))
    await w.sync()
    owners = w.api.one(PERSISTENT_VOLUME_CLAIMS, "data-web-0").document()["metadata"]["ownerReferences"]
    assert owners == [reference_to_set()]


async def _fail_stale(w: StatefulSetWorld, error: type[Exception]) -> list[str]:
    w.api.calls.clear()
    with pytest.raises(error):
        await w.controller.sync("ns/web")
    return w.api.take_calls()
