"""Creating, repairing and deleting pods, with their claims."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kcm.api.errors import AggregateError, StatusError, is_already_exists, is_conflict
from kcm.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kcm.api.types.apps import StatefulSet
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document
from kcm.controllers.statefulset.stateful_pod_control import ClaimError, StatefulPodControl
from kcm.controllers.statefulset.stateful_set_utils import new_pod_document, unborn_pod
from kcm.events.recorder import FakeRecorder
from kcm.informers.shared_informer import SharedInformer
from tests.clocks import FakeClock
from tests.unit.fakes import refusal
from tests.unit.stateful_set_world import (
    R1,
    NodeApi,
    claim_document,
    make_stateful_pod,
    make_stateful_set,
    reference_to_pod,
    reference_to_set,
    stateful_pod_document,
)

pytestmark = pytest.mark.looptime

CREATE, CREATE_CLAIM = "POST pods", "POST persistentvolumeclaims"
DELETING: Document = {"retention": ("Retain", "Delete")}
CONTROLLED = {"apiVersion": "example.com/v1", "kind": "Backup", "name": "b", "uid": "uid-b", "controller": True}


class Writes:
    """A consistency store that only notes what it is told."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str, str, str]] = []

    def wrote_at(self, owner_key: str, owner_uid: str, group_resource: str, resource_version: str) -> None:
        self.noted.append((owner_key, owner_uid, group_resource, resource_version))

    def ensure_ready(self, owner_key: str) -> None:
        pass

    def clear(self, owner_key: str, uid: str) -> None:
        pass


class Place:
    """A pod control over a server, and caches that lag as the test wants."""

    def __init__(self) -> None:
        self.api = NodeApi(FakeClock())
        self.recorder = FakeRecorder()
        self.writes = Writes()
        self.pods = SharedInformer(self.api, PODS)
        self.claims = SharedInformer(self.api, PERSISTENT_VOLUME_CLAIMS)
        self.control = StatefulPodControl(
            client=self.api,
            pods=self.pods.store,
            claims=self.claims.store,
            recorder=self.recorder,
            consistency=self.writes,
        )

    async def have(self, *documents: Document) -> None:
        for document in documents:
            if "containers" in document["spec"]:
                self.api.seed(PODS, document)
            else:
                self.api.seed(PERSISTENT_VOLUME_CLAIMS, document)
        await self.deliver()

    async def deliver(self) -> None:
        await self.api.deliver([self.pods, self.claims])

    def cached(self, name: str = "web-1") -> Pod:
        pod = self.pods.store.get(f"ns/{name}")
        assert pod is not None
        return pod

    async def create(self, stateful_set: StatefulSet, ordinal: int = 1) -> list[str]:
        """Create a pod and give the requests made, also if it fails."""
        template = stateful_set.spec.template
        pod = unborn_pod(stateful_set, template, R1, ordinal)
        try:
            await self.control.create(stateful_set, pod, new_pod_document(stateful_set, template, R1, ordinal))
        finally:
            self.requests = self.api.take_calls()
        return self.requests

    async def update(self, stateful_set: StatefulSet, pod: Pod) -> list[str]:
        """Update a pod and give the requests made, also if it fails."""
        try:
            await self.control.update(stateful_set, pod)
        finally:
            self.requests = self.api.take_calls()
        return self.requests

    @property
    def events(self) -> list[str]:
        """The events since the last time."""
        events = [f"{event.type} {event.reason}: {event.message}" for event in self.recorder.occurrences]
        self.recorder.occurrences.clear()
        return events

    def owners(self, claim: str) -> list[Document]:
        document = self.api.one(PERSISTENT_VOLUME_CLAIMS, claim).document()
        owners: list[Document] = document["metadata"].get("ownerReferences", [])
        return owners


# Creating


@pytest.mark.row("S-131", "S-111", "S-135", "S-031")
async def test_claims_come_before_their_pod() -> None:
    place = Place()
    assert await place.create(make_stateful_set(claims=("data", "logs"))) == [CREATE_CLAIM, CREATE_CLAIM, CREATE]
    assert place.events == [
        "Normal SuccessfulCreate: Create Claim data-web-1 Pod web-1 in StatefulSet web success",
        "Normal SuccessfulCreate: Create Claim logs-web-1 Pod web-1 in StatefulSet web success",
        "Normal SuccessfulCreate: Create Pod web-1 in StatefulSet web successful",
    ]
    versions = [
        place.api.one(PERSISTENT_VOLUME_CLAIMS, "data-web-1").metadata.resource_version,
        place.api.one(PERSISTENT_VOLUME_CLAIMS, "logs-web-1").metadata.resource_version,
        place.api.one(PODS, "web-1").metadata.resource_version,
    ]
    resources = ["persistentvolumeclaims", "persistentvolumeclaims", "pods"]
    owner = ("ns/web", "uid-web")
    assert place.writes.noted == [(*owner, *noted) for noted in zip(resources, versions, strict=True)]


@pytest.mark.row("S-006")
async def test_events_are_on_the_set() -> None:
    place = Place()
    await place.create(make_stateful_set(claims=("data",)))
    about = {(event.about.kind, event.about.name, event.about.uid) for event in place.recorder.occurrences}
    assert about == {("StatefulSet", "web", "uid-web")}


@pytest.mark.row("S-109")
async def test_a_claim_that_is_there_is_taken_as_it_is() -> None:
    place = Place()
    odd = claim_document("data-web-1", CONTROLLED)
    odd["spec"] = {"storageClassName": "other"}
    await place.have(odd)
    assert await place.create(make_stateful_set(claims=("data",))) == [CREATE]


@pytest.mark.row("S-109", "S-111", "S-131")
async def test_a_claim_that_is_being_deleted_keeps_its_pod_from_being_created() -> None:
    place = Place()
    await place.have(claim_document("data-web-1", deleted=True))
    with pytest.raises(AggregateError, match=r"^pvc data-web-1 is being deleted$"):
        await place.create(make_stateful_set(claims=("data",)))
    assert place.requests == []
    assert place.events == [
        "Warning FailedCreate: Create Pod web-1 in StatefulSet web failed error: pvc data-web-1 is being deleted"
    ]


@pytest.mark.row("S-110", "S-111", "S-131")
async def test_all_claims_are_tried_and_their_errors_are_one() -> None:
    place = Place()
    place.api.fail("POST", "persistentvolumeclaims", refusal(403, "Forbidden", "full"))
    place.api.fail("POST", "persistentvolumeclaims", refusal(403, "Forbidden", "fuller"))
    text = "[failed to create PVC a-web-1: full, failed to create PVC b-web-1: fuller]"
    with pytest.raises(AggregateError) as caught:
        await place.create(make_stateful_set(claims=("a", "b", "c")))
    assert str(caught.value) == text
    assert place.requests == [CREATE_CLAIM] * 3
    assert place.events == [
        "Warning FailedCreate: Create Claim a-web-1 for Pod web-1 in StatefulSet web failed error: full",
        "Warning FailedCreate: Create Claim b-web-1 for Pod web-1 in StatefulSet web failed error: fuller",
        "Normal SuccessfulCreate: Create Claim c-web-1 Pod web-1 in StatefulSet web success",
        f"Warning FailedCreate: Create Pod web-1 in StatefulSet web failed error: {text}",
    ]


@pytest.mark.row("S-110")
async def test_a_claim_that_the_cache_lacks_is_an_error_without_an_event_of_its_own() -> None:
    place = Place()
    place.api.seed(PERSISTENT_VOLUME_CLAIMS, claim_document("data-web-1"))
    with pytest.raises(AggregateError, match=r"^failed to create PVC data-web-1: .* already exists$"):
        await place.create(make_stateful_set(claims=("data",)))
    assert place.requests == [CREATE_CLAIM]
    assert [event.partition(":")[0] for event in place.events] == ["Warning FailedCreate"]


@pytest.mark.row("S-132", "S-205", "S-207")
async def test_a_name_that_is_taken_is_an_error_without_an_event() -> None:
    place = Place()
    await place.have(claim_document("data-web-1"))
    place.api.seed(PODS, stateful_pod_document(1, owner="other"))
    with pytest.raises(StatusError) as caught:
        await place.create(make_stateful_set(claims=("data",), **DELETING))
    assert is_already_exists(caught.value)
    assert place.requests == [CREATE]
    assert place.events == []


@pytest.mark.row("S-133", "S-135")
@pytest.mark.parametrize("cause", ["", "NamespaceTerminating"])
async def test_after_a_refusal_claims_still_get_their_owners(cause: str) -> None:
    place = Place()
    await place.have(claim_document("data-web-1"))
    place.api.fail("POST", "pods", refusal(403, "Forbidden", "no quota", cause))
    with pytest.raises(StatusError, match="no quota"):
        await place.create(make_stateful_set(claims=("data",), **DELETING))
    assert place.requests == [CREATE, "PUT persistentvolumeclaims/data-web-1"]
    assert place.events == ["Warning FailedCreate: Create Pod web-1 in StatefulSet web failed error: no quota"]
    assert place.owners("data-web-1") == [reference_to_set()]


@pytest.mark.row("S-134", "S-118")
@pytest.mark.parametrize("refused", [False, True])
async def test_owners_that_cannot_be_given_hide_what_became_of_the_pod(refused: bool) -> None:
    place = Place()
    await place.have(claim_document("a-web-1"), claim_document("b-web-1"))
    if refused:
        place.api.fail("POST", "pods", refusal(403, "Forbidden", "no quota"))
    place.api.fail("PUT", ".*", refusal(500, "InternalError", "broken"))
    text = "could not update claim a-web-1 for delete policy ownerRefs: broken"
    with pytest.raises(ClaimError) as caught:
        await place.create(make_stateful_set(claims=("a", "b"), **DELETING))
    assert str(caught.value) == text
    assert place.requests == [CREATE, "PUT persistentvolumeclaims/a-web-1"], "the rest is not tried"
    assert place.events == [f"Warning FailedUpdate: Update Pod web-1 in StatefulSet web failed error: {text}"]


@pytest.mark.row("S-119", "S-108")
async def test_a_claim_just_created_gets_its_owner_later() -> None:
    place = Place()
    stateful_set = make_stateful_set(claims=("data",), **DELETING)
    assert await place.create(stateful_set) == [CREATE_CLAIM, CREATE]
    assert place.owners("data-web-1") == []
    assert place.control.claims_match(stateful_set, make_stateful_pod(1))
    await place.deliver()
    assert not place.control.claims_match(stateful_set, make_stateful_pod(1))


# Claims


@pytest.mark.row("S-117", "S-118", "S-031")
async def test_owners_are_written_with_one_put_of_the_whole_claim() -> None:
    place = Place()
    document = claim_document("data-web-1", {**CONTROLLED, "controller": False})
    document |= {"fieldOfTheFuture": 7}
    await place.have(document)
    stateful_set = make_stateful_set(claims=("data",), **DELETING)
    await place.control.fix_claims(stateful_set, make_stateful_pod(1))
    (call,) = place.api.calls
    owners = [{**CONTROLLED, "controller": False}, reference_to_set()]
    assert call.method == "PUT"
    assert call.body["metadata"]["ownerReferences"] == owners
    assert call.body["fieldOfTheFuture"] == 7
    assert call.body["spec"] == document["spec"]
    version = place.api.one(PERSISTENT_VOLUME_CLAIMS, "data-web-1").metadata.resource_version
    assert place.writes.noted == [("ns/web", "uid-web", "persistentvolumeclaims", version)]
    assert place.events == []


@pytest.mark.row("S-118")
async def test_owners_that_are_right_cost_nothing() -> None:
    place = Place()
    await place.have(claim_document("data-web-1", reference_to_set()))
    await place.control.fix_claims(make_stateful_set(claims=("data", "logs"), **DELETING), make_stateful_pod(1))
    assert place.api.calls == []


@pytest.mark.row("S-120", "S-117")
async def test_a_claim_with_another_controller_is_told_of() -> None:
    place = Place()
    await place.have(
        claim_document("data-web-1", CONTROLLED), claim_document("logs-web-1", reference_to_set(), CONTROLLED)
    )
    stateful_set = make_stateful_set(claims=("data", "logs"), **DELETING)
    await place.control.fix_claims(stateful_set, make_stateful_pod(1))
    assert place.api.take_calls() == ["PUT persistentvolumeclaims/logs-web-1"]
    texts = [
        f"Warning ConflictingController: PersistentVolumeClaim {name}-web-1 has a conflicting OwnerReference that acts as a"
        " manging controller, the retention policy is ignored for this claim"
        for name in ("data", "logs")
    ]
    assert place.events == texts
    await place.deliver()
    await place.control.fix_claims(stateful_set, make_stateful_pod(1))
    assert place.events == [], "all is as it should be"
    await place.control.create_missing_claims(stateful_set, make_stateful_pod(1))
    assert place.events == texts
    assert place.api.take_calls() == []


@pytest.mark.row("S-126")
async def test_errors_of_missing_claims_are_no_events_of_the_pod() -> None:
    place = Place()
    place.api.fail("POST", "persistentvolumeclaims", refusal(403, "Forbidden", "full"))
    with pytest.raises(AggregateError, match="full"):
        await place.control.create_missing_claims(make_stateful_set(claims=("data",)), make_stateful_pod(1))
    assert place.events == [
        "Warning FailedCreate: Create Claim data-web-1 for Pod web-1 in StatefulSet web failed error: full"
    ]
    await place.have(claim_document("data-web-1"))
    place.api.fail("PUT", ".*", refusal(409, "Conflict", "changed"))
    with pytest.raises(ClaimError, match="changed"):
        await place.control.create_missing_claims(make_stateful_set(claims=("data",), **DELETING), make_stateful_pod(1))
    assert [event.partition(":")[0] for event in place.events] == ["Warning FailedUpdate"]
    assert place.api.take_calls()[-1:] == ["PUT persistentvolumeclaims/data-web-1"], "not retried"


@pytest.mark.row("S-121", "S-114")
@pytest.mark.parametrize(
    ("scaled", "owner", "stale"),
    [
        ("Delete", reference_to_pod("web-1"), True),
        ("Retain", reference_to_pod("web-1"), False),
        ("Delete", reference_to_set("old"), False),
        ("Delete", reference_to_pod("web-2"), False),
    ],
)
async def test_which_claims_a_new_pod_waits_for(scaled: str, owner: Document, stale: bool) -> None:
    place = Place()
    await place.have(claim_document("b-web-1", owner))
    stateful_set = make_stateful_set(claims=("a", "b"), retention=(scaled, "Retain"))
    unborn = unborn_pod(stateful_set, stateful_set.spec.template, R1, 1)
    assert place.control.has_stale_claim(stateful_set, unborn) is stale


# Updating


def edit(**metadata: Any) -> Callable[[Document], None]:
    return lambda document: document["metadata"].update(metadata)


@pytest.mark.row("S-139", "S-035")
async def test_a_label_is_put_back_into_the_whole_pod() -> None:
    place = Place()
    document = stateful_pod_document(1, labels={"app": "web", "mine": "kept"})
    document["spec"]["fieldOfTheFuture"] = 7
    await place.have(document)
    pod = place.cached()
    assert await place.update(make_stateful_set(), pod) == ["GET pods/web-1", "PUT pods/web-1"]
    (body,) = (msgspec.json.decode(sent) for call, sent in place.api.bodies.items() if call == "PUT pods/web-1")
    assert body["metadata"]["labels"] == {
        "app": "web",
        "mine": "kept",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
    }
    assert body["spec"] == document["spec"]
    assert body["metadata"]["resourceVersion"] == pod.metadata.resource_version
    assert place.events == ["Normal SuccessfulUpdate: Update Pod web-1 in StatefulSet web successful"]
    version = place.api.one(PODS, "web-1").metadata.resource_version
    assert place.writes.noted == [("ns/web", "uid-web", "pods", version)]
    assert pod is place.cached()
    assert pod.metadata.labels == {"app": "web", "mine": "kept"}


@pytest.mark.row("S-139")
async def test_a_pod_that_is_as_it_should_be_costs_nothing() -> None:
    place = Place()
    await place.have(stateful_pod_document(1), claim_document("data-web-1", reference_to_set()))
    assert await place.update(make_stateful_set(**DELETING), place.cached()) == []
    assert place.events == []


@pytest.mark.row("S-138", "S-145")
async def test_after_a_conflict_the_newest_cached_pod_is_repaired() -> None:
    place = Place()
    await place.have(stateful_pod_document(1, labels={"app": "web"}))
    old = place.cached()
    place.api.change(PODS, "web-1", lambda document: document["metadata"]["labels"].update(mine="new"))
    await place.deliver()
    calls = ["GET pods/web-1", "PUT pods/web-1"]
    assert await place.update(make_stateful_set(), old) == calls * 2
    assert place.api.one(PODS, "web-1").metadata.labels["mine"] == "new"
    assert [event.partition(":")[0] for event in place.events] == ["Normal SuccessfulUpdate"]


@pytest.mark.row("S-138", "S-145", "S-141")
async def test_four_conflicts_are_enough(looptime: Any) -> None:
    place = Place()
    await place.have(stateful_pod_document(1, labels={"app": "web"}))
    place.api.fail("PUT", "pods/web-1", refusal(409, "Conflict", "changed"), times=9)
    with pytest.raises(StatusError) as caught:
        await place.update(make_stateful_set(), place.cached())
    assert is_conflict(caught.value)
    assert place.requests == ["GET pods/web-1", "PUT pods/web-1"] * 4
    assert 0.31 <= looptime <= 0.342
    assert place.events == ["Warning FailedUpdate: Update Pod web-1 in StatefulSet web failed error: changed"]


@pytest.mark.row("S-138", "S-145")
async def test_other_errors_are_not_retried_and_a_vanished_pod_is_one() -> None:
    place = Place()
    await place.have(stateful_pod_document(1, labels={"app": "web"}))
    place.api.fail("PUT", "pods/web-1", refusal(422, "Invalid", "immutable"))
    with pytest.raises(StatusError, match="immutable"):
        await place.update(make_stateful_set(), place.cached())
    assert place.requests == ["GET pods/web-1", "PUT pods/web-1"]
    pod = place.cached()
    place.api.remove(PODS, "web-1")
    with pytest.raises(StatusError, match="not found"):
        await place.update(make_stateful_set(), pod)
    assert [event.partition(":")[0] for event in place.events] == ["Warning FailedUpdate"] * 2


@pytest.mark.row("S-138")
async def test_a_conflict_about_a_pod_that_is_not_cached_leaves_the_repaired_copy() -> None:
    place = Place()
    await place.have(stateful_pod_document(1, labels={"app": "web"}))
    pod = place.cached()
    place.pods.store.remove("ns/web-1")
    place.api.fail("PUT", "pods/web-1", refusal(409, "Conflict", "changed"))
    assert await place.update(make_stateful_set(), pod) == ["GET pods/web-1", "PUT pods/web-1"]
    assert [event.partition(":")[0] for event in place.events] == ["Normal SuccessfulUpdate"]


@pytest.mark.row("S-143", "S-139")
async def test_storage_is_repaired_with_claims_first() -> None:
    place = Place()
    await place.have(stateful_pod_document(1))
    place.api.fail("PUT", "pods/web-1", refusal(422, "Invalid", "volumes are immutable"))
    with pytest.raises(StatusError, match="immutable"):
        await place.update(make_stateful_set(claims=("data",)), place.cached())
    assert place.requests == [CREATE_CLAIM, "GET pods/web-1", "PUT pods/web-1"]
    body = msgspec.json.decode(place.api.bodies["PUT pods/web-1"])
    volumes = [volume["name"] for volume in body["spec"]["volumes"]]
    assert volumes == ["data", "kube-api-access"]
    assert [event.partition(":")[0] for event in place.events] == ["Normal SuccessfulCreate", "Warning FailedUpdate"]


@pytest.mark.row("S-141")
async def test_an_error_before_the_pod_is_written_has_one_event() -> None:
    place = Place()
    await place.have(stateful_pod_document(1))
    place.api.fail("POST", "persistentvolumeclaims", refusal(403, "Forbidden", "full"))
    with pytest.raises(AggregateError, match="full"):
        await place.update(make_stateful_set(claims=("data",)), place.cached())
    assert place.requests == [CREATE_CLAIM]
    assert [event.partition(":")[0] for event in place.events] == ["Warning FailedCreate", "Warning FailedUpdate"]


@pytest.mark.row("S-140")
async def test_wrong_owners_of_a_claim_write_the_pod_too() -> None:
    place = Place()
    await place.have(stateful_pod_document(1, claims=("data",)), claim_document("data-web-1"))
    stateful_set = make_stateful_set(claims=("data",), **DELETING)
    calls = ["PUT persistentvolumeclaims/data-web-1", "GET pods/web-1", "PUT pods/web-1"]
    before = place.api.one(PODS, "web-1")
    assert await place.update(stateful_set, place.cached()) == calls
    assert place.api.one(PODS, "web-1") == before
    assert place.events == ["Normal SuccessfulUpdate: Update Pod web-1 in StatefulSet web successful"]


@pytest.mark.row("S-142", "S-145")
async def test_a_conflict_about_a_claim_is_retried() -> None:
    place = Place()
    await place.have(stateful_pod_document(1, claims=("data",)), claim_document("data-web-1"))
    place.api.fail("PUT", "persistentvolumeclaims/.*", refusal(409, "Conflict", "changed"), times=2)
    stateful_set = make_stateful_set(claims=("data",), **DELETING)
    put = "PUT persistentvolumeclaims/data-web-1"
    assert await place.update(stateful_set, place.cached()) == [put, put, put, "GET pods/web-1", "PUT pods/web-1"]
    assert [event.partition(":")[0] for event in place.events] == [
        "Warning FailedUpdate",
        "Warning FailedUpdate",
        "Normal SuccessfulUpdate",
    ]


@pytest.mark.row("S-144", "S-089")
async def test_a_pod_with_leading_zeros_is_written_under_the_name_it_should_have() -> None:
    place = Place()
    await place.have(stateful_pod_document(name="web-01"))
    with pytest.raises(StatusError, match='"web-1" not found'):
        await place.update(make_stateful_set(), place.cached("web-01"))
    assert place.requests == ["GET pods/web-01", "PUT pods/web-1"]
    body = msgspec.json.decode(place.api.bodies["PUT pods/web-1"])
    assert (body["metadata"]["name"], body["metadata"]["uid"]) == ("web-1", "uid-web-01")
    place.recorder.occurrences.clear()

    await place.have(stateful_pod_document(1))
    assert await place.update(make_stateful_set(), place.cached("web-01")) == ["GET pods/web-01", "PUT pods/web-1"]
    assert place.events == ["Normal SuccessfulUpdate: Update Pod web-1 in StatefulSet web successful"]


# Deleting


@pytest.mark.row("S-136", "S-034", "S-135")
async def test_a_pod_is_deleted_by_name_and_may_be_gone() -> None:
    place = Place()
    await place.have(stateful_pod_document(1))
    pod, stateful_set = place.cached(), make_stateful_set()
    await place.control.delete(stateful_set, pod)
    assert [(str(call), call.body) for call in place.api.calls] == [
        ("DELETE pods/web-1", {"kind": "DeleteOptions", "apiVersion": "v1"})
    ]
    place.api.remove(PODS, "web-1")
    await place.control.delete(stateful_set, pod)
    assert place.events == ["Normal SuccessfulDelete: Delete Pod web-1 in StatefulSet web successful"] * 2
    assert place.writes.noted == [], "deletions are not waited for"
    place.api.fail("DELETE", ".*", refusal(403, "Forbidden", "no"))
    with pytest.raises(StatusError, match=r"^no$"):
        await place.control.delete(stateful_set, pod)
    assert place.events == ["Warning FailedDelete: Delete Pod web-1 in StatefulSet web failed error: no"]
