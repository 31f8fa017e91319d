"""What deploy/ applies is valid, and the rights that it gives are enough."""

import pytest

from kcm.testing import ControlPlane
from tests.managers import (
    ROOT,
    UNLIMITED,
    Managers,
    Namespace,
    audited,
    controller,
    deployment,
    names,
    pod,
    pod_template,
    replica_set,
    watched,
    with_image,
)

BASE = ROOT / "deploy" / "base"
ACCOUNT = "system:serviceaccount:kube-system:kcm"
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]


@pytest.fixture
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    """The one that no other manager acts on."""
    return quiet_control_plane


@pytest.mark.parametrize("directory", ["base", "examples"])
async def test_a_server_accepts_it(control_plane: ControlPlane, directory: str) -> None:
    answer = await control_plane.kubectl("apply", "-k", str(ROOT / "deploy" / directory), "--dry-run=server")
    assert "deployment.apps/" in answer


async def test_its_rights_and_flags_are_enough(control_plane: ControlPlane, ns: Namespace, managers: Managers) -> None:
    await control_plane.kubectl("apply", "-k", str(BASE))
    identity = control_plane.write_kubeconfig(user=ACCOUNT, groups=GROUPS)
    async with watched(control_plane, "kube-system") as system:
        containers = system.get("deployments", "kcm")["spec"]["template"]["spec"]["containers"]
        managers.start(*containers[0]["args"], "--secure-port=0", *UNLIMITED, kubeconfig=identity)

        # With the base's own Deployment as the first to be rolled out.
        await system.until(lambda: len(system.pods) == 2, "the base has its pods")
        await system.until(lambda: any("became leader" in event for event in system.events), "an event of the election")
    await make_every_kind_of_request(ns)

    requests = [event for event in await audited(control_plane) if event["user"]["username"] == ACCOUNT]
    targets = [(event["verb"], event["objectRef"]) for event in requests if "objectRef" in event]
    made = {(verb, target["resource"], target.get("subresource")) for verb, target in targets}
    assert made >= {
        ("create", "leases", None),
        ("get", "leases", None),
        ("update", "leases", None),
        ("watch", "deployments", None),
        ("watch", "replicasets", None),
        ("watch", "pods", None),
        ("get", "deployments", None),
        ("update", "deployments", "status"),
        ("create", "replicasets", None),
        ("get", "replicasets", None),
        ("update", "replicasets", None),
        ("update", "replicasets", "status"),
        ("patch", "replicasets", None),
        ("delete", "replicasets", None),
        ("create", "pods", None),
        ("patch", "pods", None),
        ("delete", "pods", None),
        ("create", "events", None),
    }
    # What other tests left in namespaces that are being deleted is refused there, whoever asks.
    here = {"", "kube-system", ns.name}
    answers = [(event, event.get("objectRef", {}).get("namespace", "")) for event in requests]
    forbidden = [
        event["requestURI"] for event, place in answers if place in here and event["responseStatus"]["code"] == 403
    ]
    assert not forbidden


async def make_every_kind_of_request(ns: Namespace) -> None:
    """Have the controllers adopt, create, scale, delete and clean up."""
    await ns.create(
        "replicasets", replica_set("orphan", replicas=0, labels={"app": "web"}, template=pod_template("old:1"))
    )
    strategy = {"type": "Recreate"}
    await ns.create("deployments", deployment(replicas=2, strategy=strategy, revisionHistoryLimit=0))
    await ns.until(lambda: controller(ns.get("replicasets", "orphan")) and len(ns.pods) == 2, "there are 2 pods")

    current = next(found for found in ns.replica_sets if found["spec"]["replicas"])
    await ns.create("pods", pod("surplus", labels=current["spec"]["selector"]["matchLabels"]))
    await ns.until(lambda: len(ns.pods) == 2 and "surplus" in names(ns.history["pods"]), "a third one was deleted")

    await ns.patch("deployments", "web", with_image("new:1"))
    await ns.until(lambda: len(ns.replica_sets) == 3 and len(ns.pods) == 2, "the pods are replaced")
    # Without nodes pods are never available, so that no rollout completes; a paused Deployment is cleaned up all the same.
    await ns.patch("deployments", "web", {"spec": {"paused": True}})
    await ns.until(lambda: len(ns.replica_sets) == 1, "the old ReplicaSets are deleted")
