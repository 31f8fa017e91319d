"""The store against a plain dict."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kcm.api.types.core import Pod
from kcm.api.types.meta import ObjectMeta
from kcm.informers.store import Indexer

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["x", "y"])
APPS = st.sampled_from(["", "web", "api"])


def _apps(pod: Pod) -> list[str]:
    return [value for value in pod.metadata.labels.values() if value]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: Indexer[Pod] = Indexer({"app": _apps})
        self.model: dict[str, Pod] = {}

    @rule(name=NAMES, namespace=NAMESPACES, app=APPS)
    def put(self, name: str, namespace: str, app: str) -> None:
        pod = Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels={"app": app}))
        assert self.store.put(pod) == self.model.get(pod.metadata.key)
        self.model[pod.metadata.key] = pod

    @rule(name=NAMES, namespace=NAMESPACES)
    def remove(self, name: str, namespace: str) -> None:
        assert self.store.remove(f"{namespace}/{name}") == self.model.pop(f"{namespace}/{name}", None)

    @rule(names=st.sets(NAMES), app=APPS)
    def swap(self, names: set[str], app: str) -> None:
        snapshot = self.store.empty_copy()
        pods = [Pod(metadata=ObjectMeta(name=name, namespace="x", labels={"app": app})) for name in names]
        for pod in pods:
            snapshot.put(pod)
        assert self.store.swap(snapshot) == self.model
        self.model = {pod.metadata.key: pod for pod in pods}

    @invariant()
    def same_content(self) -> None:
        assert {pod.metadata.key: pod for pod in self.store} == self.model

    @invariant()
    def same_indexes(self) -> None:
        for app in ("web", "api"):
            keys = {pod.metadata.key for pod in self.store.by_index("app", app)}
            assert keys == {key for key, pod in self.model.items() if app in _apps(pod)}
        for namespace in ("x", "y"):
            keys = {pod.metadata.key for pod in self.store.list(namespace)}
            assert keys == {key for key, pod in self.model.items() if pod.metadata.namespace == namespace}


TestStore = StoreMachine.TestCase
