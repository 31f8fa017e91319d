"""ControllerRevisions: their names, hashes and bytes, and what is asked of the server."""

import msgspec
import pytest

from kcm.api.errors import StatusError, is_conflict
from kcm.api.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from kcm.api.selectors import EVERYTHING, selector_of
from kcm.api.types.meta import LabelSelector, ObjectMeta
from kcm.controllers.history import (
    CONTROLLER_REVISION_INDEX,
    History,
    controller_revision_index,
    hash_revision,
    revision_name,
    same_data,
)
from kcm.informers.shared_informer import SharedInformer
from tests.clocks import FakeClock
from tests.unit.fakes import NAMESPACE, refusal
from tests.unit.stateful_set_world import NodeApi, make_revision, reference_to_set, revision_document

OWNER = ObjectMeta(name="web", namespace=NAMESPACE, uid="uid-web", annotations={"note": "kept"})
DB = (
    '{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"env":[{"name":"X",'
    '"value":"a\\u003cb\\u003e\\u0026c é"}],"image":"pg:1","imagePullPolicy":"IfNotPresent","name":"c","resources":'
    '{"requests":{"cpu":"500m"}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],'
    '"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},'
    '"terminationGracePeriodSeconds":30}}}}'
).encode()


class Place:
    """A server, a cache of revisions and the history over both."""

    def __init__(self) -> None:
        self.api = NodeApi(FakeClock())
        self.informer = SharedInformer(self.api, CONTROLLER_REVISIONS)
        self.informer.add_index(CONTROLLER_REVISION_INDEX, controller_revision_index)
        self.history = History(self.api, self.informer.store, STATEFUL_SETS)

    async def create(self, data: bytes = DB, collision_count: int = 0) -> tuple[str, int]:
        made, count = await self.history.create(
            OWNER, labels={"app": "db"}, data=data, number=4, collision_count=collision_count
        )
        return made.metadata.name, count


@pytest.mark.row("S-058", "S-061")
def test_hashes_of_no_bytes_and_of_data() -> None:
    assert hash_revision(b"", None) == "".join("456789bcdf"[int(digit)] for digit in "2166136261")
    assert hash_revision(b"a", None) == "".join("456789bcdf"[int(digit)] for digit in "84696446")
    assert [hash_revision(DB, count) for count in (0, 1, 2)] == ["76d7d7f9c8", "76d7d7f9c9", "76d7d7f9c6"]
    assert hash_revision(DB, None) != hash_revision(DB, 0)


@pytest.mark.row("S-059", "S-061")
def test_names_are_cut_to_leave_room() -> None:
    assert revision_name("db", "76d7d7f9c8") == "db-76d7d7f9c8"
    assert revision_name("a" * 240, "x" * 10) == "a" * 223 + "-" + "x" * 10


@pytest.mark.row("S-063", "S-202")
async def test_a_revision_is_posted_with_its_bytes() -> None:
    place = Place()
    assert await place.create() == ("web-76d7d7f9c8", 0)
    sent = place.api.bodies["POST controllerrevisions"]
    assert DB in sent
    assert msgspec.json.decode(sent) == {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "web-76d7d7f9c8",
            "labels": {"app": "db", "controller.kubernetes.io/hash": "76d7d7f9c8"},
            "annotations": {"note": "kept"},
            "ownerReferences": [reference_to_set()],
        },
        "data": msgspec.json.decode(DB),
        "revision": 4,
    }


@pytest.mark.row("S-072", "S-073")
async def test_a_taken_name_is_used_or_passed_over() -> None:
    place = Place()
    for count in (0, 1):
        name = f"web-{hash_revision(DB, count)}"
        place.api.seed(CONTROLLER_REVISIONS, revision_document("other:1", name=name, owner=None))
    wanted = f"web-{hash_revision(DB, 2)}"
    assert await place.create() == (wanted, 2)
    calls = [
        call
        for count in (0, 1)
        for call in ("POST controllerrevisions", f"GET controllerrevisions/web-{hash_revision(DB, count)}")
    ]
    assert place.api.take_calls() == [*calls, "POST controllerrevisions"]
    made = place.api.one(CONTROLLER_REVISIONS, wanted)
    assert made.metadata.labels["controller.kubernetes.io/hash"] == hash_revision(DB, 0)

    assert await place.create() == (wanted, 2), "the one with the same data is found again"
    assert await place.create(collision_count=2) == (wanted, 2)
    assert place.api.take_calls()[-2:] == ["POST controllerrevisions", f"GET controllerrevisions/{wanted}"]


@pytest.mark.row("S-072")
async def test_a_taken_name_that_cannot_be_read_is_an_error() -> None:
    place = Place()
    await place.create()
    place.api.fail("GET", "controllerrevisions/.*", refusal(404, "NotFound", "gone again"))
    with pytest.raises(StatusError, match="gone again"):
        await place.create()
    place.api.fail("POST", "controllerrevisions", refusal(403, "Forbidden", "no"))
    with pytest.raises(StatusError, match="no"):
        await place.create()


@pytest.mark.row("S-076", "S-077")
async def test_renumbering_is_one_put_of_the_whole() -> None:
    place = Place()
    document = revision_document("web:1", number=2)
    document["metadata"] |= {"annotations": {"note": "kept"}, "managedFields": [{"manager": "x"}]}
    document["fieldOfTheFuture"] = 7
    data = msgspec.json.encode(document["data"])
    revision = place.api.seed(CONTROLLER_REVISIONS, document)
    written = await place.history.renumber(revision, 5)
    assert (written.revision, written.metadata.name) == (5, revision.metadata.name)
    (call,) = place.api.calls
    expected = {**document, "revision": 5}
    assert {key: value for key, value in call.body.items() if key != "metadata"} == {
        key: value for key, value in expected.items() if key != "metadata"
    }
    assert call.body["metadata"] == {
        **{key: value for key, value in document["metadata"].items() if key != "managedFields"},
        **{key: call.body["metadata"][key] for key in ("resourceVersion", "generation", "creationTimestamp")},
    }
    assert data in place.api.bodies[str(call)]
    with pytest.raises(StatusError) as caught:
        await place.history.renumber(revision, 6)
    assert is_conflict(caught.value)
    assert len(place.api.calls) == 2


def test_the_bytes_of_data_survive_reading() -> None:
    data = b'{"spec": {"template":{"a":"\\u003c\\u00e9","n":9007199254740993}}}'
    read = CONTROLLER_REVISIONS.decode(b'{"metadata":{"name":"r"},"data":' + data + b',"revision":1}')
    assert read.data == data
    assert data in msgspec.json.encode(read.document())


@pytest.mark.row("S-202")
def test_the_layout_of_data_does_not_count() -> None:
    assert same_data(DB, DB)
    assert same_data(DB, msgspec.json.format(DB, indent=2))
    assert same_data(DB, msgspec.json.encode(msgspec.json.decode(DB)))
    assert not same_data(DB, DB.replace(b"pg:1", b"pg:2"))


@pytest.mark.row("S-065", "S-008")
async def test_listed_are_own_ones_and_orphans_by_age() -> None:
    place = Place()

    def seed(name: str, number: int, owner: str | None, created: str, labels: dict[str, str] | None = None) -> None:
        document = revision_document(number=number, name=name, owner=owner)
        document["metadata"]["creationTimestamp"] = created
        if labels is not None:
            document["metadata"]["labels"] = labels
        place.api.seed(CONTROLLER_REVISIONS, document)

    seed("third", 2, "web", "2026-01-02T00:00:00Z")
    seed("fifth", 10, "web", "2026-01-01T00:00:00Z")
    seed("second", 2, None, "2026-01-01T00:00:00Z")
    seed("fourth-b", 3, "web", "2026-01-01T00:00:00Z")
    seed("fourth-a", 3, None, "2026-01-01T00:00:00Z")
    seed("first", 1, "web", "2026-01-09T00:00:00Z")
    seed("foreign", 1, "other", "2026-01-01T00:00:00Z")
    seed("unselected", 1, "web", "2026-01-01T00:00:00Z", {"app": "else"})
    await place.api.deliver([place.informer])
    selector = selector_of(LabelSelector(match_labels={"app": "web"}))
    names = [revision.metadata.name for revision in place.history.list(OWNER, selector)]
    assert names == ["first", "second", "third", "fourth-a", "fourth-b", "fifth"]
    namesake = ObjectMeta(name="web", namespace=NAMESPACE, uid="another")
    assert [revision.metadata.name for revision in place.history.list(namesake, EVERYTHING)] == ["second", "fourth-a"]


@pytest.mark.row("S-008")
def test_index_keys_are_those_of_pods() -> None:
    assert list(controller_revision_index(make_revision())) == ["ns/StatefulSet/web/uid-web"]
    assert list(controller_revision_index(make_revision(owner=None))) == ["ns"]


@pytest.mark.row("S-044")
async def test_adoption_is_a_small_patch() -> None:
    place = Place()
    orphan = place.api.seed(CONTROLLER_REVISIONS, revision_document(owner=None))
    await place.history.adopt(OWNER, orphan)
    target = f"PATCH controllerrevisions/{orphan.metadata.name}"
    reference = (
        '{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"uid-web",'
        '"controller":true,"blockOwnerDeletion":true}'
    )
    assert place.api.bodies[target].decode() == (
        f'{{"metadata":{{"ownerReferences":[{reference}],"uid":"{orphan.metadata.uid}"}}}}'
    )
