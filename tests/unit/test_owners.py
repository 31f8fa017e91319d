"""Finding owners."""

import pytest

from kcm.api.types.apps import ReplicaSet
from kcm.api.types.meta import OwnerReference
from kcm.controllers.owners import last_known, resolve, selecting
from kcm.informers.store import Indexer, Tombstone
from tests.unit.fakes import NAMESPACE, make_deployment, make_replica_set


@pytest.mark.row("D-022", "R-020")
def test_a_reference_means_the_object_of_its_kind_name_and_uid() -> None:
    store: Indexer[ReplicaSet] = Indexer()
    owner = make_replica_set("web-1")
    store.put(owner)
    uid = owner.metadata.uid
    reference = OwnerReference(api_version="other/v9", kind="ReplicaSet", name="web-1", uid=uid, controller=True)
    assert resolve(store, "ReplicaSet", NAMESPACE, reference) is owner
    assert resolve(store, "ReplicaSet", "elsewhere", reference) is None
    assert resolve(store, "Deployment", NAMESPACE, reference) is None
    assert resolve(store, "ReplicaSet", NAMESPACE, OwnerReference(kind="ReplicaSet", name="web-1", uid="x")) is None
    assert resolve(store, "ReplicaSet", NAMESPACE, OwnerReference(kind="ReplicaSet", name="web-2", uid=uid)) is None
    assert resolve(store, "ReplicaSet", NAMESPACE, None) is None


def test_a_tombstone_stands_for_what_it_was() -> None:
    owner = make_replica_set("web-1")
    assert last_known(owner) is last_known(Tombstone("ns/web-1", owner)) is owner


@pytest.mark.row("D-023", "R-021")
def test_an_orphan_may_belong_to_every_deployment_that_selects_it() -> None:
    selectors: dict[str, dict[str, object] | None] = {
        "web": {"matchLabels": {"app": "web"}},
        "also": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "other": {"matchLabels": {"app": "db"}},
        "everything": {},
        "nothing": None,
        "invalid": {"matchExpressions": [{"key": "app", "operator": "Odd"}]},
    }
    deployments = [make_deployment(name, selector=selector) for name, selector in selectors.items()]
    found = selecting(deployments, {"app": "web"})
    assert [deployment.metadata.name for deployment in found] == ["web", "also"]
    absent = make_deployment("absent", selector={"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]})
    assert selecting([absent], {}) == []
