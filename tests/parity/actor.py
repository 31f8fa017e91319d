"""kcm's side of what the oracle does to a Deployment, with a server that grants every request but a few."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime

import msgspec

from kcm.api.client import JSON, Body, Client
from kcm.api.errors import AggregateError, StatusError, status_error
from kcm.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.meta import Document
from kcm.controllers.deployment.deployment_controller import DeploymentController
from kcm.controllers.deployment.sync import DeploymentSync
from kcm.events.recorder import FakeRecorder
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Indexer
from kcm.workqueue.queue import Queue
from tests.parity.make import NAMESPACE, NOW


class StoppedClock:
    """Shows one time for ever."""

    def __init__(self, moment: datetime = NOW) -> None:
        self._moment = moment

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return self._moment


class GrantingClient(Client):
    """A client whose server grants every request unless told otherwise, keeps nothing, and has the live Deployment."""

    def __init__(self, live: Document, refusals: Sequence[Document]) -> None:
        self.writes: list[Document] = []
        self._live = live
        self._refusals = [dict(refusal) for refusal in refusals]

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        self.writes.append({"method": method, "path": path, "body": msgspec.json.decode(data) if data else None})
        for refusal in self._refusals:
            if (refusal["method"], refusal["path"]) == (method, path):
                refusal["granted"] -= 1
                if refusal["granted"] < 0:
                    status = msgspec.json.encode(refusal["status"])
                    raise status_error(refusal["status"]["code"], status, verb=method, path=path)
        if method == "GET":
            return msgspec.json.encode(self._live)
        if method == "PATCH":
            return msgspec.json.encode({"metadata": {"name": path.rpartition("/")[2]}})
        return data or b"{}"


class WakeupQueue(Queue):
    """Records when the controller wants to be woken."""

    def __init__(self) -> None:
        super().__init__("parity")
        self.wakeups: list[str] = []

    def add_after(self, key: str, seconds: float) -> None:
        self.wakeups.append(f"{key} after {round(seconds * 1_000_000)} us")

    def add_rate_limited(self, key: str) -> None:
        self.wakeups.append(f"{key} rate limited")


class Actor:
    """What acts on one Deployment."""

    def __init__(self, live: Document, refusals: Sequence[Document] = ()) -> None:
        self.client = GrantingClient(live, refusals)
        self.recorder = FakeRecorder()
        self.queue = WakeupQueue()

    def steps(self, deployment: Deployment) -> DeploymentSync:
        """The working copy that single steps act on."""
        return DeploymentSync(
            deployment=deployment,
            client=self.client,
            recorder=self.recorder,
            queue=self.queue,
            replica_sets=Indexer[ReplicaSet](),
            clock=StoppedClock(),
        )

    def controller(self, world: Document) -> DeploymentController:
        """A controller over caches with a world's objects."""
        deployments = SharedInformer(self.client, DEPLOYMENTS)
        replica_sets = SharedInformer(self.client, REPLICA_SETS)
        pods = SharedInformer(self.client, PODS)
        made = DeploymentController(
            client=self.client,
            deployments=deployments,
            replica_sets=replica_sets,
            pods=pods,
            recorder=self.recorder,
            queue=self.queue,
            clock=StoppedClock(),
            terminating_replicas=world["counted"],
        )
        deployments.store.put(DEPLOYMENTS.decode(msgspec.json.encode(world["deployment"])))
        for document in world["replicaSets"]:
            replica_sets.store.put(REPLICA_SETS.decode(msgspec.json.encode(document)))
        for document in world["pods"]:
            pods.store.put(PODS.decode(msgspec.json.encode(document)))
        return made

    def outcome(self, runner: asyncio.Runner, action: Coroutine[object, object, None]) -> Document:
        """Run an action and tell all that it does, as the oracle does."""
        failed = False
        try:
            runner.run(action)
        except (ValueError, StatusError, AggregateError):
            failed = True
        events = [f"{event.type} {event.reason} {event.message}" for event in self.recorder.occurrences]
        return {"writes": self.client.writes, "events": events, "wakeups": self.queue.wakeups, "failed": failed}


def sync(runner: asyncio.Runner, world: Document) -> Document:
    """What one sync does in a world."""
    actor = Actor(world["live"] or world["deployment"], world["refusals"])
    return actor.outcome(runner, actor.controller(world).sync(f"{NAMESPACE}/web"))


def comparable(outcome: Document) -> Document:
    """An outcome without what the server adds or ignores; claims come first, since they follow no order."""
    ignored = {"PUT": {"kind", "apiVersion"}, "DELETE": {"kind", "apiVersion"}, "POST": {"status"}}
    writes = [
        {**write, "body": {key: value for key, value in body.items() if key not in ignored.get(write["method"], ())}}
        if isinstance(body := write["body"], dict)
        else write
        for write in outcome["writes"]
    ]
    claims = [write for write in writes if write["method"] in {"GET", "PATCH"}]
    claims.sort(key=lambda write: (write["method"], write["path"]))
    rest = [write for write in writes if write["method"] not in {"GET", "PATCH"}]
    return {**outcome, "writes": claims + rest}
