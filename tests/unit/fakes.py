"""An API server in memory, and objects as it would give them, for tests of controllers.

`FakeApi` is a `Client` whose requests end in a dictionary: versions are checked, status and spec are kept apart, every request
is noted. It knows namespaced objects only, no defaulting and no validation. What it stored reaches no informer by itself:
`deliver` hands over what was written since, as a watch would, so that a test decides how far a cache lags behind.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from kcm.api.client import JSON, Body, Client
from kcm.api.errors import Status, StatusError
from kcm.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource, T
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document, format_time, from_document
from kcm.clock import REAL, Clock
from kcm.informers.shared_informer import SharedInformer
from kcm.workqueue.queue import Queue
from tests.clocks import START

NAMESPACE = "ns"

_PATH = re.compile(
    r"/(?:api|apis/\w+)/v1/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)


class Call(NamedTuple):
    """A request that was made: method, `plural[/name[/subresource]]`, decoded body."""

    method: str
    target: str
    body: Document

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


class Change(NamedTuple):
    """A watch event."""

    type: str
    plural: str
    document: Document


@dataclass
class _Failure:
    method: str
    target: re.Pattern[str]
    error: BaseException
    times: int


def refusal(code: int, reason: str, message: str = "", *causes: str) -> StatusError:
    """A refusal by the server."""
    details = {"causes": [{"reason": cause} for cause in causes]}
    body = {"message": message or reason, "reason": reason, "code": code, "details": details}
    return StatusError(msgspec.convert(body, Status))


class FakeApi(Client):
    """A client and the server behind it."""

    def __init__(self, clock: Clock = REAL) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.changes: list[Change] = []
        self._objects: dict[str, Document] = {}
        self._version = 100
        self._failures: list[_Failure] = []

    # What a test does

    def seed(self, resource: Resource[T], document: Mapping[str, Any]) -> T:
        """Store an object as if somebody had made it, and give it as it is stored."""
        copied: Document = copy.deepcopy(dict(document))
        meta = copied["metadata"]
        stored = self._store_new(resource.plural, meta["namespace"], meta["name"], copied, keep_status=True)
        return resource.decode(msgspec.json.encode(stored))

    def change(self, resource: Resource[T], name: str, edit: Callable[[Document], object]) -> T:
        """Change a stored object as somebody else would; a change of its spec counts as a new generation."""
        key = f"{resource.plural}/{NAMESPACE}/{name}"
        document = copy.deepcopy(self._objects[key])
        edit(document)
        return resource.decode(msgspec.json.encode(self._replace(key, document)))

    def remove(self, resource: Resource[T], name: str) -> None:
        """Delete a stored object."""
        document = self._objects.pop(f"{resource.plural}/{NAMESPACE}/{name}")
        self._note("DELETED", resource.plural, document)

    def all(self, resource: Resource[T]) -> list[T]:
        """What is stored of a resource, in order of creation."""
        return [
            resource.decode(msgspec.json.encode(document))
            for key, document in self._objects.items()
            if key.startswith(f"{resource.plural}/")
        ]

    def one(self, resource: Resource[T], name: str) -> T:
        """A stored object."""
        return resource.decode(msgspec.json.encode(self._objects[f"{resource.plural}/{NAMESPACE}/{name}"]))

    def fail(self, method: str, target: str, error: BaseException, *, times: int = 1) -> None:
        """Answer the next requests of a method to targets that match an expression with an error."""
        self._failures.append(_Failure(method, re.compile(target), error, times))

    def take_calls(self) -> list[str]:
        """The requests since the last time, as `METHOD plural/name/subresource`."""
        calls = [str(call) for call in self.calls]
        self.calls.clear()
        return calls

    async def deliver(self, informers: Iterable[SharedInformer[Any]], *, at_most: int | None = None) -> None:
        """Apply the next changes to the informers of their resources; those of other resources stay for later."""
        by_plural = {informer.resource.plural: informer for informer in informers}
        due = [change for change in self.changes if change.plural in by_plural][:at_most]
        self.changes = [change for change in self.changes if change not in due]
        for change in due:
            informer = by_plural[change.plural]
            await informer.apply(change.type, informer.resource.decode(msgspec.json.encode(change.document)))

    # What the server does

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        match = _PATH.fullmatch(path)
        assert match is not None, path
        namespace, plural, name, sub = match["namespace"], match["plural"], match["name"], match["sub"]
        target = "/".join(part for part in (plural, name, sub) if part)
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        document: Document = msgspec.json.decode(data) if data is not None else {}
        self.calls.append(Call(method, target, document))
        for failure in self._failures:
            if failure.times and failure.method == method and failure.target.fullmatch(target):
                failure.times -= 1
                raise failure.error
        document = copy.deepcopy(document)
        if method == "POST":
            meta = document["metadata"]
            meta.setdefault("name", f"{meta.get('generateName', '')}{self._version}")
            answer = self._store_new(plural, namespace, meta["name"], document, keep_status=False)
        else:
            answer = self._answer(method, f"{plural}/{namespace}/{name}", document, status=sub == "status")
        return msgspec.json.encode(answer)

    def _answer(self, method: str, key: str, body: Document, *, status: bool) -> Document:
        plural, _, name = key.split("/")
        stored = self._objects.get(key)
        if stored is None:
            raise refusal(404, "NotFound", f'{plural} "{name}" not found')
        if method == "PUT":
            return self._put(key, stored, body, status=status)
        if method == "PATCH":
            return self._patch(key, stored, body)
        if method == "DELETE":
            self._note("DELETED", plural, self._objects.pop(key))
        return stored

    def _store_new(self, plural: str, namespace: str, name: str, document: Document, *, keep_status: bool) -> Document:
        key = f"{plural}/{namespace}/{name}"
        if key in self._objects:
            raise refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        meta = document["metadata"]
        meta["namespace"] = namespace
        meta.setdefault("uid", f"uid-{name}-{self._version}")
        meta.setdefault("generation", 1)
        meta.setdefault("creationTimestamp", format_time(self.clock.now()))
        if not keep_status:
            document.pop("status", None)
        self._objects[key] = document
        self._note("ADDED", plural, document)
        return document

    def _put(self, key: str, stored: Document, body: Document, *, status: bool) -> Document:
        version = body["metadata"].get("resourceVersion")
        if version and version != stored["metadata"]["resourceVersion"]:
            raise refusal(409, "Conflict", f"{key}: the object has been modified")
        if status:
            document = copy.deepcopy(stored)
            document["status"] = body.get("status", {})
            for field_ in ("annotations", "finalizers", "ownerReferences"):
                document["metadata"].pop(field_, None)
                if field_ in body["metadata"]:
                    document["metadata"][field_] = body["metadata"][field_]
        else:
            document = body
            document.pop("status", None)
            if "status" in stored:
                document["status"] = stored["status"]
        return self._replace(key, document)

    def _patch(self, key: str, stored: Document, body: Document) -> Document:
        patch = body["metadata"]
        if patch["uid"] != stored["metadata"]["uid"]:
            raise refusal(422, "Invalid", f"{key}: metadata.uid: field is immutable")
        document = copy.deepcopy(stored)
        references = {reference["uid"]: reference for reference in document["metadata"].get("ownerReferences", [])}
        for reference in patch["ownerReferences"]:
            if reference.pop("$patch", None) == "delete":
                references.pop(reference["uid"], None)
            else:
                references[reference["uid"]] = references.get(reference["uid"], {}) | reference
        document["metadata"]["ownerReferences"] = list(references.values())
        return self._replace(key, document)

    def _replace(self, key: str, document: Document) -> Document:
        stored = self._objects[key]
        document["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        document["metadata"]["generation"] = stored["metadata"]["generation"]
        if document == stored:
            return stored
        if document.get("spec") != stored.get("spec"):
            document["metadata"]["generation"] += 1
        self._objects[key] = document
        self._note("MODIFIED", key.partition("/")[0], document)
        return document

    def _note(self, type_: str, plural: str, document: Document) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.changes.append(Change(type_, plural, copy.deepcopy(document)))


def pod_template(image: str = "web:1", **labels: str) -> Document:
    """A pod template with one container, as the server completes it."""
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": image,
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    }


def deployment_document(
    name: str = "web",
    *,
    replicas: int = 3,
    max_surge: int | str | None = "25%",
    max_unavailable: int | str | None = "25%",
    strategy: str = "RollingUpdate",
    template: Document | None = None,
    deadline: int | None = 600,
    history: int | None = 10,
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A Deployment's JSON; keyword arguments that are not named here go into its spec."""
    bounds = {"maxSurge": max_surge, "maxUnavailable": max_unavailable}
    body: Document = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template or pod_template(),
        "strategy": {"type": strategy},
    }
    if strategy == "RollingUpdate":
        body["strategy"]["rollingUpdate"] = {key: value for key, value in bounds.items() if value is not None}
    if deadline is not None:
        body["progressDeadlineSeconds"] = deadline
    if history is not None:
        body["revisionHistoryLimit"] = history
    meta: Document = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "generation": 1,
        "labels": {"app": "web"},
    }
    if annotations:
        meta["annotations"] = dict(annotations)
    return {"metadata": {**meta, **(metadata or {})}, "spec": {**body, **spec}, "status": dict(status or {})}


def replica_set_document(
    name: str = "web-1",
    *,
    replicas: int = 3,
    available: int | None = None,
    template: Document | None = None,
    age: float = 0,
    owner: str | None = "web",
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A ReplicaSet's JSON, older by `age` seconds than START; its status has all pods, and `available` of them available."""
    template = copy.deepcopy(template or pod_template())
    template["metadata"]["labels"]["pod-template-hash"] = name
    meta: Document = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": format_time(START - timedelta(seconds=age)),
        "labels": dict(template["metadata"]["labels"]),
    }
    if owner is not None:
        meta["ownerReferences"] = [owner_reference(owner)]
    if annotations:
        meta["annotations"] = dict(annotations)
    body = {"replicas": replicas, "selector": {"matchLabels": meta["labels"]}, "template": template}
    counts = {
        "replicas": replicas,
        "readyReplicas": replicas if available is None else available,
        "availableReplicas": replicas if available is None else available,
        "observedGeneration": 1,
        "terminatingReplicas": 0,
    }
    return {
        "metadata": {**meta, **(metadata or {})},
        "spec": {**body, **spec},
        "status": {**counts, **(status or {})},
    }


def owner_reference(name: str = "web", *, kind: str = "Deployment", uid: str | None = None) -> Document:
    """A controlling reference."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{name}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_document(name: str = "web-1-a", *, owner: str | None = "web-1", phase: str = "Running") -> Document:
    """A pod's JSON, controlled by a ReplicaSet."""
    meta: Document = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    if owner is not None:
        meta["ownerReferences"] = [owner_reference(owner, kind="ReplicaSet")]
    return {"metadata": meta, "status": {"phase": phase}}


def make_deployment(name: str = "web", **options: Any) -> Deployment:
    """A Deployment; the options are those of `deployment_document`."""
    return from_document(Deployment, deployment_document(name, **options))


def make_replica_set(name: str = "web-1", **options: Any) -> ReplicaSet:
    """A ReplicaSet; the options are those of `replica_set_document`."""
    return from_document(ReplicaSet, replica_set_document(name, **options))


def make_pod(name: str = "web-1-a", **options: Any) -> Pod:
    """A pod; the options are those of `pod_document`."""
    return msgspec.convert(pod_document(name, **options), Pod)


def informers(api: FakeApi) -> tuple[SharedInformer[Deployment], SharedInformer[ReplicaSet], SharedInformer[Pod]]:
    """Informers that `FakeApi.deliver` can fill; they are not run."""
    return (
        SharedInformer(api, DEPLOYMENTS),
        SharedInformer(api, REPLICA_SETS),
        SharedInformer(api, PODS),
    )


class RecordingQueue(Queue):
    """Notes what is asked of it instead of handing keys out."""

    def __init__(self) -> None:
        super().__init__("test")
        self.added: list[str] = []
        self.delayed: list[tuple[str, float]] = []
        self.rate_limited: list[str] = []
        self.forgotten: list[str] = []
        self.failures = 0

    def add(self, key: str) -> None:
        self.added.append(key)

    def add_after(self, key: str, seconds: float) -> None:
        self.delayed.append((key, seconds))

    def add_rate_limited(self, key: str) -> None:
        self.rate_limited.append(key)

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def num_requeues(self, key: str) -> int:
        return self.failures
