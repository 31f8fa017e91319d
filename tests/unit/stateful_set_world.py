"""A StatefulSet controller over an API server in memory, which treats pods as a server with nodes does.

A created pod is Pending until the test says more. A deleted one ends at once if it is Pending or has ended, as it would on the
server; a running one becomes unready and stays, terminating, until the test says that it is gone.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from kcm.api.pod_template import revision_data
from kcm.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.api.types.apps import ControllerRevision, StatefulSet
from kcm.api.types.core import PersistentVolumeClaim, Pod
from kcm.api.types.meta import Document, format_time, from_document
from kcm.clock import Clock
from kcm.consistency import ConsistencyStore, NoConsistencyStore, RealConsistencyStore
from kcm.controllers.history import hash_revision, revision_name
from kcm.controllers.statefulset.revisions import Comparison
from kcm.controllers.statefulset.stateful_set import StatefulSetController
from kcm.controllers.statefulset.stateful_set_utils import POD_INDEX_LABEL, POD_NAME_LABEL, REVISION_LABEL
from kcm.events.recorder import FakeRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.metrics import Metrics
from tests.clocks import START, FakeClock
from tests.unit.fakes import NAMESPACE, FakeApi, RecordingQueue, owner_reference, pod_template

KEY = f"{NAMESPACE}/web"
STATUS = "PUT statefulsets/web/status"


def stateful_set_document(
    name: str = "web",
    *,
    image: str = "web:1",
    replicas: int = 3,
    strategy: str = "RollingUpdate",
    partition: int | None = 0,
    max_unavailable: int | str | None = 1,
    policy: str = "OrderedReady",
    claims: tuple[str, ...] = (),
    retention: tuple[str, str] | None = ("Retain", "Retain"),
    start: int = 0,
    metadata: Document | None = None,
    status: Document | None = None,
    **spec: Any,
) -> Document:
    """A StatefulSet's JSON; `retention` is (whenScaled, whenDeleted); other keyword arguments go into its spec."""
    update: Document = {"type": strategy}
    if strategy == "RollingUpdate" and partition is not None:
        update["rollingUpdate"] = {"partition": partition}
        if max_unavailable is not None:
            update["rollingUpdate"]["maxUnavailable"] = max_unavailable
    body: Document = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "serviceName": "web-service",
        "template": pod_template(image),
        "podManagementPolicy": policy,
        "updateStrategy": update,
        "revisionHistoryLimit": 10,
    }
    if claims:
        body["volumeClaimTemplates"] = [claim_template(claim) for claim in claims]
    if retention is not None:
        body["persistentVolumeClaimRetentionPolicy"] = dict(zip(("whenScaled", "whenDeleted"), retention, strict=True))
    if start:
        body["ordinals"] = {"start": start}
    meta: Document = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {**meta, **(metadata or {})},
        "spec": {**body, **spec},
        "status": dict(status or {"replicas": 0, "availableReplicas": 0}),
    }


def claim_template(name: str, **metadata: Any) -> Document:
    """A claim template as the server completes it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    }


def claim_document(name: str, *owners: Document, deleted: bool = False) -> Document:
    """A claim with owner references."""
    template = claim_template(name, namespace=NAMESPACE, uid=f"uid-{name}")
    if owners:
        template["metadata"]["ownerReferences"] = list(owners)
    if deleted:
        template["metadata"]["deletionTimestamp"] = format_time(START)
    return template


def reference_to_set(uid: str = "uid-web", **changes: Any) -> Document:
    """An owner reference to the StatefulSet."""
    return {**owner_reference(kind="StatefulSet", uid=uid), **changes}


def reference_to_pod(name: str = "web-0", uid: str | None = None, **changes: Any) -> Document:
    """An owner reference to a pod."""
    return {**owner_reference(name, kind="Pod", uid=uid), "apiVersion": "v1", **changes}


def name_of(image: str = "web:1", collisions: int = 0, owner: str = "web") -> str:
    """The name of the revision of `stateful_set_document` with an image."""
    return revision_name(owner, hash_revision(revision_data(stateful_set_document(image=image)), collisions))


#: The names of the first two revisions.
R1, R2 = name_of("web:1"), name_of("web:2")


def revision_document(image: str = "web:1", *, number: int = 1, name: str = "", owner: str | None = "web") -> Document:
    """A ControllerRevision's JSON, as the controller makes it."""
    data = revision_data(stateful_set_document(image=image))
    labels = {"app": "web", "controller.kubernetes.io/hash": hash_revision(data, 0)}
    meta: Document = {
        "name": name or name_of(image),
        "namespace": NAMESPACE,
        "uid": f"uid-{name or name_of(image)}",
        "labels": labels,
    }
    if owner is not None:
        meta["ownerReferences"] = [owner_reference(owner, kind="StatefulSet")]
    return {"metadata": meta, "data": msgspec.json.decode(data), "revision": number}


def stateful_pod_document(
    ordinal: int | str = 0,
    *,
    revision: str = R1,
    phase: str = "Running",
    ready: bool = True,
    ready_for: float = 0,
    deleted: bool = False,
    owner: str | None = "web",
    claims: tuple[str, ...] = (),
    labels: Document | None = None,
    name: str = "",
) -> Document:
    """A pod's JSON as the controller makes it, and the server completes it."""
    name = name or f"web-{ordinal}"
    own = {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal), REVISION_LABEL: revision}
    meta: Document = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "labels": {"app": "web", **own} if labels is None else labels,
    }
    if owner is not None:
        meta["ownerReferences"] = [owner_reference(owner, kind="StatefulSet")]
    if deleted:
        meta["deletionTimestamp"] = format_time(START)
    template = pod_template()["spec"]
    token = {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in claims]
    return {
        "metadata": meta,
        "spec": {**template, "nodeName": "node-1", "volumes": [*volumes, token]},
        "status": {"phase": phase, "conditions": [_ready(ready and phase == "Running" and not deleted, ready_for)]},
    }


def _ready(value: bool, seconds_ago: float = 0) -> Document:
    since = format_time(START.fromtimestamp(START.timestamp() - seconds_ago, START.tzinfo))
    return {"type": "Ready", "status": "True" if value else "False", "lastTransitionTime": since}


def make_stateful_set(name: str = "web", **options: Any) -> StatefulSet:
    """A StatefulSet; the options are those of `stateful_set_document`."""
    return from_document(StatefulSet, stateful_set_document(name, **options))


def make_stateful_pod(ordinal: int | str = 0, **options: Any) -> Pod:
    """A pod; the options are those of `stateful_pod_document`."""
    return msgspec.convert(stateful_pod_document(ordinal, **options), Pod)


def make_claim(name: str, *owners: Document, **options: Any) -> PersistentVolumeClaim:
    """A claim; the options are those of `claim_document`."""
    return from_document(PersistentVolumeClaim, claim_document(name, *owners, **options))


def make_revision(image: str = "web:1", **options: Any) -> ControllerRevision:
    """A revision; the options are those of `revision_document`."""
    return CONTROLLER_REVISIONS.decode(msgspec.json.encode(revision_document(image, **options)))


class Counters(NamedTuple):
    """A StatefulSet's counters in the order in which the tests write them."""

    replicas: int
    ready: int
    available: int
    current: int
    updated: int


class NodeApi(FakeApi):
    """A server with nodes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        #: The bodies of requests as they came, by `METHOD target`.
        self.bodies: dict[str, bytes] = {}
        #: What else happens while an answer is on its way; told how many requests there were.
        self.meanwhile: Callable[[int], Awaitable[None]] | None = None

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        body = options.get("body")
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        await asyncio.sleep(0)  # others go on meanwhile
        try:
            return await super().request(method, path, **options)
        finally:
            self.bodies[str(self.calls[-1])] = body or b""
            if self.meanwhile is not None:
                await self.meanwhile(len(self.calls))

    def _store_new(self, plural: str, namespace: str, name: str, document: Document, *, keep_status: bool) -> Document:
        if plural == "pods" and not keep_status:
            document["status"] = {"phase": "Pending"}
            keep_status = True
        return super()._store_new(plural, namespace, name, document, keep_status=keep_status)

    def _answer(self, method: str, key: str, body: Document, *, status: bool) -> Document:
        stored = self._objects.get(key)
        running = stored is not None and stored.get("status", {}).get("phase") in {"Running", "Unknown"}
        if not (method == "DELETE" and key.startswith("pods/") and stored is not None and running):
            return super()._answer(method, key, body, status=status)
        document = copy.deepcopy(stored)
        document["metadata"]["deletionTimestamp"] = format_time(self.clock.now())
        document["status"]["conditions"] = [_ready(False)]
        return self._replace(key, document)


class StatefulSetWorld:
    """A StatefulSet controller over a `NodeApi`; its workers are not run, a test calls `sync`."""

    def __init__(
        self,
        *,
        consistent: bool = False,
        max_unavailable: bool = True,
        recreate: bool = False,
        same_template: Comparison | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.clock.seconds = 0.0
        self.api = NodeApi(self.clock)
        self.recorder = FakeRecorder()
        self.queue = RecordingQueue()
        self.metrics = Metrics()
        self.metrics.stateful_set.register()
        self.stateful_sets = SharedInformer(self.api, STATEFUL_SETS)
        self.pods = SharedInformer(self.api, PODS)
        self.claims = SharedInformer(self.api, PERSISTENT_VOLUME_CLAIMS)
        self.revisions = SharedInformer(self.api, CONTROLLER_REVISIONS)
        self.informers = (self.stateful_sets, self.pods, self.claims, self.revisions)
        for informer in self.informers:
            informer.bookmark("100")  # as after a first list
        readers: dict[str, Callable[[], str]] = {
            PODS.group_resource: lambda: self.pods.store.resource_version,
            PERSISTENT_VOLUME_CLAIMS.group_resource: lambda: self.claims.store.resource_version,
            STATEFUL_SETS.group_resource: lambda: self.stateful_sets.store.resource_version,
        }
        consistency: ConsistencyStore = RealConsistencyStore(readers) if consistent else NoConsistencyStore()
        self.controller = StatefulSetController(
            client=self.api,
            stateful_sets=self.stateful_sets,
            pods=self.pods,
            claims=self.claims,
            revisions=self.revisions,
            recorder=self.recorder,
            queue=self.queue,
            consistency=consistency,
            metrics=self.metrics.stateful_set,
            clock=self.clock,
            max_unavailable=max_unavailable,
            recreate=recreate,
            same_template=same_template,
        )

    async def have(self, *objects: Document) -> None:
        """Store objects made by the functions above, and let the caches see them."""
        for document in objects:
            if "data" in document:
                self.api.seed(CONTROLLER_REVISIONS, document)
            elif "updateStrategy" in document["spec"]:
                self.api.seed(STATEFUL_SETS, document)
            elif "containers" in document["spec"]:
                self.api.seed(PODS, document)
            else:
                self.api.seed(PERSISTENT_VOLUME_CLAIMS, document)
        await self.deliver()
        self.queue.added.clear()

    async def deliver(self) -> None:
        """Let the caches see everything."""
        await self.api.deliver(self.informers)

    async def sync(self, key: str = KEY) -> list[str]:
        """Let the caches see everything, sync, and give the requests that were made."""
        await self.deliver()
        return await self.sync_stale(key)

    async def sync_stale(self, key: str = KEY) -> list[str]:
        """Sync with the caches as they are, and give the requests that were made."""
        self.api.calls.clear()
        await self.controller.sync(key)
        return [str(call) for call in self.api.calls]

    async def fail(self, match: str, error: type[Exception] = Exception) -> list[str]:
        """Sync, expecting an error, and give the requests that were made."""
        await self.deliver()
        self.api.calls.clear()
        with pytest.raises(error, match=match):
            await self.controller.sync(KEY)
        return [str(call) for call in self.api.calls]

    # What others do

    def edit(self, **spec: Any) -> None:
        """Change the StatefulSet's spec."""
        self.api.change(STATEFUL_SETS, "web", lambda document: document["spec"].update(spec))

    def set_image(self, image: str) -> None:
        """Change the StatefulSet's template."""
        self.edit(template=pod_template(image))

    def run(self, *ordinals: int, ready: bool = True) -> None:
        """Have pods run, ready or not."""

        def edit(document: Document) -> None:
            document["status"] = {"phase": "Running", "conditions": [_ready(ready)]}

        for ordinal in ordinals:
            self.api.change(PODS, f"web-{ordinal}", edit)

    def end(self, ordinal: int, phase: str = "Failed") -> None:
        """Have a pod end."""
        status = {"phase": phase, "conditions": [_ready(False)]}
        self.api.change(PODS, f"web-{ordinal}", lambda document: document.update(status=status))

    def finish(self, *ordinals: int) -> None:
        """Have pods be gone."""
        for ordinal in ordinals:
            self.api.remove(PODS, f"web-{ordinal}")

    # What there is

    @property
    def stateful_set(self) -> StatefulSet:
        """The StatefulSet as it is stored."""
        return self.api.one(STATEFUL_SETS, "web")

    @property
    def status(self) -> Document:
        """Its status as it is stored."""
        status: Document = self.stateful_set.document()["status"]
        return status

    @property
    def counters(self) -> Counters:
        """Its counters as they are stored."""
        status = self.stateful_set.status
        return Counters(
            status.replicas,
            status.ready_replicas,
            status.available_replicas,
            status.current_replicas,
            status.updated_replicas,
        )

    @property
    def named(self) -> tuple[str, str]:
        """The names of its current and its update revision as they are stored."""
        return self.stateful_set.status.current_revision, self.stateful_set.status.update_revision

    @property
    def events(self) -> list[str]:
        """The events so far, as `Type Reason: message`."""
        return [f"{event.type} {event.reason}: {event.message}" for event in self.recorder.occurrences]

    @property
    def reasons(self) -> list[str]:
        """The reasons of the events since the last time."""
        reasons = [event.reason for event in self.recorder.occurrences]
        self.recorder.occurrences.clear()
        return reasons

    def revision_of(self, ordinal: int) -> str:
        """The revision that a stored pod was made from."""
        return self.api.one(PODS, f"web-{ordinal}").metadata.labels[REVISION_LABEL]

    def body(self, call: str) -> Document:
        """The body of the first request of the last sync that was this one."""
        return next(found.body for found in self.api.calls if str(found) == call)


async def running(*, pods: int | None = None, revision: str = R1, **options: Any) -> StatefulSetWorld:
    """A world with one StatefulSet of revision 1 that is complete, with all pods ready and its claims there."""
    gates: Document = {
        name: options.pop(name) for name in ("consistent", "recreate", "same_template") if name in options
    }
    made = StatefulSetWorld(max_unavailable=options.pop("many", True), **gates)
    count = options.get("replicas", 3) if pods is None else pods
    counts = dict.fromkeys(
        ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"), count
    )
    rest = {"currentRevision": revision, "updateRevision": revision, "observedGeneration": 1, "collisionCount": 0}
    status = {
        **{key: value for key, value in counts.items() if value or key in {"replicas", "availableReplicas"}},
        **rest,
    }
    document = stateful_set_document(status=status, **options)
    first, claims = options.get("start", 0), options.get("claims", ())
    ordinals = range(first, first + count)
    await made.have(
        document,
        revision_document(),
        *(stateful_pod_document(ordinal, claims=claims) for ordinal in ordinals),
        *(claim_document(f"{claim}-web-{ordinal}") for claim in claims for ordinal in ordinals),
    )
    return made
