"""What tests without a scheduler and a node need: pods that are placed by their template, and somebody who runs them.

Also the two managers that such a test can be run with: what both do is what is right.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import aiohttp

from kcm.testing import ControlPlane
from tests.managers import KCM, Document, Namespace

NODE = "node-0"
#: An image that no node can pull.
BROKEN = "registry.test/broken:1"


class Side(NamedTuple):
    """A manager that may hold the workloads."""

    name: str
    program: tuple[str, ...]


STOCK = Side("stock", (str(ControlPlane.binary("kube-controller-manager")),))
OURS = Side("kcm", KCM)


def placed(name: str, template: Document | None = None, **spec: object) -> Document:
    """A pod template, by default a small one, whose pods run at once."""
    made = copy.deepcopy(template or {"spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]}})
    made.setdefault("metadata", {})["labels"] = {"app": name, "example.com/team.of": "Ä".encode().hex()}
    made["metadata"].pop("finalizers", None)
    made["spec"].pop("schedulingGates", None)
    made["spec"] |= {"nodeName": NODE, **spec}
    return made


def workload(kind: str, name: str, *, template: Document | None = None, **spec: object) -> Document:
    selector = {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}}
    body: Document = {"replicas": 2, "selector": selector, "template": template or placed(name), **spec}
    if kind == "StatefulSet":
        body.setdefault("serviceName", "")
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}


def claim(name: str, size: str) -> Document:
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}


def plural(document: Document) -> str:
    return str(document["kind"]).lower() + "s"


def can_start(pod: Document) -> bool:
    """Whether a node can pull the images."""
    return all(container["image"] != BROKEN for container in pod["spec"]["containers"])


@asynccontextmanager
async def running_pods(ns: Namespace, starts: Callable[[Document], bool] = can_start) -> AsyncIterator[None]:
    """Play the node: each pod that has a place runs and is ready, until it is deleted, and then ends at once."""
    done: set[tuple[str, bool]] = set()

    def to_do() -> list[tuple[str, str, bool]]:
        metas = [
            (pod["metadata"], "deletionTimestamp" in pod["metadata"])
            for pod in ns.pods
            if "nodeName" in pod["spec"] and ("deletionTimestamp" in pod["metadata"] or starts(pod))
        ]
        return [(meta["name"], meta["uid"], ends) for meta, ends in metas if (meta["uid"], ends) not in done]

    async def end(name: str, uid: str) -> None:
        try:
            await ns.delete("pods", name, gracePeriodSeconds=0, preconditions={"uid": uid})
        except aiohttp.ClientResponseError as error:
            if error.status not in {404, 409}:  # the server has done it already
                raise

    async def play() -> None:
        while True:
            await ns.until(to_do, "a pod to start or to end", within=3600)
            for name, uid, ends in to_do():
                done.add((uid, ends))
                if ends:
                    await end(name, uid)
                else:
                    ready = {"type": "Ready", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
                    await ns.patch("pods", name, {"status": {"phase": "Running", "conditions": [ready]}}, "status")

    playing = asyncio.create_task(play())
    try:
        yield
    finally:
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
