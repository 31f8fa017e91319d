"""The indexed store."""

import pytest

from kcm.api.types.core import Pod
from kcm.api.types.meta import ObjectMeta
from kcm.informers.store import Indexer


def pod(name: str, *, namespace: str = "ns", **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


def by_app(obj: Pod) -> list[str]:
    return [obj.metadata.labels["app"]] if "app" in obj.metadata.labels else []


@pytest.mark.row("M-048")
def test_objects_stand_under_their_namespace_from_the_start() -> None:
    store: Indexer[Pod] = Indexer()
    store.put(pod("a"))
    store.put(pod("b", namespace="other"))
    assert [p.metadata.name for p in store.list("ns")] == ["a"]
    assert len(store.list()) == 2


@pytest.mark.row("M-047")
def test_an_index_follows_changes_and_its_name_is_taken_once() -> None:
    store: Indexer[Pod] = Indexer()
    store.put(pod("a", app="web"))
    store.add_index("app", by_app)
    store.add_index("app", by_app)
    with pytest.raises(ValueError, match="indexer conflict"):
        store.add_index("app", lambda _: [])
    assert store.by_index("app", "web") == [pod("a", app="web")]
    store.put(pod("a", app="api"))
    assert store.by_index("app", "web") == []
    store.put(pod("a"))
    assert store.by_index("app", "api") == []
    store.put(pod("a", app="web"))
    store.remove("ns/a")
    assert store.by_index("app", "web") == []
    assert len(store) == 0


def test_a_snapshot_replaces_everything_at_once_and_knows_indexes_added_meanwhile() -> None:
    store: Indexer[Pod] = Indexer()
    store.put(pod("old", app="web"))
    snapshot = store.empty_copy()
    snapshot.put(pod("new", app="web"))
    snapshot.resource_version = "7"
    store.add_index("app", by_app)
    before = store.swap(snapshot)
    assert list(before) == ["ns/old"]
    assert [p.metadata.name for p in store.by_index("app", "web")] == ["new"]
    assert store.resource_version == "7"
