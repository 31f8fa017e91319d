"""A Deployment controller over an API server in memory, and the objects that its tests begin with."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from kcm.api.errors import StatusError, is_conflict
from kcm.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.meta import Document, format_time
from kcm.controllers.deployment.deployment_controller import DeploymentController
from kcm.controllers.deployment.util import DESIRED_REPLICAS_ANNOTATION, MAX_REPLICAS_ANNOTATION, REVISION_ANNOTATION
from kcm.events.recorder import FakeRecorder
from tests.clocks import START, FakeClock
from tests.unit.fakes import (
    NAMESPACE,
    FakeApi,
    RecordingQueue,
    deployment_document,
    informers,
    pod_template,
    replica_set_document,
)

STATUS = "PUT deployments/web/status"


class DeploymentWorld:
    """A Deployment controller over a `FakeApi`; its workers are not run, a test calls `sync`."""

    def __init__(self, *, terminating_replicas: bool = True) -> None:
        self.clock = FakeClock()
        self.clock.seconds = 0.0
        self.api = FakeApi(self.clock)
        self.recorder = FakeRecorder()
        self.queue = RecordingQueue()
        self.informers = informers(self.api)
        self.deployments, self.replica_sets, self.pods = self.informers
        self.controller = DeploymentController(
            client=self.api,
            deployments=self.deployments,
            replica_sets=self.replica_sets,
            pods=self.pods,
            recorder=self.recorder,
            queue=self.queue,
            clock=self.clock,
            terminating_replicas=terminating_replicas,
        )

    async def have(self, *objects: Document) -> None:
        """Store objects made by `deployment_document` and the like, and let the caches see them."""
        for document in objects:
            if "spec" not in document:
                self.api.seed(PODS, document)
            elif "strategy" in document["spec"]:
                self.api.seed(DEPLOYMENTS, document)
            else:
                self.api.seed(REPLICA_SETS, document)
        await self.deliver()
        self.queue.added.clear()

    @property
    def deployment(self) -> Deployment:
        """The Deployment as it is stored."""
        return self.api.one(DEPLOYMENTS, "web")

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of its conditions, by type."""
        return {condition.type: condition.reason for condition in self.deployment.status.conditions}

    @property
    def sizes(self) -> dict[str, int]:
        """The pods that each stored ReplicaSet wants, by name."""
        return {rs.metadata.name: rs.spec.replicas for rs in self.api.all(REPLICA_SETS)}

    def replica_set(self, name: str) -> ReplicaSet:
        """A ReplicaSet as it is stored."""
        return self.api.one(REPLICA_SETS, name)

    @property
    def events(self) -> list[str]:
        """The events so far, as `Type Reason: message`."""
        return [f"{event.type} {event.reason}: {event.message}" for event in self.recorder.occurrences]

    async def deliver(self) -> None:
        """Let the caches see everything."""
        await self.api.deliver(self.informers)

    async def sync(self, name: str = "web") -> list[str]:
        """Sync a Deployment with the caches as they are, and give the requests that were made."""
        self.api.calls.clear()
        await self.controller.sync(f"{NAMESPACE}/{name}")
        return [str(call) for call in self.api.calls]

    async def conflict(self) -> list[str]:
        """Sync, expecting that the last write is refused because the object was written before."""
        with pytest.raises(StatusError) as caught:
            await self.sync()
        assert is_conflict(caught.value)
        return [str(call) for call in self.api.calls]

    async def settle(self, name: str = "web") -> None:
        """Sync, let pods become available and the caches see it, until nothing changes any more."""
        for _ in range(100):
            await self.deliver()
            with suppress(StatusError):
                await self.sync(name)
            for replica_set in self.api.all(REPLICA_SETS):
                self.run_pods(replica_set.metadata.name)
            if not self.api.changes:
                return
        raise AssertionError("the Deployment does not come to rest")

    def run_pods(self, name: str, available: int | None = None) -> None:
        """Do the ReplicaSet controller's work: as many pods as wanted, and so many of them available, or all."""

        def edit(document: Document) -> None:
            size = document["spec"]["replicas"]
            ready = size if available is None else available
            counts = {"replicas": size, "readyReplicas": ready, "availableReplicas": ready, "terminatingReplicas": 0}
            document["status"] = {**counts, "observedGeneration": document["metadata"]["generation"]}

        self.api.change(REPLICA_SETS, name, edit)


def noted(revision: str, desired: int = 3, most: int = 4) -> dict[str, str]:
    """The annotations that the controller keeps on a ReplicaSet."""
    return {
        REVISION_ANNOTATION: revision,
        DESIRED_REPLICAS_ANNOTATION: str(desired),
        MAX_REPLICAS_ANNOTATION: str(most),
    }


def progressing(reason: str = "NewReplicaSetAvailable", status: str = "True", *, ago: float = 0) -> Document:
    moment = format_time(START - timedelta(seconds=ago))
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }


AVAILABLE: Document = {
    "type": "Available",
    "status": "True",
    "reason": "MinimumReplicasAvailable",
    "message": "Deployment has minimum availability.",
    "lastUpdateTime": format_time(START),
    "lastTransitionTime": format_time(START),
}


def complete(replicas: int = 3, **more: Any) -> Document:
    """The status of a rollout that is done."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    conditions = [AVAILABLE, progressing()]
    return {**counts, "terminatingReplicas": 0, "observedGeneration": 1, "conditions": conditions, **more}


def settled(**options: Any) -> Document:
    """A Deployment whose rollout is done, at revision 1."""
    options.setdefault("status", complete(options.get("replicas", 3)))
    annotations = {REVISION_ANNOTATION: "1", **options.pop("annotations", {})}
    return deployment_document(annotations=annotations, **options)


def old_set(name: str = "old", replicas: int = 3, available: int | None = None, *, age: float = 9) -> Document:
    template = pod_template("web:0")
    return replica_set_document(
        name, replicas=replicas, available=available, template=template, annotations=noted("0"), age=age
    )
