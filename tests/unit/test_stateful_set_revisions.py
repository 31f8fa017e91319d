"""Choosing revisions, and cutting history."""

from typing import Any

import pytest

from kcm.api.errors import AggregateError, StatusError
from kcm.api.pod_template import equal_with_defaults, revision_data
from kcm.api.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from kcm.api.types.meta import Document
from kcm.controllers.history import hash_revision, revision_name
from kcm.controllers.ref_manager import AdoptionError
from kcm.controllers.statefulset.revisions import latest_equal, surplus_history
from tests.unit.fakes import pod_template, refusal
from tests.unit.stateful_set_world import (
    R1,
    R2,
    STATUS,
    StatefulSetWorld,
    make_revision,
    name_of,
    reference_to_set,
    revision_document,
    running,
    stateful_set_document,
)

NEW_REVISION = "POST controllerrevisions"
READ_SET = "GET statefulsets/web"
R3 = name_of("web:3")


def stored(w: StatefulSetWorld) -> dict[str, int]:
    """The numbers of the stored revisions, by name."""
    return {revision.metadata.name: revision.revision for revision in w.api.all(CONTROLLER_REVISIONS)}


@pytest.mark.row("S-062", "S-061")
def test_the_name_of_a_known_template() -> None:
    template = pod_template("nginx:1.27", app="web")
    template["spec"]["containers"][0]["name"] = "nginx"
    data = revision_data({"spec": {"template": template}})
    names = [revision_name("web", hash_revision(data, collisions)) for collisions in (0, 1)]
    assert names == ["web-7c44b75699", "web-7c44b75698"]


@pytest.mark.row("S-066")
async def test_an_equal_latest_revision_is_kept_whatever_else_it_says() -> None:
    w = await running()
    w.api.change(CONTROLLER_REVISIONS, R1, lambda document: document["metadata"].update(annotations={"note": "new"}))
    w.api.change(STATEFUL_SETS, "web", lambda document: document["metadata"].update(annotations={"note": "newer"}))
    assert await w.sync() == []


@pytest.mark.row("S-063", "S-064", "S-071")
async def test_a_new_template_gets_a_new_revision() -> None:
    w = await running(pods=3, metadata={"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}})
    w.edit(template=pod_template("web:2", app="web", extra="label"))
    assert (await w.sync())[0] == NEW_REVISION
    (name,) = stored(w).keys() - {R1}
    made = w.api.one(CONTROLLER_REVISIONS, name)
    assert made.revision == 2
    assert made.metadata.labels.keys() == {"app", "extra", "controller.kubernetes.io/hash"}
    assert made.metadata.annotations == {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert w.named == (R1, name)
    assert await w.sync() == [STATUS], "a template that was seen needs nothing"


@pytest.mark.row("S-064", "S-078")
async def test_the_first_revision_is_number_1_and_also_the_current_one() -> None:
    w = StatefulSetWorld()
    await w.have(stateful_set_document())
    assert await w.sync() == [NEW_REVISION, "POST pods", STATUS]
    assert stored(w) == {R1: 1}
    assert w.named == (R1, R1)


@pytest.mark.row("S-201", "S-067", "S-077")
async def test_a_template_of_before_takes_its_revision_along() -> None:
    w = await running()
    await w.have(revision_document("web:2", number=2), revision_document("web:3", number=3))
    w.set_image("web:2")
    assert (await w.sync())[0] == f"PUT controllerrevisions/{R2}"
    assert stored(w) == {R1: 1, R2: 4, R3: 3}
    assert w.named == (R1, R2)


@pytest.mark.row("S-067")
def test_of_equal_revisions_the_latest_counts() -> None:
    revisions = [make_revision("web:1", name="a"), make_revision("web:1", name="b"), make_revision("web:2")]
    assert latest_equal(revisions, revisions[0].data) is revisions[1]
    assert latest_equal(revisions, make_revision("web:9").data) is None
    assert latest_equal([], b"{}") is None


@pytest.mark.row("S-076", "S-080")
async def test_renumbering_that_fails_ends_the_sync_after_one_put() -> None:
    w = await running(revisionHistoryLimit=0)
    await w.have(revision_document("web:2", number=2), revision_document("web:3", number=3))
    w.set_image("web:2")
    w.api.fail("PUT", "controllerrevisions/.*", refusal(409, "Conflict", "changed"))
    calls = await w.fail("^changed$", StatusError)
    # Nobody says which revisions are in use, but pods do.
    deletions = [f"DELETE controllerrevisions/{name}" for name in (R2, R3)]
    assert calls == [f"PUT controllerrevisions/{R2}", *deletions]


@pytest.mark.row("S-078")
async def test_a_current_revision_that_is_gone_is_the_update_revision() -> None:
    w = await running()
    w.api.remove(CONTROLLER_REVISIONS, R1)
    w.set_image("web:2")
    assert (await w.sync())[0] == NEW_REVISION
    assert w.named == (R2, R2)


def older(document: Document, **template: Any) -> Document:
    """A revision as an older server stored it."""
    spec = {key: value for key, value in document["data"]["spec"]["template"].items() if key != "$patch"}
    spec["metadata"] = {"creationTimestamp": None, **spec["metadata"]}
    spec["spec"] = {key: value for key, value in spec["spec"].items() if key != "schedulerName"}
    document["data"] = {"spec": {"template": {**spec, **template, "$patch": "replace"}}}
    return document


async def upgraded(**options: Any) -> StatefulSetWorld:
    """A complete set whose revision was stored by an older server."""
    w = StatefulSetWorld(**options)
    counts = dict.fromkeys(("replicas", "availableReplicas"), 0)
    status = {**counts, "currentRevision": R1, "updateRevision": R1, "observedGeneration": 1, "collisionCount": 0}
    await w.have(stateful_set_document(replicas=0, status=status), older(revision_document()))
    return w


@pytest.mark.row("S-068")
async def test_a_revision_of_an_older_server_is_kept() -> None:
    w = await upgraded(same_template=equal_with_defaults)
    assert await w.sync() == []
    w.set_image("web:2")
    assert (await w.sync())[0] == NEW_REVISION


@pytest.mark.row("S-068", "S-011")
async def test_without_semantic_comparison_it_is_not() -> None:
    w = await upgraded()
    assert await w.sync() == [NEW_REVISION, f"GET controllerrevisions/{R1}", NEW_REVISION, STATUS]
    assert w.status["collisionCount"] == 1
    assert w.named == (name_of(collisions=1),) * 2


@pytest.mark.row("S-068")
async def test_only_the_last_revision_is_compared_semantically() -> None:
    compared = []

    def same(current: Document, revision: Document) -> bool:
        compared.append(revision["spec"]["containers"][0]["image"])
        return True

    w = await upgraded(same_template=same)
    await w.have(revision_document("web:2", number=2))
    assert await w.sync() == [STATUS]
    assert compared == ["web:2"]
    assert w.named == (R2, R2)


@pytest.mark.row("S-069")
async def test_a_match_is_remembered_and_a_difference_is_not() -> None:
    answers, asked = [False, True], []

    def same(_current: Document, _revision: Document) -> bool:
        asked.append(answers[0])
        return answers.pop(0)

    w = await upgraded(same_template=same)
    w.api.fail("POST", "controllerrevisions", refusal(403, "Forbidden", "not now"))
    await w.fail("not now")
    assert await w.sync() == []
    assert await w.sync() == []
    assert asked == [False, True]
    w.edit(minReadySeconds=1)
    answers.append(True)
    assert await w.sync() == [STATUS]
    assert asked == [False, True, True], "the generation is another one"
    w.api.change(CONTROLLER_REVISIONS, R1, lambda document: document["metadata"].update(annotations={"a": "b"}))
    answers.append(True)
    assert await w.sync() == []
    assert len(asked) == 4, "the revision has another version"


@pytest.mark.row("S-069")
async def test_a_comparison_that_fails_is_no_match() -> None:
    def same(_current: Document, _revision: Document) -> bool:
        raise ValueError("no template")

    w = await upgraded(same_template=same)
    assert (await w.sync())[0] == NEW_REVISION


@pytest.mark.row("S-069")
async def test_no_more_matches_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcm.controllers.statefulset.revisions.MAX_REMEMBERED", 2)
    asked: list[str] = []

    def same(_current: Document, revision: Document) -> bool:
        asked.append(revision["spec"]["containers"][0]["image"])
        return True

    w = StatefulSetWorld(same_template=same)
    for name in ("a", "b", "c"):
        selector = {"matchLabels": {"app": "web", "set": name}}
        revision = older(revision_document(f"web:{name}", name=f"{name}-1", owner=name))
        revision["metadata"]["labels"] |= {"set": name}
        await w.have(stateful_set_document(name, replicas=0, selector=selector), revision)
    for name in ("a", "b", "a", "c", "a", "b"):
        await w.sync(f"ns/{name}")
    assert asked == ["web:a", "web:b", "web:c", "web:b"], "the least recently used one is forgotten first"


@pytest.mark.row("S-074", "S-072")
async def test_the_raised_collision_count_goes_into_the_status() -> None:
    w = StatefulSetWorld()
    await w.have(stateful_set_document(), revision_document("foreign:1", name=R1, owner="other"))
    assert (await w.sync())[:3] == [NEW_REVISION, f"GET controllerrevisions/{R1}", NEW_REVISION]
    assert w.status["collisionCount"] == 1
    assert w.named == (name_of(collisions=1),) * 2


@pytest.mark.row("S-075", "S-083")
async def test_a_revision_that_the_cache_lacks_is_found_again() -> None:
    w = await running()
    w.set_image("web:2")
    await w.sync()
    await w.api.deliver([w.stateful_sets, w.pods, w.claims])
    calls = await w.sync_stale()
    assert calls[:2] == [NEW_REVISION, f"GET controllerrevisions/{R2}"]
    assert w.status["collisionCount"] == 0
    assert stored(w) == {R1: 1, R2: 2}


@pytest.mark.row("S-079", "S-204")
async def test_new_pods_have_the_template_of_their_revision_and_the_claims_of_now() -> None:
    w = await running(pods=1, partition=2, claims=("data",))
    w.set_image("web:2")
    w.edit(volumeClaimTemplates=[{"metadata": {"name": "logs"}, "spec": {}}], podManagementPolicy="Parallel")
    await w.sync()
    images = {}
    for ordinal in (1, 2):
        document = w.api.one(PODS, f"web-{ordinal}")
        images[ordinal] = (w.revision_of(ordinal), [volume.name for volume in document.spec.volumes])
    assert images == {1: (R1, ["logs"]), 2: (R2, ["logs"])}
    bodies = [call.body for call in w.api.calls if str(call) == "POST pods"]
    assert [body["spec"]["containers"][0]["image"] for body in bodies] == ["web:1", "web:2"]


# Adoption


@pytest.mark.row("S-042", "S-043", "S-044", "S-045")
async def test_orphans_that_match_are_adopted_after_one_live_read() -> None:
    w = await running()
    await w.have(
        revision_document("web:8", number=8, name="orphan-a", owner=None),
        revision_document("web:9", number=9, name="stray-b", owner=None),
    )
    calls = await w.sync()
    assert calls[:3] == [READ_SET, "PATCH controllerrevisions/orphan-a", "PATCH controllerrevisions/stray-b"]
    assert calls[3] == f"PUT controllerrevisions/{R1}", "orphans take part as if owned"
    assert stored(w)[R1] == 10
    adopted = w.api.one(CONTROLLER_REVISIONS, "orphan-a").document()["metadata"]["ownerReferences"]
    assert adopted == [reference_to_set()]
    assert READ_SET not in await w.sync()


@pytest.mark.row("S-045")
async def test_the_first_adoption_that_fails_ends_the_sync() -> None:
    w = await running()
    await w.have(
        revision_document("web:8", number=8, name="orphan-a", owner=None),
        revision_document("web:9", number=9, name="stray-b", owner=None),
    )
    w.api.fail("PATCH", ".*", refusal(404, "NotFound", "gone"))
    assert await w.fail("^gone$") == [READ_SET, "PATCH controllerrevisions/orphan-a"]


@pytest.mark.row("S-043", "S-038")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"uid": "another"},
            "can't recheck DeletionTimestamp: original StatefulSet ns/web is gone: got uid another, wanted uid-web",
        ),
        (
            {"deletionTimestamp": "2026-01-02T03:04:05Z"},
            "ns/web has just been deleted at 2026-01-02 03:04:05 +0000 UTC",
        ),
    ],
)
async def test_a_set_that_is_gone_adopts_nothing(change: Document, text: str) -> None:
    w = await running()
    await w.have(revision_document("web:8", number=8, name="orphan-a", owner=None))
    w.api.change(STATEFUL_SETS, "web", lambda document: document["metadata"].update(change))
    w.api.calls.clear()
    with pytest.raises(AdoptionError) as caught:
        await w.sync_stale()
    assert str(caught.value) == f"can't adopt ControllerRevisions: {text}"
    assert w.api.take_calls() == [READ_SET]
    if "deletionTimestamp" in change:
        assert await w.fail("just been deleted") == [READ_SET], "as long as there is an orphan"


@pytest.mark.row("S-043")
async def test_a_set_that_cannot_be_read_adopts_nothing() -> None:
    w = await running()
    await w.have(revision_document("web:8", number=8, name="orphan-a", owner=None))
    w.api.fail("GET", "statefulsets/web", refusal(500, "InternalError", "broken"))
    await w.fail("^can't adopt ControllerRevisions: can't recheck DeletionTimestamp: broken$")


# History


@pytest.mark.row("S-081", "S-082")
def test_the_oldest_surplus_history_goes() -> None:
    revisions = [make_revision(f"web:{number}", number=number) for number in range(6)]
    live = {revisions[0].metadata.name, revisions[4].metadata.name}
    history = [revisions[index] for index in (1, 2, 3, 5)]
    assert surplus_history(revisions, live, 4) == []
    assert surplus_history(revisions, live, 3) == history[:1]
    assert surplus_history(revisions, live, 0) == history
    assert surplus_history(revisions, live, -1) == []


async def with_history(**options: Any) -> StatefulSetWorld:
    """A complete set of revision 1, with four later revisions, whose template is that of the last of them."""
    w = await running(**options)
    for number in range(2, 6):
        await w.have(revision_document(f"web:{number}", number=number))
    w.set_image("web:5")
    return w


@pytest.mark.row("S-081", "S-082", "S-084")
async def test_history_beyond_the_limit_is_deleted_after_the_status() -> None:
    w = await with_history(revisionHistoryLimit=1)
    w.api.change(
        PODS, "web-2", lambda document: document["metadata"]["labels"].update({"controller-revision-hash": R3})
    )
    calls = await w.sync()
    # In use are 1 (two pods, the current one), 3 (a pod) and 5 (the update revision).
    assert calls == ["DELETE pods/web-2", STATUS, f"DELETE controllerrevisions/{R2}"]
    assert await w.sync() == [STATUS]


@pytest.mark.row("S-084", "S-085", "S-188")
async def test_a_deletion_of_history_that_fails_fails_the_sync() -> None:
    w = await with_history(revisionHistoryLimit=0)
    w.api.fail("DELETE", "controllerrevisions/.*", refusal(404, "NotFound", "gone"))
    assert await w.fail("^gone$") == ["DELETE pods/web-2", STATUS, f"DELETE controllerrevisions/{R2}"]


@pytest.mark.row("S-084")
async def test_errors_of_acting_and_of_history_are_one() -> None:
    w = await with_history(revisionHistoryLimit=0)
    w.api.fail("DELETE", "pods/.*", refusal(500, "InternalError", "no pod"))
    w.api.fail("DELETE", "controllerrevisions/.*", refusal(500, "InternalError", "no history"))
    calls = await w.fail(r"^\[no pod, no history\]$", AggregateError)
    assert calls[-1] == f"DELETE controllerrevisions/{R2}"
    w.api.fail("DELETE", ".*", refusal(500, "InternalError", "down"), times=2)
    await w.fail("^down$", AggregateError)
