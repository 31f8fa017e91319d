"""ReplicaSets in trouble: refused, failing, contested and slow pods."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from kcm.testing import ControlPlane
from tests.audit import User, asked_of, code
from tests.integration.quota import limit_pods, set_quota
from tests.integration.test_command import QUEUE_METRICS, fetch, free_port, metrics
from tests.integration.test_replica_set import controlled_by, has, have, observed
from tests.managers import (
    CONTROLLERS,
    OPEN_METRICS,
    UNLIMITED,
    Document,
    Managers,
    Namespace,
    complete,
    condition,
    controller,
    deployment,
    instant,
    is_ready,
    names,
    pod,
    pod_template,
    replica_set,
    replication_controller,
    with_image,
)


class Face(NamedTuple):
    """One of the two controllers, which share their code."""

    plural: str
    make: Callable[..., Document]
    name: str
    client: str
    queue: str


FACES = (
    Face("replicasets", replica_set, "replicaset-controller", "replicaset-controller", "replicaset"),
    Face(
        "replicationcontrollers",
        replication_controller,
        "replicationcontroller-controller",
        "replication-controller",
        "replicationmanager",
    ),
)
ALONE = ("--leader-elect=false", "--secure-port=0")


def web(ns: Namespace) -> Document:
    return ns.get("replicasets", "web")


def is_active(document: Document) -> bool:
    """Whether a pod counts."""
    return "deletionTimestamp" not in document["metadata"] and document["status"]["phase"] not in {
        "Failed",
        "Succeeded",
    }


def active(ns: Namespace) -> list[Document]:
    """The pods that count, in a fixed order."""
    return sorted(filter(is_active, ns.pods), key=lambda found: str(found["metadata"]["name"]))


@asynccontextmanager
async def pods_refused(control_plane: ControlPlane, ns: Namespace, message: str) -> AsyncIterator[None]:
    """An admission policy that lets nobody create pods in the namespace."""
    path = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": message, "reason": "Forbidden"}],
    }
    binding = {
        "policyName": ns.name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}}},
    }
    objects = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, spec in objects.items():
        await control_plane.request("POST", f"{path}/{plural}", {"metadata": {"name": ns.name}, "spec": spec})
    try:
        await ns.until_refused("pods", pod("probe"))
        yield
    finally:
        for plural in reversed(objects):
            await control_plane.request("DELETE", f"{path}/{plural}/{ns.name}")


@pytest.mark.usefixtures("manager")
class TestBesideOthers:
    """One manager acts, and pods run at once."""

    async def test_an_admission_policy_that_refuses_pods_shows_until_it_is_gone(
        self, ns: Namespace, control_plane: ControlPlane
    ) -> None:
        async with pods_refused(control_plane, ns, "no pods today"):
            await ns.create("replicasets", replica_set(replicas=3))
            await ns.until(lambda: condition(web(ns), "ReplicaFailure"), "the condition is set")
            failure = condition(web(ns), "ReplicaFailure")
            assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
            assert failure["message"].endswith("denied request: no pods today")
            expected = f"Warning FailedCreate: Error creating: {failure['message']}"
            await ns.until(lambda: expected in ns.events, "an event tells the same")
            assert not ns.history["pods"]

        await ns.until(lambda: has(ns, 3), "all pods are available")
        assert not condition(web(ns), "ReplicaFailure")

    @pytest.mark.row("R-145")
    async def test_a_quota_that_is_too_small_can_be_met_by_wanting_less(self, ns: Namespace) -> None:
        await limit_pods(ns, 2)
        await ns.create("replicasets", replica_set(replicas=3))
        await ns.until(lambda: condition(web(ns), "ReplicaFailure"), "the condition is set")

        await ns.scale("replicasets", "web", 2)
        await ns.until(lambda: has(ns, 2) and not condition(web(ns), "ReplicaFailure"), "the condition is gone")

    @pytest.mark.row("R-147")
    async def test_an_orphan_that_several_could_have_gets_one_owner(self, ns: Namespace) -> None:
        owners = [await ns.create("replicasets", replica_set(name, replicas=2)) for name in ("one", "two", "three")]
        await ns.until(lambda: all(map(complete, ns.replica_sets)), "all are complete")

        for number in range(3):
            await ns.create("pods", pod(f"orphan-{number}"))
        await ns.until(
            lambda: all(map(controller, ns.pods)) and [len(ns.pods_of(owner)) for owner in owners] == [2, 2, 2],
            "each has its two again",
        )
        history: dict[str, set[str]] = {}
        for state in ns.history["pods"]:
            if owner := controller(state):
                history.setdefault(state["metadata"]["name"], set()).add(owner["uid"])
        assert {f"orphan-{number}" for number in range(3)} < set(history)
        assert all(len(found) == 1 for found in history.values())

    @pytest.mark.row("R-143")
    async def test_a_pod_of_another_is_left_alone_though_it_names_this_one_too(self, ns: Namespace) -> None:
        owner = await have(ns, replicas=1)
        another = {**controlled_by(owner), "name": "another", "uid": "11111111-2222-3333-4444-555555555555"}
        this = {
            name: value
            for name, value in controlled_by(owner).items()
            if name not in {"controller", "blockOwnerDeletion"}
        }
        await ns.create("pods", pod("of-another", ownerReferences=[another, this]))
        await ns.create("pods", pod("owned", ownerReferences=[this]))

        await ns.until(lambda: len(ns.pods_of(owner)) == 1 and len(ns.pods) == 2, "the pod that is too many is deleted")
        states: dict[str, list[list[Document]]] = {name: [] for name in ("owned", "of-another")}
        for state in ns.history["pods"]:
            if state["metadata"]["name"] in states:
                states[state["metadata"]["name"]].append(state["metadata"]["ownerReferences"])
        assert [controlled_by(owner)] in states["owned"]
        assert all(references == [another, this] for references in states["of-another"])

    @pytest.mark.row("R-108")
    async def test_pods_that_finalizers_hold_are_counted_as_terminating_and_no_more(self, ns: Namespace) -> None:
        template = pod_template()
        template["metadata"]["finalizers"] = ["example.com/slow"]
        await have(ns, replicas=4, template=template)
        slow = names(ns.pods)

        await ns.scale("replicasets", "web", 1)
        await ns.until(lambda: web(ns)["status"].get("terminatingReplicas") == 3, "three are on their way out")
        assert (web(ns)["status"]["replicas"], len(ns.pods)) == (1, 4)
        await ns.scale("replicasets", "web", 3)
        await ns.until(lambda: sum(map(is_ready, ns.pods)) == 3, "two others take their place")
        assert (web(ns)["status"]["terminatingReplicas"], len(ns.pods)) == (3, 6)

        for name in slow:
            if not is_active(ns.get("pods", name)):
                await ns.patch("pods", name, {"metadata": {"finalizers": None}})
        await ns.until(lambda: has(ns, 3) and web(ns)["status"]["terminatingReplicas"] == 0, "they are gone")

    @pytest.mark.row("R-078")
    async def test_pods_are_named_after_a_name_that_is_as_long_as_names_get(self, ns: Namespace) -> None:
        name = "-".join(["w" * 63, "x" * 63, "y" * 62, "z" * 62])
        assert len(name) == 253
        await ns.create("replicasets", replica_set(name, replicas=2))

        await ns.until(lambda: complete(ns.get("replicasets", name)), "both pods are available")
        assert {found["metadata"]["generateName"] for found in ns.pods} == {f"{name}-"}

    @pytest.mark.row("R-207")
    async def test_it_grows_from_nothing_and_shrinks_to_nothing_by_the_scale_subresource(self, ns: Namespace) -> None:
        await have(ns, replicas=0)
        await ns.scale("replicasets", "web", 3)
        await ns.until(lambda: has(ns, 3), "there are 3 pods")
        await ns.scale("replicasets", "web", 0)
        await ns.until(lambda: has(ns, 0), "there are none")


@pytest.fixture
def user(control_plane: ControlPlane, ns: Namespace) -> User:
    """Who the test's own manager is."""
    return User(control_plane, ns)


class TestWithAManagerOfItsOwn:
    """No other manager acts, pods stay Pending, and every request is on record."""

    @pytest.fixture
    def control_plane(self, quiet_control_plane: ControlPlane) -> ControlPlane:
        return quiet_control_plane

    async def test_a_quota_is_not_run_against_again_and_again(
        self, ns: Namespace, managers: Managers, user: User
    ) -> None:
        managers.start(CONTROLLERS, *UNLIMITED, *ALONE, kubeconfig=user.kubeconfig())
        await limit_pods(ns, 3)
        await ns.create("replicasets", replica_set(replicas=10))

        # A failed sync is tried again after 5 ms, then after 10 ms, and so on: this makes the last wait longer than a second.
        await ns.until(lambda: failures(ns) >= 12, "it has tried a dozen times")
        refused = [
            instant(event["requestReceivedTimestamp"])
            for event in await user.requests("pods", "create")
            if code(event) == 403
        ]
        waits = math.log2(1 + (refused[-1] - refused[0]).total_seconds() / 0.005)
        # Besides: four at once in the first sync, and what the first three pods and the status wake up.
        assert len(refused) <= waits + 10
        assert len(await user.requests("replicasets/status", "update")) <= 5
        assert condition(web(ns), "ReplicaFailure")["status"] == "True"

        await set_quota(ns, hard=20, used=3)
        await ns.until(lambda: len(ns.pods) == web(ns)["status"]["replicas"] == 10, "there are all pods")
        await ns.until(lambda: not condition(web(ns), "ReplicaFailure"), "the condition is gone")
        assert (await user.answers("pods", "create"))["create", 201] == 10

    @pytest.mark.row("R-075", "D-026", "D-083")
    async def test_a_namespace_that_is_being_deleted_is_left_in_peace(
        self, ns: Namespace, managers: Managers, user: User
    ) -> None:
        managers.start(CONTROLLERS, *UNLIMITED, *ALONE, kubeconfig=user.kubeconfig())
        await ns.create("replicasets", replica_set("set", replicas=1, **labelled("set")))
        await ns.create("deployments", deployment(replicas=1))
        await ns.until(
            lambda: (
                ns.get("deployments", "web").get("status", {}).get("replicas") == 1
                and ns.get("replicasets", "set")["status"]["replicas"] == 1
            ),
            "all is at rest",
        )
        before = len(await user.requests())
        await ns.terminate()

        for replicas in (10, 11, 12):
            await ns.scale("replicasets", "set", replicas)
            await ns.until(lambda: observed(ns.get("replicasets", "set")), "the change is seen")
        await ns.patch("deployments", "web", with_image("registry.test/web:2"))
        await user.until_asked("replicasets", "create", times=2)
        # This needs no new ReplicaSet, so it gets its status.
        await ns.patch("deployments", "web", {"spec": {"paused": True}})
        await ns.until(lambda: observed(ns.get("deployments", "web")), "the pause is seen")

        asked = (await user.requests())[before:]
        made = [event for event in asked if event["verb"] == "create"]
        assert {code(event) for event in made} == {403}
        assert [asked_of(event) for event in made].count("pods") == 9
        assert 1 <= [asked_of(event) for event in made].count("replicasets") <= 2
        assert {asked_of(event) for event in made} == {"pods", "replicasets"}
        assert not [event for event in ns.events if event.startswith("Warning")]

    async def test_pods_that_fail_at_once_are_replaced_one_by_one(
        self, ns: Namespace, managers: Managers, user: User
    ) -> None:
        managers.start(CONTROLLERS, *UNLIMITED, *ALONE, kubeconfig=user.kubeconfig())
        await ns.create("replicasets", replica_set(replicas=2))
        await ns.until(lambda: len(active(ns)) == 2, "there are 2 pods")

        for number in range(1, 11):
            await ns.patch("pods", active(ns)[0]["metadata"]["name"], {"status": {"phase": "Failed"}}, "status")
            await ns.until(lambda failed=number: len(active(ns)) == 2 and len(ns.pods) == 2 + failed, "it is replaced")  # type: ignore[misc]
        await ns.until(lambda: web(ns)["status"]["replicas"] == 2, "the status tells of two")
        await ns.scale("replicasets", "web", 0)
        await ns.until(lambda: not active(ns) and web(ns)["status"]["replicas"] == 0, "the two are gone")

        # Failed pods are not the controller's to delete.
        assert len(ns.pods) == 10
        assert await user.answers("pods", "create", "delete") == {("create", 201): 12, ("delete", 200): 2}

    @pytest.mark.row("R-199")
    @pytest.mark.parametrize(
        ("gate", "costs", "survivor"),
        [
            (True, ("1000", "100"), "dear"),
            (True, ("100", "100"), "steady"),
            (True, (None, None), "steady"),
            (False, ("1000", "100"), "steady"),
        ],
    )
    async def test_the_pod_whose_deletion_costs_more_stays(
        self, ns: Namespace, managers: Managers, gate: bool, costs: tuple[str | None, ...], survivor: str
    ) -> None:
        for name, cost, restarts in zip(("dear", "steady"), costs, (5, 0), strict=True):
            await ns.create(
                "pods", pod(name, annotations={"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {})
            )
            container = {"name": "web", "image": "", "imageID": "", "ready": False, "restartCount": restarts}
            await ns.patch("pods", name, {"status": {"containerStatuses": [container]}}, "status")
        managers.start(CONTROLLERS, *UNLIMITED, *ALONE, f"--feature-gates=PodDeletionCost={str(gate).lower()}")
        await ns.create("replicasets", replica_set(replicas=2))
        await ns.until(lambda: web(ns)["status"].get("replicas") == 2, "both are adopted")

        await ns.scale("replicasets", "web", 1)
        await ns.until(lambda: len(ns.pods) == 1, "one is deleted")
        assert names(ns.pods) == {survivor}

    @pytest.mark.row("R-108", "R-204", "D-136")
    async def test_terminating_pods_are_counted_as_long_as_the_gate_is_open(
        self, ns: Namespace, managers: Managers, control_plane: ControlPlane
    ) -> None:
        gate = "--feature-gates=DeploymentReplicaSetTerminatingReplicas"
        flags = (CONTROLLERS, *UNLIMITED, *ALONE)
        template = pod_template()
        # On a node that nobody runs, what is deleted waits for its grace period.
        template["spec"] |= {"nodeName": "nowhere", "terminationGracePeriodSeconds": 300}

        def told() -> list[int | None]:
            return [found["status"].get("terminatingReplicas") for found in (*ns.replica_sets, *ns.deployments)]

        def replaced(number: int) -> bool:
            status = ns.replica_sets[0]["status"] if ns.replica_sets else {}
            return len(active(ns)) == status.get("replicas") == 5 and len(ns.pods) == 5 + number

        closed = managers.start(*flags, f"{gate}=false")
        await ns.create("deployments", deployment(replicas=5, template=template))
        await ns.until(lambda: replaced(0), "there are 5 pods")
        first = active(ns)[0]["metadata"]["name"]
        await ns.delete("pods", first)
        await ns.until(lambda: replaced(1), "it is replaced")
        states = [*ns.history["replicasets"], *ns.history["deployments"]]
        assert not [state for state in states if "terminatingReplicas" in state.get("status", {})]
        closed.kill()

        opened = managers.start(*flags, f"{gate}=true")
        await ns.delete("pods", active(ns)[0]["metadata"]["name"])
        await ns.until(lambda: replaced(2) and told() == [2, 2], "both are counted")
        by_force = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await control_plane.request("DELETE", f"/api/v1/namespaces/{ns.name}/pods/{first}", by_force)
        await ns.until(lambda: replaced(1) and told() == [1, 1], "one is gone")
        opened.kill()

        managers.start(*flags, f"{gate}=false")
        await ns.delete("pods", active(ns)[0]["metadata"]["name"])
        await ns.until(lambda: replaced(2) and told() == [None, None], "nobody counts any more")

    @pytest.mark.row("R-054", "R-208")
    async def test_orphans_of_before_its_start_are_adopted_and_the_surplus_deleted(
        self, ns: Namespace, managers: Managers, user: User
    ) -> None:
        await ns.create("replicasets", replica_set(replicas=2))
        for number in range(3):
            await ns.create("pods", pod(f"orphan-{number}"))
        managers.start(CONTROLLERS, *UNLIMITED, *ALONE, kubeconfig=user.kubeconfig())

        await ns.until(lambda: web(ns)["status"].get("replicas") == 2 == len(ns.pods), "two are left")
        assert await user.answers("pods", "create", "patch", "delete") == {("patch", 200): 3, ("delete", 200): 1}
        assert len(await user.requests("replicasets", "get")) == 1

    @pytest.mark.row("R-010", "R-011", "R-126", "R-174")
    @pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
    async def test_it_works_alone_with_its_bootstrap_role_and_the_stock_limits(
        self, ns: Namespace, control_plane: ControlPlane, managers: Managers, face: Face
    ) -> None:
        user = User(control_plane, ns, groups=())
        await bind(control_plane, user, f"system:controller:{face.client}")
        server = f"https://127.0.0.1:{(port := free_port())}"
        flags = ("--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}", OPEN_METRICS)
        managers.start(f"--controllers={face.name}", *flags, kubeconfig=user.kubeconfig())

        def own() -> Document:
            return ns.get(face.plural, "web")

        kinds = {
            "deployments": deployment,
            "replicasets": replica_set,
            "replicationcontrollers": replication_controller,
        }
        for plural, make in kinds.items():
            if plural != face.plural:
                await ns.create(plural, make("other", replicas=1))
        # All that it ever does with pods: create, adopt, release, delete.
        await ns.create("pods", pod("orphan"))
        await ns.create(face.plural, face.make(replicas=50))
        await ns.until(lambda: own()["status"].get("replicas") == 50, "there are 50 pods")
        free = active(ns)[-1]["metadata"]["name"]
        await ns.patch("pods", free, {"metadata": {"labels": {"app": "free"}}})
        await ns.until(
            lambda: controller(ns.get("pods", free)) is None and len(ns.pods) == 51, "it is free and replaced"
        )
        await ns.scale(face.plural, "web", 1)
        await ns.until(
            lambda: own()["status"]["replicas"] == 1 and len(ns.pods) == 2, "one is left besides the one set free"
        )
        assert controller(ns.get("pods", free)) is None
        others = [found for plural in kinds if (found := ns.get(plural, "other"))]
        assert len(others) == 2
        assert not any("observedGeneration" in found["status"] for found in others)

        asked = await user.requests()
        assert {code(event) for event in asked} <= {200, 201, 409}  # a conflict is no lack of rights
        did = [event for event in asked if event["userAgent"].endswith(f"/{face.client}")]
        assert {(event["verb"], asked_of(event)) for event in did} - {("patch", "events")} == {
            ("create", "pods"),
            ("patch", "pods"),
            ("delete", "pods"),
            ("get", face.plural),
            ("update", f"{face.plural}/status"),
            ("create", "events"),
        }
        # One bucket of 30, filled with 20 a second, for all of these. What was sent over some time may arrive within less.
        begin, end = (instant(did[index]["requestReceivedTimestamp"]) for index in (0, -1))
        assert len(did) <= 30 + 20 * ((end - begin).total_seconds() + 1)

        assert await fetch(f"{server}/healthz?verbose") == f"[+]{face.name} ok\nhealthz check passed\n"
        seen = await metrics(server)
        for family in QUEUE_METRICS:
            assert {labels["name"] for labels, _ in seen[family]} == {face.queue}
        assert ("replicaset_controller_sorting_deletion_age_ratio_count" in seen) == (face.plural == "replicasets")


def labelled(name: str) -> Document:
    return {"selector": {"matchLabels": {"app": name}}, "template": pod_template(app=name)}


def failures(ns: Namespace) -> int:
    """How many failed creations events tell of."""
    latest = {event["metadata"]["name"]: event for event in ns.history["events"]}
    return sum(event["count"] for event in latest.values() if event["reason"] == "FailedCreate")


async def bind(control_plane: ControlPlane, user: User, role: str) -> None:
    """Let a user do what a cluster role allows."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": user.name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user.name}],
    }
    await control_plane.request("POST", f"/apis/{group}/v1/clusterrolebindings", binding)
