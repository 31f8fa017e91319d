"""A cluster's workloads are handed from the stock manager to kcm and back: nothing may move that did not move before.

Neither a scheduler nor a node runs here: a pod is placed by its template, and then runs at once, or waits until the test binds
it, which is how a rolling update is held in its middle.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from kcm.testing import ControlPlane
from tests.audit import User, asked_of
from tests.integration.playing import NODE, OURS, STOCK, Side, claim, placed, plural, running_pods, workload
from tests.integration.rich_template import RICH_TEMPLATE
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


# Shapes


ODD_QUANTITIES = {
    "containers": [
        {
            "name": "c",
            "image": "registry.test/c:1",
            "env": [
                {"name": "TEXT", "value": '<a> & b \u2028 ünïcödé 東京 \U0001f600 \\ "'},
                {"name": "NONE"},
                *({"name": f"E{n}", "value": "x" * n} for n in range(100)),
            ],
            "resources": {
                "limits": {"cpu": "0.5", "memory": "1.5Gi", "ephemeral-storage": "1e9"},
                "requests": {"cpu": "100000u", "memory": "100M"},
            },
        }
    ],
    "volumes": [
        {"name": "scratch", "emptyDir": {"sizeLimit": "0.1Gi"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim("x", "2Gi")["spec"]}}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "c", "optional": True}}]}},
    ],
}


def shapes() -> list[Document]:
    """Workloads of many shapes, each with labels of its own."""
    odd = {"spec": ODD_QUANTITIES}
    retention = "persistentVolumeClaimRetentionPolicy"
    return [
        workload("Deployment", "d-rich", template=placed("d-rich", RICH_TEMPLATE)),
        workload(
            "Deployment", "d-odd", template=placed("d-odd", odd), strategy={"type": "Recreate"}, minReadySeconds=1
        ),
        workload("Deployment", "d-none", replicas=0, revisionHistoryLimit=0, progressDeadlineSeconds=2147483647),
        workload("Deployment", "d-paused", paused=True),
        workload(
            "Deployment",
            "d-percent",
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "30%", "maxUnavailable": "0%"}},
        ),
        workload("ReplicaSet", "r-rich", template=placed("r-rich", RICH_TEMPLATE), minReadySeconds=1),
        workload("ReplicaSet", "r-none", replicas=0),
        workload("ReplicationController", "c-odd", template=placed("c-odd", odd)),
        workload(
            "StatefulSet",
            "s-rich",
            template=placed("s-rich", RICH_TEMPLATE),
            serviceName="svc",
            volumeClaimTemplates=[claim("data", "1Gi"), claim("log", "0.5Gi")],
            **{retention: {"whenDeleted": "Delete", "whenScaled": "Delete"}},
        ),
        workload(
            "StatefulSet",
            "s-parallel",
            template=placed("s-parallel", odd),
            podManagementPolicy="Parallel",
            ordinals={"start": 5},
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": "50%"}},
            minReadySeconds=1,
        ),
        workload(
            "StatefulSet",
            "s-ondelete",
            updateStrategy={"type": "OnDelete"},
            volumeClaimTemplates=[claim("data", "1G")],
            revisionHistoryLimit=0,
            **{retention: {"whenDeleted": "Delete", "whenScaled": "Retain"}},
        ),
        workload(
            "StatefulSet",
            "s-" + "long" * 12,
            volumeClaimTemplates=[claim("data", "1024Mi")],
            **{retention: {"whenDeleted": "Retain", "whenScaled": "Delete"}},
        ),
        workload("StatefulSet", "s-none", replicas=0, podManagementPolicy="Parallel"),
    ]


def settled(document: Document) -> bool:
    """Whether nothing is left to do, as far as the spec allows."""
    spec, status = document["spec"], document.get("status", {})
    if spec.get("paused"):
        return bool(status.get("observedGeneration", 0) >= document["metadata"]["generation"])
    strategy = spec.get("updateStrategy", {})
    if strategy.get("type") == "OnDelete" or strategy.get("rollingUpdate", {}).get("partition"):
        seen: int = status.get("observedGeneration", 0)
        return bool(
            seen >= document["metadata"]["generation"] and status.get("availableReplicas", 0) == spec["replicas"]
        )
    if document["kind"] in {"ReplicaSet", "ReplicationController"} and not spec["replicas"]:
        return bool(status.get("observedGeneration", 0) >= document["metadata"]["generation"])
    return complete(document)


async def until_settled(ns: Namespace) -> None:
    def unsettled() -> list[str]:
        kinds = ("deployments", "replicasets", "replicationcontrollers", "statefulsets")
        return [found["metadata"]["name"] for kind in kinds for found in ns.all(kind) if not settled(found)]

    await ns.until(lambda: not unsettled(), "everything is settled")


# Managers


class Swap:
    """Runs one manager at a time, each as a user of its own."""

    def __init__(self, control_plane: ControlPlane, ns: Namespace, managers: Managers) -> None:
        self._control_plane = control_plane
        self._ns = ns
        self._managers = managers
        self._terms = 0
        self._holder: Manager | None = None

    async def to(self, side: Side) -> User:
        """End the present manager, start another one, and wait until that has handled everything that there was."""
        if self._holder is not None:
            self._holder.kill()
        self._terms += 1
        user = User(self._control_plane, self._ns, name=f"{side.name}-{self._terms}-of-{self._ns.name}")
        self._holder = self._managers.start(*FLAGS, kubeconfig=user.kubeconfig(), program=side.program)
        # The first thing done shows that it works, and so that its caches are filled; the second comes after all in them.
        for _ in range(2):
            await self.idle()
        return user

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
