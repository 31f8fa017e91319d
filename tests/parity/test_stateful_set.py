"""Names, slots, claims, pods, revisions and statuses of StatefulSets."""

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import pytest

from kcm.api.pod_template import revision_data
from kcm.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS, Resource
from kcm.api.types.apps import ControllerRevision, PodTemplate, StatefulSet, status_document
from kcm.api.types.core import PersistentVolumeClaim, Pod
from kcm.api.types.meta import Document
from kcm.controllers.history import CONTROLLER_REVISION_HASH_LABEL, hash_revision, revision_name, same_data
from kcm.controllers.history import _age as age
from kcm.controllers.statefulset.claim_owners import (
    has_unexpected_controller,
    is_claim_owner_up_to_date,
    updated_owners,
)
from kcm.controllers.statefulset.stateful_set_status import complete_update, count_replicas, inconsistent_status
from kcm.controllers.statefulset.stateful_set_utils import (
    identity_matches,
    in_ordinal_range,
    is_member_of,
    is_unavailable,
    max_unavailable,
    new_claim_documents,
    new_pod_document,
    ordinal_of,
    parent_and_ordinal,
    repaired_pod,
    starts_at_current,
    storage_matches,
)
from tests.parity import make
from tests.parity.make import chance
from tests.parity.ring import Ring
from tests.parity.templates import Templates

_REVISIONS = ("db-1", "db-2", "", "db-3")


def _decoded(resource: Resource[Any], document: Document) -> Any:
    return resource.decode(msgspec.json.encode(document))


def _stateful_set(document: Document) -> StatefulSet:
    made: StatefulSet = _decoded(STATEFUL_SETS, document)
    return made


def stateful_set(random: Random) -> Document:
    """A StatefulSet as a server gives it, maybe with a status."""
    spec: Document = {
        "replicas": random.choice((0, 1, 2, 3, 3, 5)),
        "selector": {"matchLabels": make.labels(random)},
        "serviceName": random.choice(("", "svc")),
        "template": make.template(random),
        "podManagementPolicy": random.choice(("OrderedReady", "Parallel")),
        "updateStrategy": _update_strategy(random),
        "volumeClaimTemplates": [_claim_template(random, name) for name in ("data", "log") if chance(random, 0.5)],
        "revisionHistoryLimit": 10,
    }
    if chance(random, 0.4):
        spec["ordinals"] = {"start": random.choice((0, 1, 3, make.MAX_INT32 - 2))}
    if chance(random, 0.3):
        spec["minReadySeconds"] = random.choice((1, 10, 600))
    if chance(random, 0.6):
        values = ("Retain", "Delete", "Delete", "Odd")
        spec["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": random.choice(values),
            "whenScaled": random.choice(values),
        }
    metadata = {"name": random.choice(("db", "db", "a-1", "x" * 63)), "namespace": make.NAMESPACE, "uid": "set-uid"}
    return {
        "metadata": {**metadata, "generation": random.choice((1, 2)), "labels": make.labels(random)},
        "spec": spec,
        "status": _status(random),
    }


def _update_strategy(random: Random) -> Document:
    kind = random.choice(("RollingUpdate", "RollingUpdate", "OnDelete", "Recreate"))
    made: Document = {"type": kind}
    if chance(random, 0.6):
        made["rollingUpdate"] = {"partition": random.choice((0, 0, 1, 2, 5))}
    return made


def _claim_template(random: Random, name: str) -> Document:
    made: Document = {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    }
    for field in ("labels", "annotations"):
        if chance(random, 0.4):
            made["metadata"][field] = {**make.labels(random), "of": name}
    return made


def _status(random: Random) -> Document:
    counters = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
    made: Document = {name: random.randrange(4) for name in counters}
    made |= {"currentRevision": random.choice(_REVISIONS), "updateRevision": random.choice(_REVISIONS)}
    made |= {"observedGeneration": random.choice((1, 2)), "collisionCount": 0}
    if chance(random, 0.3):
        made["conditions"] = [
            {
                "type": random.choice(("Progressing", "Other")),
                "status": random.choice(("True", "False")),
                "lastTransitionTime": make.past(random),
                "reason": random.choice(("RecreateInProgress", "RecreateCompleted")),
                "message": random.choice(("", "All pods recreated successfully")),
            }
        ]
    return made


def _pod_name(random: Random, of: str) -> str:
    kind = random.random()
    if kind < 0.7:
        return f"{of}-{random.choice((0, 0, 1, 2, 3, 4, make.MAX_INT32 - 1))}"
    odd = ("-1", "db", "db-", "db--1", "db-01", "db-2147483647", "db-2147483648", "db-9999999999999999999999", "db-1-2")
    return random.choice((*odd, "a-1-0", "db-1\n", "d\nb-1", "db-٣", "db-1x", "other-0", "-", ""))


def pod_of(random: Random, document: Document) -> Document:
    """A pod that may be one of a StatefulSet's, or nearly."""
    made = make.pod(random, _pod_name(random, document["metadata"]["name"]))
    name = made["metadata"]["name"]
    if chance(random, 0.1):
        made["metadata"]["namespace"] = "elsewhere"
    labels = {}
    if chance(random, 0.8):
        labels["statefulset.kubernetes.io/pod-name"] = name if chance(random, 0.8) else "db-9"
    if chance(random, 0.7):
        labels["controller-revision-hash"] = random.choice(_REVISIONS)
    if labels or chance(random, 0.5):
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), **labels}
    volumes = []
    ordinal = name.rpartition("-")[2]
    for claim in ("data", "log", "own"):
        if chance(random, 0.6):
            right = f"{claim}-{document['metadata']['name']}-{ordinal}"
            source = {"claimName": right if chance(random, 0.85) else "other"}
            volumes.append({"name": claim, **({"persistentVolumeClaim": source} if chance(random, 0.9) else {})})
    if volumes:
        made["spec"]["volumes"] = volumes
    return made


def _read_of(pod: Document) -> Document:
    """What both sides tell of a repaired pod: its names and volumes."""
    metadata, spec = pod["metadata"], pod.get("spec", {})
    claims = {
        volume["name"]: (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in spec.get("volumes") or []
    }
    kept = {name: claim for name, claim in claims.items() if claim}
    return {**{key: metadata.get(key) or "" for key in ("name", "namespace")}, "labels": metadata["labels"], "v": kept}


@pytest.mark.row("S-101")
def test_pods_have_the_same_places(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        return {"set": document, "pod": pod_of(random, document), "now": make.instant()}

    def ours(given: Document) -> Document:
        owner, pod = _stateful_set(given["set"]), msgspec.convert(given["pod"], Pod)
        parent, ordinal = parent_and_ordinal(pod.metadata.name)
        out = {
            "parent": parent,
            "ordinal": ordinal,
            "member": is_member_of(owner, pod),
            "inRange": in_ordinal_range(owner, ordinal),
            "identity": identity_matches(owner, pod),
            "storage": storage_matches(owner, pod),
            "unavailable": is_unavailable(pod, owner.spec.min_ready_seconds, datetime.fromisoformat(given["now"])),
        }
        if ordinal >= 0:
            out["repaired"] = _read_of(msgspec.to_builtins(repaired_pod(owner, pod)))
        return out

    def theirs(out: Document) -> Document:
        return out | ({"repaired": _read_of(out["repaired"])} if out.get("repaired") else {})

    ring.agree("statefulSetPlace", random_input, ours, theirs=theirs)


def test_claims_are_the_same(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        name = f"{document['metadata']['name']}-{random.randrange(12)}"
        return {"set": document, "pod": make.pod(random, name)}

    def ours(given: Document) -> list[Document]:
        owner, pod = _stateful_set(given["set"]), msgspec.convert(given["pod"], Pod)
        made = new_claim_documents(owner, ordinal_of(pod)).values()
        return [_without_kind(claim) for claim in made]

    ring.agree(
        "statefulSetClaims", random_input, ours, theirs=lambda out: [_without_kind(out[name]) for name in sorted(out)]
    )


def _without_kind(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}


@pytest.mark.row("S-113", "S-114", "S-115", "S-116", "S-117")
def test_claims_have_the_same_owners(ring: Ring) -> None:
    kinds = (("apps/v1", "StatefulSet"), ("v1", "Pod"), ("apps/v1beta1", "StatefulSet"), ("v1", "ConfigMap"))

    def reference(random: Random, pod: str) -> Document:
        version, kind = random.choice(kinds)
        made: Document = {
            "apiVersion": version,
            "kind": kind,
            "name": random.choice((pod, pod.rpartition("-")[0], "other")),
            "uid": random.choice(("set-uid", "pod-uid", "pod-uid", "set-uid", "old-uid")),
        }
        if chance(random, 0.8):
            made["controller"] = chance(random, 0.6)
        if chance(random, 0.5):
            made["blockOwnerDeletion"] = chance(random, 0.7)
        return made

    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        name = f"{document['metadata']['name']}-{random.choice((0, 1, 4, 7))}"
        pod = make.pod(random, name)
        pod["metadata"]["uid"] = random.choice(("pod-uid", "pod-uid", "pod-uid", ""))
        owners = [reference(random, name) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        claim = {"metadata": {"name": f"data-{name}", "namespace": make.NAMESPACE, "ownerReferences": owners}}
        return {"set": document, "pod": pod, "claim": claim}

    def ours(given: Document) -> Document:
        owner, pod = _stateful_set(given["set"]), msgspec.convert(given["pod"], Pod)
        claim: PersistentVolumeClaim = _decoded(PERSISTENT_VOLUME_CLAIMS, given["claim"])
        updated = [msgspec.to_builtins(reference) for reference in updated_owners(claim, owner, pod)]
        return {
            "upToDate": is_claim_owner_up_to_date(claim, owner, pod),
            "unexpected": has_unexpected_controller(claim, owner, pod),
            "updated": [{"uid": "", **one} for one in updated],
        }

    ring.agree("claimOwners", random_input, ours)


@pytest.mark.row("S-093", "S-103", "S-104", "S-105", "S-107")
def test_new_pods_are_the_same(ring: Ring) -> None:
    def template(random: Random) -> Document:
        made = make.template(random)
        for field in ("labels", "annotations"):
            if chance(random, 0.5):
                made["metadata"][field] = {**make.labels(random), "apps.kubernetes.io/pod-index": "x"}
        if chance(random, 0.2):
            made["metadata"]["finalizers"] = ["example.com/f"]
        made["spec"]["volumes"] = [{"name": name} for name in ("data", "own", "log") if chance(random, 0.4)]
        for field in ("hostname", "subdomain"):
            if chance(random, 0.2):
                made["spec"][field] = "own"
        return made

    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        document["spec"]["template"] = template(random)
        return {"set": document, "update": template(random), "ordinal": random.randrange(6)}

    def ours(given: Document) -> Document:
        owner = _stateful_set(given["set"])
        at_current = starts_at_current(owner, given["ordinal"])
        used = given["set"]["spec"]["template"] if at_current else given["update"]
        revision = "current" if at_current else "update"
        return _pod_fields(new_pod_document(owner, msgspec.convert(used, PodTemplate), revision, given["ordinal"]))

    ring.agree("statefulSetPod", random_input, ours, theirs=_pod_fields)


def _pod_fields(pod: Document) -> Document:
    """A pod without what Go always writes."""
    spec = {key: value for key, value in pod["spec"].items() if value != []}
    spec["volumes"] = sorted(spec.get("volumes", []), key=lambda volume: str(volume["name"]))
    metadata = {key: value for key, value in pod["metadata"].items() if key != "creationTimestamp"}
    return {"metadata": metadata, "spec": spec}


@pytest.mark.row("S-058", "S-059", "S-063", "S-203")
def test_new_revisions_have_the_same_names_labels_and_data(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        document["spec"]["template"] = Templates(random, nulls=False).template()
        return {"set": document, "collisionCount": random.choice((0, 1, 17, make.MAX_INT32, -1))}

    def ours(given: Document) -> Document:
        owner = _stateful_set(given["set"])
        data = revision_data({"spec": {"template": given["set"]["spec"]["template"]}})
        digest = hash_revision(data, given["collisionCount"])
        labels = {**owner.spec.template.metadata.labels, CONTROLLER_REVISION_HASH_LABEL: digest}
        name = revision_name(owner.metadata.name, digest)
        return {"name": name, "labels": labels, "data": msgspec.json.decode(data), "revision": 1}

    ring.agree("newStatefulSetRevision", random_input, ours, share=0.5)


def test_revisions_are_ordered_and_found_alike(ring: Ring) -> None:
    def data(random: Random) -> Document:
        return {"spec": {"template": {"$patch": "replace", "v": random.randrange(3)}}}

    def revision(random: Random, number: int) -> Document:
        metadata = {"name": f"db-{random.choice('abc')}{number}", "namespace": make.NAMESPACE}
        if chance(random, 0.9):
            metadata["creationTimestamp"] = make.past(random)
        return {"metadata": metadata, "data": data(random), "revision": random.choice((1, 1, 2, 3, 2**53 + 1))}

    def random_input(random: Random) -> Document:
        count = random.randrange(6)
        needle = {"metadata": {"name": "needle"}, "data": data(random), "revision": 1}
        return {"revisions": [revision(random, number) for number in range(count)], "needle": needle}

    def ours(given: Document) -> Document:
        revisions: list[ControllerRevision] = [_decoded(CONTROLLER_REVISIONS, one) for one in given["revisions"]]
        needle: ControllerRevision = _decoded(CONTROLLER_REVISIONS, given["needle"])
        revisions.sort(key=age)
        equal = [one.metadata.name for one in revisions if same_data(one.data, needle.data)]
        return {
            "names": [one.metadata.name for one in revisions],
            "next": revisions[-1].revision + 1 if revisions else 1,
            "equal": sorted(equal),
        }

    ring.agree("revisionOrder", random_input, ours)


@pytest.mark.row("S-178", "S-179", "S-180", "S-183", "S-185")
def test_a_stateful_set_gets_the_same_status(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        document = stateful_set(random)
        pods: Sequence[Document] = [pod_of(random, document) for _ in range(random.randrange(5))]
        if chance(random, 0.4):
            # Complete, or nearly so.
            document["spec"]["replicas"] = len(pods)
            for pod in pods:
                pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                pod["metadata"].pop("deletionTimestamp", None)
                pod["metadata"]["labels"] = {"controller-revision-hash": document["status"]["updateRevision"]}
        return {"set": document, "pods": pods, "now": make.instant(), "recreate": chance(random, 0.5)}

    def ours(given: Document) -> Document:
        owner = _stateful_set(given["set"])
        pods = [msgspec.convert(pod, Pod) for pod in given["pods"]]
        status = msgspec.structs.replace(owner.status, observed_generation=owner.metadata.generation)
        status = count_replicas(status, pods, owner.spec.min_ready_seconds, make.NOW)
        status = complete_update(owner, status, make.NOW, recreate=given["recreate"])
        return {"status": status_document(status), "inconsistent": inconsistent_status(owner, status)}

    ring.agree("statefulSetStatus", random_input, ours, share=0.7)


@pytest.mark.row("S-158", "S-195")
def test_as_many_pods_may_be_unavailable(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        return {"value": make.bound(random) if chance(random, 0.95) else None, "replicas": make.size(random)}

    def ours(given: Document) -> int:
        rolling = {"partition": 0} | ({} if given["value"] is None else {"maxUnavailable": given["value"]})
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        spec = {"replicas": given["replicas"], "updateStrategy": strategy}
        return max_unavailable(_stateful_set({"metadata": {}, "spec": spec}))

    ring.agree("statefulSetMaxUnavailable", random_input, ours)
