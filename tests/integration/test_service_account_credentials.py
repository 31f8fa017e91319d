"""Under the bootstrap roles alone, each controller as its own service account."""

import pytest

from kcm.testing import ControlPlane
from tests.audit import asked_of, code
from tests.managers import (
    UNLIMITED,
    Managers,
    Namespace,
    audited,
    deployment,
    replica_set,
)

MANAGER = "system:kube-controller-manager"
FOUR = "deployment-controller,replicaset-controller,replicationcontroller-controller,statefulset-controller"
ACCOUNTS = {
    f"system:serviceaccount:kube-system:{name}"
    for name in ("deployment-controller", "replicaset-controller", "replication-controller", "statefulset-controller")
}


@pytest.fixture
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    """The one that no other manager acts on."""
    return quiet_control_plane


@pytest.mark.row("C-020", "C-081", "C-082", "C-085")
async def test_every_controller_works_as_its_own_account(
    control_plane: ControlPlane, ns: Namespace, managers: Managers
) -> None:
    managers.start(
        f"--controllers={FOUR}",
        "--use-service-account-credentials=true",
        "--secure-port=0",
        *UNLIMITED,
        kubeconfig=control_plane.write_kubeconfig(user=MANAGER, groups=()),
    )
    await ns.create("deployments", deployment(replicas=2))
    await ns.create("replicasets", replica_set("bare", replicas=1))
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"app": "x"}, "template": template}
    await ns.create("replicationcontrollers", {"metadata": {"name": "rc"}, "spec": spec})
    body = {
        "metadata": {"name": "set"},
        "spec": {"replicas": 1, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    await control_plane.request("POST", f"/apis/apps/v1/namespaces/{ns.name}/statefulsets", body)
    await ns.until(lambda: len(ns.pods) == 5, "every controller has created its pods")

    events = [event for event in await audited(control_plane) if event["user"]["username"] in {MANAGER, *ACCOUNTS}]
    here = {ns.name, "kube-system", ""}
    ours = [event for event in events if event.get("objectRef", {}).get("namespace", "") in here]
    assert not [event["requestURI"] for event in ours if code(event) == 403]
    creators = {event["user"]["username"] for event in ours if event["verb"] == "create" and asked_of(event) == "pods"}
    assert creators == ACCOUNTS - {"system:serviceaccount:kube-system:deployment-controller"}
    assert {event["user"]["username"] for event in ours if event["verb"] in {"create", "update", "delete"}} >= ACCOUNTS
    # Reading for all, and the Lease, stay with the manager's own identity.
    assert {event["user"]["username"] for event in ours if event["verb"] == "watch"} == {MANAGER}
    assert {event["user"]["username"] for event in ours if asked_of(event) == "leases"} == {MANAGER}
    agents = {event["user"]["username"]: event["userAgent"] for event in ours if event["user"]["username"] in ACCOUNTS}
    assert all(agent.endswith(f"/{name}") for name, agent in agents.items())
