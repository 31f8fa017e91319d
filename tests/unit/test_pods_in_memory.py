"""What is kept of a pod: what the controllers read, once for all pods that have it in common."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from kcm.api.resources import PODS
from kcm.api.types.core import Pod
from kcm.informers.store import Indexer
from tests.wire_pods import encoded_pod, wire_pod

#: Bytes, in a store with the indexes that the controllers have.
MOST_PER_POD = 1200


def controller_uid(pod: Pod) -> list[str]:
    return [] if pod.metadata.controller is None else [pod.metadata.controller.uid]


def bytes_per_pod(wire: list[bytes]) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        store: Indexer[Pod] = Indexer({"controller": controller_uid})
        for data in wire:
            store.put(PODS.decode(data))
        assert len(store) == len(wire)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / len(wire)
    finally:
        tracemalloc.stop()


def stateful(number: int) -> bytes:
    """A StatefulSet's pod: no two have the same labels."""
    pod = wire_pod(number, 1000 + number)
    pod["metadata"]["labels"] = {
        "app": "db",
        "controller-revision-hash": "db-5d4f8c7b9",
        "statefulset.kubernetes.io/pod-name": pod["metadata"]["name"],
        "apps.kubernetes.io/pod-index": str(number),
    }
    pod["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": f"data-db-{number}"}})
    return msgspec.json.encode(pod)


def test_a_pod_takes_little_more_than_a_kilobyte() -> None:
    # 20,000, since dicts that grow by doubling take up to twice of what they need.
    each = bytes_per_pod([encoded_pod(number, 10_000 + number) for number in range(20_000)])
    assert 500 < each <= MOST_PER_POD


def test_pods_with_labels_and_claims_of_their_own_take_not_much_more() -> None:
    each = bytes_per_pod([stateful(number) for number in range(5000)])
    assert 500 < each <= 1.25 * MOST_PER_POD


def decode(**changes: Any) -> Pod:
    document = wire_pod(1, 7)
    for path, value in changes.items():
        place = document
        *parents, last = path.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    return PODS.decode(msgspec.json.encode(document))


def test_pods_of_one_owner_share_what_they_have_in_common() -> None:
    one, other = PODS.decode(encoded_pod(100, 7)), PODS.decode(encoded_pod(101, 8))
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.namespace is other.metadata.namespace
    assert one.status.container_statuses is other.status.container_statuses
    assert one.metadata.uid != other.metadata.uid


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("metadata__labels", {"app": "odd"}, lambda pod: pod.metadata.labels),
        ("metadata__labels", {}, lambda pod: pod.metadata.labels),
        (
            "status__containerStatuses",
            [{"name": "app", "restartCount": 3}],
            lambda pod: [{"name": s.name, "restartCount": s.restart_count} for s in pod.status.container_statuses],
        ),
    ],
)
def test_what_differs_is_never_shared(path: str, value: Any, read: Any) -> None:
    first = decode()
    before = read(first)
    assert read(decode(**{path: value})) == value
    assert read(decode()) == before
    assert read(first) == before


def test_another_owner_reference_beside_the_first_is_seen() -> None:
    second = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "u", "controller": False}
    plain = decode()
    document = wire_pod(1, 7)
    document["metadata"]["ownerReferences"].append(second)
    both = PODS.decode(msgspec.json.encode(document))
    assert [reference.name for reference in both.metadata.owner_references][1:] == ["other"]
    assert decode().metadata.owner_references == plain.metadata.owner_references


def test_only_what_is_asked_for_is_kept() -> None:
    cost = "controller.kubernetes.io/pod-deletion-cost"
    pod = decode(metadata__annotations={cost: "5", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert pod.metadata.annotations == {cost: "5"}
    assert [(condition.type, condition.status) for condition in pod.status.conditions] == [("Ready", "True")]
    assert pod.spec.volumes == ()
    assert decode(status__conditions=[{"type": "Initialized", "status": "True"}]).status.conditions == ()


def test_garbage_collection_has_nothing_to_do_with_pods() -> None:
    gc.collect()
    before = len(gc.get_objects())
    pods = [PODS.decode(encoded_pod(number, 7)) for number in range(1000)]
    gc.collect()
    assert len(gc.get_objects()) - before < len(pods)
