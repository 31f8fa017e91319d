"""A cluster's workloads are handed from the stock manager to kcm and back: nothing may move that did not move before.

Neither a scheduler nor a node runs here: a pod is placed by its template, and then runs at once, or waits until the test binds
it, which is how a rolling update is held in its middle.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kcm.testing import ControlPlane
from tests.audit import User, asked_of
from tests.integration.playing import NODE, OURS, STOCK, Side, claim, plural, running_pods, workload
from tests.integration.shapes import shapes, until_settled
from tests.managers import (
    UNLIMITED,
    Document,
    Manager,
    Managers,
    Namespace,
    complete,
    is_ready,
    names,
    serving,
    watched,
)
from tests.newer_server import NewerServer

CONTROLLERS = (
    "--controllers=deployment-controller,replicaset-controller,replicationcontroller-controller,statefulset-controller"
)
# One worker each, so that a queue is worked off in order: once a late object was handled, so were all before it.
ONE_WORKER = tuple(f"--concurrent-{kind}-syncs=1" for kind in ("deployment", "replicaset", "rc", "statefulset"))
FLAGS = (CONTROLLERS, "--leader-elect=false", "--secure-port=0", "--v=4", *ONE_WORKER, *UNLIMITED)


@pytest.fixture(scope="module")
def swapping_control_plane() -> Iterator[ControlPlane]:
    with serving(ControlPlane(audit_log=True)) as control_plane:
        yield control_plane


@pytest.fixture
def control_plane(swapping_control_plane: ControlPlane) -> ControlPlane:
    return swapping_control_plane


DIRECTIONS = pytest.mark.parametrize(
    ("first", "second"), [(STOCK, OURS), (OURS, STOCK)], ids=["stock to kcm", "kcm to stock"]
)


# Managers


class Swap:
    """Runs one manager at a time, each as a user of its own."""

    def __init__(self, control_plane: ControlPlane, ns: Namespace, managers: Managers) -> None:
        self._control_plane = control_plane
        self._ns = ns
        self._managers = managers
        self._terms = 0
        self._holder: Manager | None = None

    def user(self, side: Side) -> User:
        """Who the next manager is to the server."""
        self._terms += 1
        return User(self._control_plane, self._ns, name=f"{side.name}-{self._terms}-of-{self._ns.name}")

    async def to(self, side: Side) -> User:
        """End the present manager, start another one, and wait until that has handled everything that there was."""
        user = self.user(side)
        await self.through(user.kubeconfig(), side)
        return user

    async def through(self, kubeconfig: Path, side: Side) -> None:
        """The same, with a way to the server."""
        if self._holder is not None:
            self._holder.kill()
        self._holder = self._managers.start(*FLAGS, kubeconfig=kubeconfig, program=side.program)
        # The first thing done shows that it works, and so that its caches are filled; the second comes after all in them.
        for _ in range(2):
            await self.idle()

    async def idle(self) -> None:
        """Wait until the present manager has handled what it knows of now, since it handled something new after it."""
        created = await self._control_plane.request(
            "POST", "/api/v1/namespaces", {"metadata": {"generateName": "new-"}}
        )
        async with watched(self._control_plane, created["metadata"]["name"]) as elsewhere:
            for kind in ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"):
                await elsewhere.create(f"{kind.lower()}s", workload(kind, kind.lower(), replicas=0))
            await until_settled(elsewhere)


@pytest.fixture(autouse=True)
async def node(ns: Namespace) -> AsyncIterator[None]:
    async with running_pods(ns):
        yield


@pytest.fixture
def swap(control_plane: ControlPlane, ns: Namespace, managers: Managers) -> Swap:
    return Swap(control_plane, ns, managers)


WRITES = ("create", "update", "patch", "delete", "deletecollection")


async def writes(user: User) -> list[str]:
    """What a manager wrote in the namespace."""
    return [f"{event['verb']} {event['requestURI']}" for event in await user.requests("", *WRITES)]


async def bind(control_plane: ControlPlane, ns: Namespace, pod: Document) -> None:
    name = pod["metadata"]["name"]
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
    await control_plane.request("POST", f"/api/v1/namespaces/{ns.name}/pods/{name}/binding", body)


# Tests


@DIRECTIONS
async def test_workloads_at_rest_are_not_touched(
    ns: Namespace, swap: Swap, control_plane: ControlPlane, first: Side, second: Side
) -> None:
    await swap.to(first)
    for document in shapes():
        await ns.create(plural(document), document)
    await until_settled(ns)
    # Some have a history, and one stays between two revisions.
    for name, kind in (("d-rich", "deployments"), ("d-none", "deployments"), ("s-rich", "statefulsets")):
        await ns.patch(kind, name, {"spec": {"template": {"metadata": {"annotations": {"example.com/v": "2"}}}}})
    for name in ("s-parallel", "s-ondelete"):
        await ns.patch(
            "statefulsets", name, {"spec": {"template": {"metadata": {"annotations": {"example.com/v": "2"}}}}}
        )
    await until_settled(ns)
    pods = {pod["metadata"]["uid"] for pod in ns.pods}
    assert len(pods) == 2 * 9

    for side in (second, first):
        user = await swap.to(side)
        assert await writes(user) == []
    await until_settled(ns)
    assert {pod["metadata"]["uid"] for pod in ns.pods} == pods

    # And it is alive: what changes now is done, with the revisions that there are.
    sets, revisions = names(ns.replica_sets), names(ns.all("controllerrevisions"))
    user = await swap.to(second)
    await ns.scale("deployments", "d-rich", 3)
    await ns.scale("statefulsets", "s-rich", 3)
    await until_settled(ns)
    assert len(ns.pods) == len(pods) + 2
    assert (names(ns.replica_sets), names(ns.all("controllerrevisions"))) == (sets, revisions)
    assert {asked_of(event) for event in await user.requests("", "create")} == {
        "pods",
        "persistentvolumeclaims",
        "events",
    }


@DIRECTIONS
async def test_a_rolling_update_is_finished_by_the_other(
    ns: Namespace, swap: Swap, control_plane: ControlPlane, first: Side, second: Side
) -> None:
    await swap.to(first)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    await ns.create("deployments", workload("Deployment", "web", replicas=4, strategy=strategy))
    claims = [claim("d", "1Gi")]
    await ns.create(
        "statefulsets",
        workload("StatefulSet", "db", replicas=3, volumeClaimTemplates=claims),
    )
    await until_settled(ns)

    # The new pods have no place yet, so both updates stop in the middle.
    unplaced = {"spec": {"template": {"spec": {"nodeName": None, "priority": None}}}}
    await ns.patch("deployments", "web", unplaced)
    await ns.patch("statefulsets", "db", unplaced)

    def waiting(owner: str) -> list[Document]:
        return [
            pod
            for pod in ns.pods
            if pod["metadata"]["labels"]["app"] == owner
            and not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def halfway() -> bool:
        web, db = ns.get("deployments", "web"), ns.get("statefulsets", "db")
        counts = (web["status"].get("updatedReplicas"), web["status"]["replicas"], len(waiting("web")))
        ready = (db["status"].get("readyReplicas"), db["status"].get("updatedReplicas"), len(waiting("db")))
        return counts == (2, 5, 2) and ready == (2, 1, 1) and web["status"].get("terminatingReplicas") == 0

    await ns.until(halfway, "both updates wait for their new pods")
    await swap.idle()
    for side in (second, first):
        assert await writes(await swap.to(side)) == []

    user = await swap.to(second)
    before = {pod["metadata"]["uid"] for pod in ns.history["pods"]}
    bound: set[str] = set()

    def to_place() -> list[Document]:
        return [pod for pod in (*waiting("web"), *waiting("db")) if pod["metadata"]["uid"] not in bound]

    def finished() -> bool:
        complete_sets = complete(ns.get("deployments", "web")) and complete(ns.get("statefulsets", "db"))
        return complete_sets and len(ns.pods) == 7 and all(is_ready(pod) for pod in ns.pods)

    while not finished():
        await ns.until(lambda: to_place() or finished(), "a pod to place, or the end")
        for pod in to_place():
            bound.add(pod["metadata"]["uid"])
            await bind(control_plane, ns, pod)

    assert len(ns.replica_sets) == len(ns.all("controllerrevisions")) == 2
    # Each pod that was still of the old revision was replaced once, and nothing else was.
    made = {pod["metadata"]["uid"] for pod in ns.history["pods"]} - before
    assert len(made) == 2 + 2
    created = [asked_of(event) for event in await user.requests("", "create") if asked_of(event) != "events"]
    assert created == ["pods"] * 4


async def test_a_newer_servers_fields_roll_nothing_and_are_kept(ns: Namespace, swap: Swap) -> None:
    """Who stands behind it decodes no field of tomorrow either; kcm keeps those, and must not take them for a change."""
    await swap.to(STOCK)
    for document in shapes():
        await ns.create(plural(document), document)
    await until_settled(ns)
    before = {kind: names(ns.all(kind)) for kind in ("replicasets", "controllerrevisions")}
    pods = {pod["metadata"]["uid"] for pod in ns.pods}

    user = swap.user(OURS)
    async with NewerServer(user.kubeconfig()) as newer:
        await swap.through(newer.kubeconfig(), OURS)
        assert await writes(user) == []

        # What is written keeps the fields.
        for name, kind in (("d-rich", "deployments"), ("r-rich", "replicasets"), ("s-rich", "statefulsets")):
            await ns.scale(kind, name, 3)
        await ns.scale("replicationcontrollers", "c-odd", 3)
        await until_settled(ns)
        assert {kind: names(ns.all(kind)) for kind in before} == before
        assert pods < {pod["metadata"]["uid"] for pod in ns.pods}
        assert len(ns.pods) == len(pods) + 4
        assert newer.puts > 4

        # And a change of today's fields is one: there and back, which finds what was there.
        annotated = {"spec": {"template": {"metadata": {"annotations": {"example.com/v": "2"}}}}}
        plain = {"spec": {"template": {"metadata": {"annotations": {"example.com/v": None}}}}}
        for patch in (annotated, plain):
            await ns.patch("deployments", "d-odd", patch)
            await ns.patch("statefulsets", "s-rich", patch)
            await until_settled(ns)
            added = {kind: names(ns.all(kind)) - before[kind] for kind in before}
            assert {kind: len(found) for kind, found in added.items()} == {"replicasets": 1, "controllerrevisions": 1}
        revisions = [found["metadata"]["name"] for found in ns.all("controllerrevisions")]
        assert ns.get("statefulsets", "s-rich")["status"]["currentRevision"] in before["controllerrevisions"]
        assert len(revisions) == len(before["controllerrevisions"]) + 1
        assert newer.dropped == []

    # Nor does the stock manager find anything to do about what was written.
    assert await writes(await swap.to(STOCK)) == []
