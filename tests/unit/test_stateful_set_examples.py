"""Whole stories of StatefulSets, sync by sync, as they were seen under the stock manager (docs/behaviour/statefulset.md).

Counters are written replicas, ready, available, current, updated.
"""

from typing import Any

import pytest

from kcm.api.errors import AggregateError
from kcm.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.api.types.meta import Document
from tests.unit.fakes import refusal
from tests.unit.stateful_set_world import (
    R1,
    R2,
    STATUS,
    StatefulSetWorld,
    reference_to_pod,
    reference_to_set,
    revision_document,
    running,
    stateful_pod_document,
    stateful_set_document,
)

NEW_REVISION = "POST controllerrevisions"
CREATE = "POST pods"


def delete(ordinal: int) -> str:
    return f"DELETE pods/web-{ordinal}"


async def step(w: StatefulSetWorld, *calls: str, counters: tuple[int, int, int, int, int] | None = None) -> None:
    """Sync once and compare the requests; counters that are not given stay as they are."""
    before = w.counters
    assert await w.sync() == list(calls)
    assert w.counters == (before if counters is None else counters)


@pytest.mark.row("S-123", "S-127", "S-180", "S-092", "S-130")
async def test_a_failed_pod_is_replaced_before_a_new_one_is_added() -> None:
    w = await running()
    w.end(1)
    w.edit(replicas=4)
    await step(w, delete(1), STATUS, counters=(3, 2, 2, 3, 3))
    assert w.status["observedGeneration"] == 2
    await step(w, CREATE, STATUS, counters=(2, 2, 2, 2, 2))
    await step(w, STATUS, counters=(3, 2, 2, 3, 3))
    w.run(1)
    await step(w, CREATE, STATUS, counters=(3, 3, 3, 3, 3))
    await step(w, STATUS, counters=(4, 3, 3, 4, 4))
    w.run(3)
    await step(w, STATUS, counters=(4, 4, 4, 4, 4))
    await step(w)


@pytest.mark.row("S-123", "S-155")
async def test_a_failed_pod_keeps_nobody_waiting_in_parallel() -> None:
    w = await running(policy="Parallel")
    w.end(1)
    w.edit(replicas=4)
    await step(w, delete(1), CREATE, STATUS, counters=(3, 2, 2, 3, 3))
    await step(w, CREATE)


@pytest.mark.row("S-159", "S-161", "S-093", "S-166", "S-183")
async def test_an_update_stops_at_the_partition() -> None:
    w = await running(replicas=5, partition=2)
    w.set_image("web:2")
    await step(w, NEW_REVISION, delete(4), STATUS, counters=(5, 5, 5, 4, 0))
    assert w.named == (R1, R2)
    for ordinal, current, updated in ((4, 4, 0), (3, 3, 1), (2, 2, 2)):
        await step(w, STATUS, counters=(5, 4, 4, current, updated))
        w.finish(ordinal)
        await step(w, CREATE, STATUS, counters=(4, 4, 4, current, updated))
        await step(w, STATUS, counters=(5, 4, 4, current, updated + 1))
        w.run(ordinal)
        last = ordinal == 2
        calls = [STATUS] if last else [delete(ordinal - 1), STATUS]
        await step(w, *calls, counters=(5, 5, 5, current if last else current - 1, updated + 1))
    await step(w)
    assert w.named == (R1, R2)
    w.finish(1)
    await step(w, CREATE, STATUS, counters=(4, 4, 4, 1, 3))
    assert w.revision_of(1) == R1


@pytest.mark.row("S-162", "S-130")
async def test_an_unavailable_pod_stops_an_ordered_update_whatever_the_bound() -> None:
    w = await running(replicas=5, max_unavailable=2)
    w.run(1, ready=False)
    w.set_image("web:2")
    await step(w, NEW_REVISION, STATUS, counters=(5, 4, 4, 5, 0))
    await step(w)
    w.finish(1)
    await step(w, CREATE, STATUS, counters=(4, 4, 4, 4, 0))
    assert w.revision_of(1) == R2
    w.run(1)
    await step(w, delete(4), delete(3), STATUS, counters=(5, 5, 5, 2, 1))


@pytest.mark.row("S-160", "S-164", "S-165", "S-152")
async def test_a_parallel_update_begins_with_what_is_unavailable() -> None:
    w = await running(replicas=5, max_unavailable=2, policy="Parallel")
    w.run(1, ready=False)
    w.set_image("web:2")
    await step(w, NEW_REVISION, delete(1), delete(4), STATUS, counters=(5, 4, 4, 3, 0))
    await step(w, STATUS, counters=(5, 3, 3, 3, 0))
    w.finish(1, 4)
    await step(w, CREATE, CREATE, STATUS, counters=(3, 3, 3, 3, 0))
    await step(w, STATUS, counters=(5, 3, 3, 3, 2))
    w.run(1)
    await step(w, delete(3), STATUS, counters=(5, 4, 4, 2, 2))


@pytest.mark.row("S-163", "S-164", "S-183")
async def test_a_broken_parallel_set_is_replaced_at_once() -> None:
    w = await running(replicas=4, policy="Parallel")
    w.run(0, 1, 2, 3, ready=False)
    w.set_image("web:2")
    await step(w, NEW_REVISION, delete(3), delete(2), delete(1), delete(0), STATUS, counters=(4, 0, 0, 0, 0))
    w.finish(0, 1, 2, 3)
    await step(w, CREATE, CREATE, CREATE, CREATE, STATUS, counters=(0, 0, 0, 0, 0))
    await step(w, STATUS, counters=(4, 0, 0, 0, 4))
    w.run(0, 1, 2, 3)
    await step(w, STATUS, counters=(4, 4, 4, 4, 4))
    assert w.named == (R2, R2)


@pytest.mark.row("S-163", "S-164", "S-165")
@pytest.mark.parametrize(
    ("partition", "broken", "deleted", "counters"),
    [(2, (0, 1, 2, 3), (3, 2), (4, 0, 0, 2, 0)), (0, (0,), (0,), (4, 3, 3, 3, 0))],
)
async def test_a_parallel_update_of_broken_pods(
    partition: int, broken: tuple[int, ...], deleted: tuple[int, ...], counters: tuple[int, int, int, int, int]
) -> None:
    w = await running(replicas=4, policy="Parallel", partition=partition)
    w.run(*broken, ready=False)
    w.set_image("web:2")
    await step(w, NEW_REVISION, *map(delete, deleted), STATUS, counters=counters)


async def updating(**options: Any) -> StatefulSetWorld:
    """A set of 5 whose highest pod is already of the second revision."""
    w = await running(replicas=5, **options)
    w.set_image("web:2")
    await w.sync()
    w.finish(4)
    await w.sync()
    w.run(4)
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(readyReplicas=4, updatedReplicas=1))
    return w


@pytest.mark.row("S-146", "S-147", "S-149", "S-157", "S-090")
async def test_scaling_down_comes_before_an_update() -> None:
    w = await updating()
    w.edit(replicas=2)
    updated = 1
    for ordinal, total in ((4, 5), (3, 4), (2, 3)):
        current = min(total, 4)
        await step(w, delete(ordinal), STATUS, counters=(total, total, total, current, updated))
        updated = 0
        current = min(current, total - 1)
        await step(w, STATUS, counters=(total, total - 1, total - 1, current, 0))
        w.finish(ordinal)
    await step(w, delete(1), STATUS, counters=(2, 2, 2, 1, 0))
    await step(w, STATUS, counters=(2, 1, 1, 1, 0))
    w.finish(1)
    await step(w, CREATE, STATUS, counters=(1, 1, 1, 1, 0))
    await step(w, STATUS, counters=(2, 1, 1, 1, 1))
    w.run(1)
    await step(w, delete(0), STATUS, counters=(2, 2, 2, 0, 1))
    await step(w, STATUS, counters=(2, 1, 1, 0, 1))
    w.finish(0)
    await step(w, CREATE, STATUS, counters=(1, 1, 1, 0, 1))
    await step(w, STATUS, counters=(2, 1, 1, 0, 2))
    w.run(0)
    await step(w, STATUS, counters=(2, 2, 2, 2, 2))
    assert w.named == (R2, R2)


@pytest.mark.row("S-087", "S-090", "S-104", "S-149")
async def test_another_start_makes_new_pods_before_the_old_ones_go() -> None:
    w = await running()
    w.edit(ordinals={"start": 3})
    await step(w, CREATE, STATUS)
    assert w.api.one(PODS, "web-3").metadata.labels["apps.kubernetes.io/pod-index"] == "3"
    for ordinal, total in ((3, 3), (4, 4), (5, 5)):
        n = total + 1
        await step(w, STATUS, counters=(n, total, total, n, n))
        w.run(ordinal)
        await step(w, CREATE if ordinal < 5 else delete(2), STATUS, counters=(n, n, n, n, n))
    for ordinal, total in ((2, 6), (1, 5), (0, 4)):
        left = total - 1
        await step(w, STATUS, counters=(total, left, left, left, left))
        w.finish(ordinal)
        await step(w, *([delete(ordinal - 1)] if ordinal else []), STATUS, counters=(left, left, left, left, left))
    await step(w)


@pytest.mark.row("S-067", "S-170", "S-127")
async def test_a_rollback_waits_for_somebody_to_delete_the_broken_pod() -> None:
    w = await broken_update()
    await step(w, f"PUT controllerrevisions/{R1}", STATUS, counters=(3, 2, 2, 2, 2))
    assert w.named == (R1, R1)
    await step(w)
    w.finish(2)
    await step(w, CREATE, STATUS, counters=(2, 2, 2, 2, 2))
    assert w.revision_of(2) == R1
    await step(w, STATUS, counters=(3, 2, 2, 3, 3))
    w.run(2)
    await step(w, STATUS, counters=(3, 3, 3, 3, 3))


@pytest.mark.row("S-067", "S-170", "S-164")
async def test_a_parallel_rollback_deletes_the_broken_pod() -> None:
    w = await broken_update(policy="Parallel")
    await step(w, f"PUT controllerrevisions/{R1}", delete(2), STATUS, counters=(3, 2, 2, 1, 2))
    await step(w, STATUS, counters=(3, 2, 2, 2, 2))
    w.finish(2)
    await step(w, CREATE, STATUS, counters=(2, 2, 2, 2, 2))
    assert w.revision_of(2) == R1


async def broken_update(**options: Any) -> StatefulSetWorld:
    """A set whose highest pod, the only one of revision 2, never becomes ready; its template is that of revision 1 again."""
    w = StatefulSetWorld()
    counts = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2, "updatedReplicas": 1}
    status = {**counts, "currentRevision": R1, "updateRevision": R2, "observedGeneration": 2, "collisionCount": 0}
    await w.have(
        stateful_set_document(status=status, metadata={"generation": 3}, **options),
        revision_document("web:1", number=1),
        revision_document("web:2", number=2),
        *(stateful_pod_document(ordinal) for ordinal in range(2)),
        stateful_pod_document(2, revision=R2, ready=False),
    )
    return w


@pytest.mark.row("S-113", "S-117", "S-118", "S-121", "S-122")
async def test_claims_go_with_the_pods_of_a_scale_down() -> None:
    w = await running(claims=("data",), retention=("Delete", "Retain"))
    await step(w)
    w.edit(replicas=1)
    claims = ["PUT persistentvolumeclaims/data-web-2", "PUT persistentvolumeclaims/data-web-1"]
    await step(w, *claims, delete(2), STATUS)
    assert w.reasons == ["SuccessfulDelete"]
    owners = w.api.one(PERSISTENT_VOLUME_CLAIMS, "data-web-1").document()["metadata"]["ownerReferences"]
    assert owners == [reference_to_pod("web-1")]
    await step(w, STATUS, counters=(3, 2, 2, 2, 2))
    w.finish(2)
    await step(w, delete(1), STATUS, counters=(2, 2, 2, 2, 2))
    await step(w, STATUS, counters=(2, 1, 1, 1, 1))
    w.finish(1)
    await step(w, STATUS, counters=(1, 1, 1, 1, 1))
    w.reasons.clear()

    w.edit(replicas=3)
    await step(w, STATUS)  # the claim of the old web-1 is still there
    assert w.reasons == []
    assert w.queue.delayed == []
    await w.deliver()
    w.queue.added.clear()
    w.api.remove(PERSISTENT_VOLUME_CLAIMS, "data-web-2")
    w.api.remove(PERSISTENT_VOLUME_CLAIMS, "data-web-1")
    await w.deliver()
    assert w.queue.added == []
    await step(w, "POST persistentvolumeclaims", CREATE)
    await step(w, STATUS, counters=(2, 1, 1, 2, 2))
    w.run(1)
    await step(w, "POST persistentvolumeclaims", CREATE, STATUS, counters=(2, 2, 2, 2, 2))


@pytest.mark.row("S-128", "S-140", "S-113")
async def test_a_condemned_pod_that_is_wanted_again_keeps_its_claim() -> None:
    w = await running(claims=("data",), retention=("Delete", "Retain"))
    w.edit(replicas=1)
    await w.sync()
    w.edit(replicas=3)
    assert w.reasons == ["SuccessfulDelete"]
    calls = ["PUT persistentvolumeclaims/data-web-1", "GET pods/web-1", "PUT pods/web-1", STATUS]
    await step(w, *calls, counters=(3, 2, 2, 2, 2))
    assert w.reasons == ["SuccessfulUpdate"]
    assert "ownerReferences" not in w.api.one(PERSISTENT_VOLUME_CLAIMS, "data-web-1").document()["metadata"]


@pytest.mark.row("S-113", "S-117", "S-119", "S-126")
async def test_claims_that_go_with_set_and_pod_change_hands() -> None:
    w = await running(claims=("data",), retention=("Delete", "Delete"), replicas=2)
    claim = "PUT persistentvolumeclaims/data-web-1"
    await step(
        w,
        "PUT persistentvolumeclaims/data-web-0",
        "GET pods/web-0",
        "PUT pods/web-0",
        claim,
        "GET pods/web-1",
        "PUT pods/web-1",
    )
    assert owners_of(w, "data-web-1") == [reference_to_set()]
    w.edit(replicas=1)
    await step(w, claim, delete(1), STATUS)
    assert owners_of(w, "data-web-1") == [reference_to_pod("web-1")]
    w.finish(1)
    w.api.remove(PERSISTENT_VOLUME_CLAIMS, "data-web-1")
    await step(w, STATUS, counters=(1, 1, 1, 1, 1))
    w.edit(replicas=2)
    await step(w, "POST persistentvolumeclaims", CREATE, STATUS)
    assert owners_of(w, "data-web-1") == []
    assert w.reasons[-2:] == ["SuccessfulCreate", "SuccessfulCreate"]
    await step(w, claim, STATUS, counters=(2, 1, 1, 2, 2))
    assert w.reasons == []
    assert owners_of(w, "data-web-1") == [reference_to_set()]


def owners_of(w: StatefulSetWorld, claim: str) -> list[Document]:
    owners: list[Document] = (
        w.api.one(PERSISTENT_VOLUME_CLAIMS, claim).document()["metadata"].get("ownerReferences", [])
    )
    return owners


@pytest.mark.row("S-095", "S-148")
async def test_two_broken_condemned_pods_stop_an_ordered_scale_down() -> None:
    w = await running(replicas=5)
    w.run(3, 4, ready=False)
    w.edit(replicas=2)
    await step(w, STATUS, counters=(5, 3, 3, 5, 5))
    await step(w)
    w.run(4)
    await step(w, delete(4), STATUS, counters=(5, 4, 4, 5, 5))
    w.finish(4)
    await step(w, delete(3), STATUS, counters=(4, 3, 3, 4, 4))


@pytest.mark.row("S-095", "S-148")
async def test_one_broken_condemned_pod_goes_at_once() -> None:
    w = await running(replicas=5)
    w.run(4, ready=False)
    w.edit(replicas=2)
    await step(w, delete(4), STATUS, counters=(5, 4, 4, 5, 5))


@pytest.mark.row("S-078", "S-152", "S-154", "S-192", "S-193")
async def test_a_new_parallel_set_starts_in_batches() -> None:
    w = StatefulSetWorld()
    await w.have(stateful_set_document(policy="Parallel", claims=("data",)))
    claim = "POST persistentvolumeclaims"
    calls = [NEW_REVISION, claim, CREATE, claim, claim, CREATE, CREATE, STATUS]
    await step(w, *calls, counters=(0, 0, 0, 0, 0))
    assert w.named == (R1, R1)
    assert w.status == {
        "observedGeneration": 1,
        "replicas": 0,
        "availableReplicas": 0,
        "currentRevision": R1,
        "updateRevision": R1,
        "collisionCount": 0,
    }
    assert sorted(w.reasons) == ["SuccessfulCreate"] * 6
    labels = 'pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="ns"'
    text = w.metrics.render().decode()
    assert f"statefulset_controller_statefulset_max_unavailable{{{labels}}} 1" in text
    assert f"statefulset_controller_statefulset_unavailable_replicas{{{labels}}} 3" in text


@pytest.mark.row("S-153", "S-154", "S-188")
async def test_a_refused_first_pod_keeps_the_others_back() -> None:
    w = StatefulSetWorld()
    await w.have(stateful_set_document(policy="Parallel"))
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "no room"), times=2)
    assert await w.fail("^no room$") == [NEW_REVISION, CREATE, STATUS]
    assert await w.fail("^no room$") == [CREATE]
    assert await w.sync() == [CREATE, CREATE, CREATE]


@pytest.mark.row("S-153")
async def test_a_batch_with_errors_ends_and_is_the_last() -> None:
    w = await running(policy="Parallel", replicas=7, pods=1)
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "no room"), times=1)
    w.api.fail("POST", "pods", refusal(403, "Forbidden", "no quota"), times=1)
    calls = await w.fail(r"^\[no room, no quota\]$", AggregateError)
    assert calls == [CREATE, CREATE]
