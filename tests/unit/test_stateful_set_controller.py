"""Which keys the StatefulSet controller syncs when, and what comes before and after acting."""

from collections.abc import Callable

import pytest

from kcm.api.errors import AggregateError
from kcm.api.resources import PODS, STATEFUL_SETS
from kcm.api.types.meta import Document, format_time
from kcm.consistency import ConsistencyError
from kcm.informers.store import Tombstone
from tests.clocks import START
from tests.unit.fakes import owner_reference, refusal
from tests.unit.stateful_set_world import (
    KEY,
    STATUS,
    StatefulSetWorld,
    claim_document,
    name_of,
    reference_to_set,
    revision_document,
    running,
    stateful_pod_document,
    stateful_set_document,
)

CREATE = "POST pods"
READ_SET = "GET statefulsets/web"
OTHER = "ns/other"


async def woken(w: StatefulSetWorld) -> list[str]:
    """The keys added by what the caches now get to see."""
    w.queue.added.clear()
    await w.deliver()
    return w.queue.added


# Handlers


@pytest.mark.row("S-012", "S-013", "S-014")
async def test_whatever_happens_to_a_set_wakes_it() -> None:
    w = StatefulSetWorld()
    w.api.seed(STATEFUL_SETS, stateful_set_document())
    assert await woken(w) == [KEY]
    w.edit(replicas=4)
    assert await woken(w) == [KEY]
    known = w.stateful_sets.store.get(KEY)
    assert known is not None
    w.queue.added.clear()
    w.controller._stateful_set_updated(known, known)
    assert w.queue.added == [KEY], "a resync too"
    w.api.remove(STATEFUL_SETS, "web")
    assert await woken(w) == [KEY]
    w.queue.added.clear()
    w.controller._stateful_set_deleted(Tombstone(KEY, known))
    assert w.queue.added == [KEY]


@pytest.mark.row("S-014", "S-029", "S-031")
async def test_the_handler_forgets_no_writes_and_the_sync_of_a_vanished_set_does() -> None:
    w = await running(pods=1, consistent=True)
    assert CREATE in await w.sync()
    w.api.remove(STATEFUL_SETS, "web")
    await w.api.deliver([w.stateful_sets])
    with pytest.raises(ConsistencyError):
        await w.sync_stale()
    await w.deliver()
    assert await w.sync_stale() == []
    w.controller._consistency.wrote_at(KEY, "whoever", "pods", "999999")
    w.controller._consistency.clear(KEY, "somebody else")
    with pytest.raises(ConsistencyError):
        await w.sync_stale()


@pytest.mark.row("S-015", "S-016", "S-023", "S-024")
async def test_pods_wake_the_set_that_controls_them() -> None:
    w = await running(pods=0)
    await w.have(stateful_set_document("other"))
    w.api.seed(PODS, stateful_pod_document(0))
    assert await woken(w) == [KEY], "and none of the others that select it"
    w.api.seed(PODS, stateful_pod_document(1, deleted=True))
    assert await woken(w) == [KEY]
    w.finish(0)
    assert await woken(w) == [KEY]
    pod = w.pods.store.get("ns/web-1")
    assert pod is not None
    w.queue.added.clear()
    w.controller._pod_deleted(Tombstone("ns/web-1", pod))
    assert w.queue.added == [KEY]


@pytest.mark.row("S-016", "S-024", "S-023")
@pytest.mark.parametrize(
    "owner",
    [
        owner_reference("web", kind="ReplicaSet"),
        owner_reference("web", kind="StatefulSet", uid="an earlier one"),
        owner_reference("nobody", kind="StatefulSet"),
    ],
)
async def test_references_that_mean_nobody_wake_nobody(owner: Document) -> None:
    w = await running(pods=0)
    document = stateful_pod_document(0)
    document["metadata"]["ownerReferences"] = [owner]
    w.api.seed(PODS, document)
    assert await woken(w) == []
    w.api.change(PODS, "web-0", relabel("new"))
    assert await woken(w) == []
    w.finish(0)
    assert await woken(w) == []


@pytest.mark.row("S-024")
async def test_the_group_of_a_reference_does_not_count() -> None:
    w = await running(pods=0)
    document = stateful_pod_document(0)
    document["metadata"]["ownerReferences"] = [reference_to_set(apiVersion="other.example.com/v7")]
    w.api.seed(PODS, document)
    assert await woken(w) == [KEY]


def relabel(value: str) -> Callable[[Document], None]:
    return lambda document: document["metadata"]["labels"].update(mine=value)


@pytest.mark.row("S-017", "S-022", "S-025")
async def test_orphans_wake_all_sets_that_select_them() -> None:
    w = await running(pods=0)
    await w.have(
        stateful_set_document("other"),
        stateful_set_document("elsewhere", metadata={"namespace": "elsewhere"}),
        stateful_set_document("all", selector={}),
        stateful_set_document("none", selector=None),
        stateful_set_document("bad", selector={"matchExpressions": [{"key": "app", "operator": "Like"}]}),
        stateful_set_document("different", selector={"matchLabels": {"app": "else"}}),
    )
    w.api.seed(PODS, stateful_pod_document(owner=None, name="anything"))
    assert await woken(w) == [KEY, OTHER]
    w.api.change(PODS, "anything", lambda document: document["status"].update(phase="Failed"))
    assert await woken(w) == [], "only labels and owner count"
    w.api.change(PODS, "anything", relabel("new"))
    assert await woken(w) == [KEY, OTHER]
    w.api.seed(PODS, stateful_pod_document(owner=None, name="bare", labels={}))
    assert await woken(w) == []


@pytest.mark.row("S-023")
async def test_deleted_orphans_wake_nobody() -> None:
    w = await running(pods=0)
    w.api.seed(PODS, stateful_pod_document(owner=None))
    w.api.seed(PODS, stateful_pod_document(1, owner=None, deleted=True))
    assert await woken(w) == [KEY], "for the one that is not being deleted"
    w.finish(0, 1)
    assert await woken(w) == []


@pytest.mark.row("S-018", "S-020")
async def test_updates_count_if_the_version_is_another_one() -> None:
    w = await running(pods=1)
    pod = w.pods.store.get("ns/web-0")
    assert pod is not None
    w.controller._pod_updated(pod, pod)
    assert w.queue.added == []
    w.api.change(PODS, "web-0", lambda document: document["metadata"].update(annotations={"any": "change"}))
    assert await woken(w) == [KEY]


@pytest.mark.row("S-019", "S-022")
async def test_a_pod_that_is_passed_on_wakes_both_owners() -> None:
    w = await running(pods=1)
    await w.have(stateful_set_document("other"))
    to_other = owner_reference("other", kind="StatefulSet")
    w.api.change(PODS, "web-0", lambda document: document["metadata"].update(ownerReferences=[to_other]))
    assert await woken(w) == [KEY, OTHER]
    w.api.change(PODS, "web-0", lambda document: document["metadata"].pop("ownerReferences"))
    assert await woken(w) == [OTHER, KEY, OTHER], "the one that had it, and those that may want it"
    partial = {**reference_to_set(), "blockOwnerDeletion": False}
    w.api.change(PODS, "web-0", lambda document: document["metadata"].update(ownerReferences=[partial]))
    await woken(w)
    w.api.change(PODS, "web-0", lambda document: document["metadata"].update(ownerReferences=[reference_to_set()]))
    assert await woken(w) == [KEY, KEY], "any field of the reference counts"


@pytest.mark.row("S-021")
@pytest.mark.parametrize(("seconds", "delays"), [(30, [(KEY, 30)]), (0, [])])
async def test_a_pod_that_becomes_ready_wakes_its_set_again_later(
    seconds: int, delays: list[tuple[str, float]]
) -> None:
    w = await running(pods=0, minReadySeconds=seconds)
    await w.have(stateful_pod_document(0, ready=False))
    w.run(0)
    assert await woken(w) == [KEY]
    assert w.queue.delayed == delays
    w.api.change(PODS, "web-0", relabel("new"))
    await woken(w)
    assert w.queue.delayed == delays


@pytest.mark.row("S-026", "S-122")
async def test_claims_and_revisions_wake_nobody() -> None:
    w = await running(claims=("data",))
    await w.have(claim_document("data-web-9"), revision_document("web:9", number=9))
    assert await woken(w) == []
    w.api.seed(STATEFUL_SETS, stateful_set_document("other"))
    assert await woken(w) == [OTHER]


# Sync


@pytest.mark.row("S-027", "S-050")
async def test_the_order_of_a_sync() -> None:
    w = await running(pods=2)
    await w.have(
        revision_document("web:9", number=9, owner=None),
        stateful_pod_document(2, owner=None),
        stateful_pod_document(7, owner=None),
    )
    w.set_image("web:2")
    w.edit(revisionHistoryLimit=0)
    assert await w.sync() == [
        READ_SET,
        f"PATCH controllerrevisions/{name_of('web:9')}",
        READ_SET,
        "PATCH pods/web-2",
        "PATCH pods/web-7",
        "POST controllerrevisions",
        "DELETE pods/web-7",
        STATUS,
        f"DELETE controllerrevisions/{name_of('web:9')}",
    ]


@pytest.mark.row("S-028")
async def test_every_error_is_retried_for_ever() -> None:
    w = await running(pods=1)
    for error in (
        refusal(409, "Conflict"),
        refusal(403, "Forbidden", "going", "NamespaceTerminating"),
        refusal(403, "Forbidden", "quota"),
        refusal(404, "NotFound"),
    ):
        w.api.fail("POST", "pods", error)
        await w.controller.process(KEY)
    await w.controller.process("not/a/key")
    assert w.queue.rate_limited == [KEY] * 4 + ["not/a/key"]
    assert w.queue.forgotten == []
    await w.controller.process(KEY)
    assert w.queue.forgotten == [KEY]


@pytest.mark.row("S-029")
async def test_a_set_that_is_not_there_costs_nothing() -> None:
    w = StatefulSetWorld(consistent=True)
    assert await w.sync() == []


@pytest.mark.row("S-030")
async def test_an_invalid_selector_is_no_error_and_does_nothing() -> None:
    w = await running(selector={"matchExpressions": [{"key": "app", "operator": "Like"}]})
    w.edit(replicas=9)
    assert await w.sync() == []


@pytest.mark.row("S-030", "S-048")
async def test_no_selector_selects_nothing_and_an_empty_one_all() -> None:
    w = await running(replicas=1, selector=None)
    assert (await w.fail("already exists"))[0] == "PATCH pods/web-0"
    w = await running(replicas=1, selector={})
    await w.have(stateful_pod_document(1, owner=None, labels={"app": "else"}))
    assert (await w.sync())[:2] == [READ_SET, "PATCH pods/web-1"]


@pytest.mark.row("S-031", "S-032", "S-033")
@pytest.mark.parametrize(
    ("behind", "resource", "name", "group"),
    [
        ("pods", "pods", "pods", ""),
        ("claims", "persistentvolumeclaims", "persistentvolumeclaims", ""),
        ("stateful_sets", "statefulsets.apps", "statefulsets", "apps"),
    ],
)
async def test_a_sync_waits_for_what_the_last_one_wrote(behind: str, resource: str, name: str, group: str) -> None:
    w = await running(pods=0, replicas=1, claims=("data",), consistent=True)
    w.api.change(STATEFUL_SETS, "web", lambda document: document["status"].update(readyReplicas=1))
    assert await w.sync() == ["POST persistentvolumeclaims", CREATE, STATUS]
    await w.api.deliver([informer for informer in w.informers if informer is not getattr(w, behind)])
    with pytest.raises(
        ConsistencyError, match=rf"is not as new as written version: \d+ for group resource {resource}$"
    ):
        await w.sync_stale()
    assert w.api.take_calls() == []
    series = f'statefulset_controller_stale_sync_skips_total{{group="{group}",resource="{name}"}} 1'
    assert series in w.metrics.render().decode()
    await w.deliver()
    assert await w.sync_stale() == [STATUS]


@pytest.mark.row("S-031")
async def test_what_was_written_to_revisions_or_deleted_is_not_waited_for() -> None:
    w = await running(consistent=True)
    w.set_image("web:2")
    assert await w.sync() == ["POST controllerrevisions", "DELETE pods/web-2", STATUS]
    await w.api.deliver([w.stateful_sets])
    assert (await w.sync_stale())[0] == "POST controllerrevisions"
    await w.deliver()
    await w.sync_stale()


@pytest.mark.row("S-031", "S-049")
async def test_adoption_is_waited_for_and_release_is_not() -> None:
    for pod, waits in (
        (stateful_pod_document(2, owner=None), True),
        (stateful_pod_document(2, labels={"app": "else"}), False),
    ):
        w = await running(pods=2, replicas=2, consistent=True)
        await w.have(pod)
        w.api.fail("PUT", ".*", refusal(500, "InternalError", "no status"))
        w.api.fail("DELETE", ".*", refusal(500, "InternalError", "no status"))
        if waits:
            assert (await w.fail("no status"))[:2] == [READ_SET, "PATCH pods/web-2"]
            with pytest.raises(ConsistencyError):
                await w.sync_stale()
        else:
            assert await w.sync() == ["PATCH pods/web-2"]
            assert await w.sync_stale() == ["PATCH pods/web-2"]


@pytest.mark.row("S-034")
async def test_a_pod_whose_deletion_the_cache_lacks_is_deleted_again() -> None:
    w = await running(replicas=1)
    w.edit(replicas=0)
    await w.deliver()
    w.api.fail("PUT", "statefulsets/.*", refusal(500, "InternalError", "no"))
    await w.fail("no")
    w.finish(0)
    calls = await w.sync_stale()
    assert calls == ["DELETE pods/web-0", STATUS]
    assert w.reasons == ["SuccessfulDelete"] * 2


@pytest.mark.row("S-035")
async def test_cached_objects_are_not_changed() -> None:
    w = await running(pods=0, claims=("data",), replicas=1, retention=("Retain", "Delete"))
    await w.have(stateful_pod_document(0, labels={"app": "web"}, claims=("data",)), claim_document("data-web-0"))
    stores = [informer.store for informer in w.informers]
    before = [(obj, repr(obj)) for store in stores for obj in store]
    assert await w.sync() == [
        "PUT persistentvolumeclaims/data-web-0",
        "GET pods/web-0",
        "PUT pods/web-0",
        "DELETE pods/web-0",
        STATUS,
    ]
    assert [repr(obj) for obj, _ in before] == [text for _, text in before]


@pytest.mark.row("S-036", "S-039", "S-040")
async def test_the_next_availability_is_looked_at_when_it_comes() -> None:
    w = await running(pods=0, replicas=2, minReadySeconds=30)
    await w.have(stateful_pod_document(0, ready_for=12), stateful_pod_document(1, ready_for=5))
    await w.sync()
    assert w.queue.delayed == [(KEY, 18.0)]
    w.clock.seconds = 40
    await w.sync()
    assert w.queue.delayed == [(KEY, 18.0)], "all are available"


@pytest.mark.row("S-039", "S-040")
async def test_without_a_known_instant_it_is_looked_at_after_min_ready_seconds() -> None:
    w = await running(replicas=1, minReadySeconds=30)
    w.api.change(PODS, "web-0", lambda document: document["status"]["conditions"][0].pop("lastTransitionTime"))
    await w.sync()
    assert w.queue.delayed == [(KEY, 30)]


@pytest.mark.row("S-039")
async def test_a_sync_with_an_error_plans_no_look() -> None:
    w = await running(replicas=1, minReadySeconds=30, revisionHistoryLimit=0)
    await w.have(revision_document("web:0", number=0))
    w.api.fail("DELETE", "controllerrevisions/.*", refusal(404, "NotFound", "gone"))
    await w.fail("gone")
    assert w.queue.delayed == []


# Adoption and release of pods


@pytest.mark.row("S-046", "S-047", "S-048", "S-049")
async def test_which_pods_are_claimed() -> None:
    w = await running(pods=0, replicas=0)
    await w.have(
        stateful_pod_document(0, phase="Failed"),
        stateful_pod_document(1, labels={"app": "else"}),
        stateful_pod_document(name="other-2"),
        stateful_pod_document(3, labels={}, deleted=True),
        stateful_pod_document(4, owner="other"),
        stateful_pod_document(5, owner=None),
        stateful_pod_document(6, owner=None, deleted=True),
        stateful_pod_document(name="other-7", owner=None),
        stateful_pod_document(8, owner=None, labels={"app": "else"}),
        stateful_pod_document(name="web-99999999999", owner=None),
    )
    calls = await w.sync()
    patched = [call.removeprefix("PATCH pods/") for call in calls if call.startswith("PATCH")]
    assert patched == ["web-1", "other-2", "web-3", "web-5", "web-99999999999"]
    assert calls.count(READ_SET) == 1
    assert w.reasons == ["SuccessfulDelete"], "of the highest one; adoption has no events"
    assert w.counters.replicas == 2


@pytest.mark.row("S-049", "S-048")
async def test_the_bodies_of_adoption_and_release() -> None:
    w = await running(pods=0, replicas=0)
    await w.have(stateful_pod_document(0, owner=None), stateful_pod_document(1, labels={"app": "else"}))
    await w.sync()
    reference = (
        '{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"uid-web",'
        '"controller":true,"blockOwnerDeletion":true}'
    )
    bodies = {call: body.decode() for call, body in w.api.bodies.items() if call.startswith("PATCH")}
    assert bodies == {
        "PATCH pods/web-0": f'{{"metadata":{{"ownerReferences":[{reference}],"uid":"uid-web-0"}}}}',
        "PATCH pods/web-1": '{"metadata":{"uid":"uid-web-1","ownerReferences":[{"$patch":"delete","uid":"uid-web"}]}}',
    }


@pytest.mark.row("S-049", "S-050", "S-051")
async def test_a_set_that_is_gone_adopts_no_pod() -> None:
    w = await running(pods=0)
    await w.have(stateful_pod_document(0, owner=None), stateful_pod_document(1, owner=None))
    w.api.change(STATEFUL_SETS, "web", lambda document: document["metadata"].update(uid="another"))
    w.api.calls.clear()
    cause = "can't recheck DeletionTimestamp: original StatefulSet ns/web is gone: got uid another, wanted uid-web"
    texts = [f"can't adopt Pod ns/web-{ordinal} (uid-web-{ordinal}): {cause}" for ordinal in (0, 1)]
    with pytest.raises(AggregateError) as caught:
        await w.sync_stale()
    assert str(caught.value) == f"[{texts[0]}, {texts[1]}]"
    assert w.api.take_calls() == [READ_SET]


@pytest.mark.row("S-051")
async def test_every_candidate_is_tried_and_nothing_else_is_done_after_an_error() -> None:
    w = await running(pods=0)
    await w.have(
        stateful_pod_document(0, owner=None),
        stateful_pod_document(1, labels={"app": "else"}),
        stateful_pod_document(2, owner=None),
    )
    w.api.fail("PATCH", "pods/web-0", refusal(403, "Forbidden", "no"))
    assert await w.fail("^no$", AggregateError) == [
        "PATCH pods/web-1",
        READ_SET,
        "PATCH pods/web-0",
        "PATCH pods/web-2",
    ]


@pytest.mark.row("S-051")
async def test_a_pod_that_is_gone_or_changed_is_ignored() -> None:
    w = await running(pods=0, replicas=0)
    await w.have(stateful_pod_document(0, owner=None), stateful_pod_document(1, labels={"app": "else"}))
    w.api.fail("PATCH", "pods/web-0", refusal(404, "NotFound"))
    w.api.fail("PATCH", "pods/web-1", refusal(422, "Invalid"))
    assert await w.sync() == ["PATCH pods/web-1", READ_SET, "PATCH pods/web-0"]
    w.api.fail("PATCH", "pods/web-1", refusal(404, "NotFound"))
    w.api.fail("PATCH", "pods/web-0", refusal(422, "Invalid", "refused"))
    await w.fail("^refused$", AggregateError)


@pytest.mark.looptime
@pytest.mark.row("S-052", "S-100")
async def test_an_adopted_pod_stays_as_it_was_cached_in_this_sync() -> None:
    w = await running(pods=0, replicas=1)
    await w.have(stateful_pod_document(0, owner=None, labels={"app": "web"}))
    put = ["GET pods/web-0", "PUT pods/web-0"]
    calls = await w.fail("has been modified")
    assert calls == [READ_SET, "PATCH pods/web-0", *put * 4, STATUS]
    assert w.counters == (1, 1, 1, 0, 0), "a pod without the label is of no revision"
    assert await w.sync() == [*put, "DELETE pods/web-0", STATUS], "it is old"


@pytest.mark.row("S-037", "S-048", "S-049")
async def test_a_set_that_is_being_deleted_adopts_and_releases_nothing() -> None:
    w = await running(pods=0, metadata={"deletionTimestamp": format_time(START)})
    await w.have(stateful_pod_document(0, owner=None), stateful_pod_document(1, labels={"app": "else"}))
    assert await w.sync() == []
