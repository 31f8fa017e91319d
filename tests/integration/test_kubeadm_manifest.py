"""The command line of a kubeadm v1.37 manifest starts kcm as it is, with the rights that such a cluster gives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcm.testing import ControlPlane
from kcm.testing.control_plane import KubectlError
from tests.integration.test_command import fetch, free_port
from tests.integration.test_serving_beside_stock import RBAC
from tests.kubeadm import MANIFEST
from tests.managers import (
    Document,
    Managers,
    Namespace,
    audited,
    deployment,
    replica_set,
    replication_controller,
    serving,
)


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with serving(ControlPlane(audit_log=True)) as control_plane:
        yield control_plane


def stateful_set() -> Document:
    labels = {"app": "db"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
        },
    }


@pytest.mark.row("C-138", "C-140", "C-081", "C-086")
async def test_it_starts_unchanged_and_may_do_all_that_it_does(
    control_plane: ControlPlane, ns: Namespace, managers: Managers, tmp_path: Path
) -> None:
    pki = tmp_path / "pki"
    pki.mkdir()
    for name in ("ca.crt", "front-proxy-ca.crt"):
        (pki / name).write_bytes((control_plane.directory / "pki" / name).read_bytes())
    config = control_plane.write_kubeconfig(user="system:kube-controller-manager")
    (tmp_path / "controller-manager.conf").write_bytes(config.read_bytes())
    flags = [flag.replace("/etc/kubernetes", str(tmp_path)) for flag in MANIFEST]
    port = free_port()
    server = f"https://127.0.0.1:{port}"
    # The one thing that two on one machine cannot share.
    managers.start(*flags, f"--secure-port={port}", kubeconfig=tmp_path / "controller-manager.conf")

    # kubeadm's probe has no credentials and checks no certificate.
    assert await fetch(f"{server}/healthz") == "ok"
    await ns.create("deployments", deployment(replicas=2))
    await ns.create("replicasets", replica_set("alone", replicas=1, labels={"app": "alone"}))
    await ns.create("replicationcontrollers", replication_controller("rc", replicas=1, labels={"app": "rc"}))
    await ns.create("statefulsets", stateful_set())
    await ns.until(lambda: len(ns.pods) == 5, "every controller has made its pods")
    await ns.scale("deployments", "web", 1)
    await ns.until(lambda: len(ns.pods) == 4, "a pod is deleted")

    await control_plane.kubectl("apply", "-f", "-", input=RBAC)
    token = (await control_plane.kubectl("create", "token", "reader")).strip()
    raw = (f"--server={server}", "--insecure-skip-tls-verify", "--kubeconfig=/dev/null", "get", "--raw")
    assert "workqueue_depth" in await control_plane.kubectl(f"--token={token}", *raw, "/metrics")
    for arguments, refusal in (((f"--token={token}",), "Forbidden"), (("--token=wrong",), "Unauthorized")):
        with pytest.raises(KubectlError, match=refusal):
            await control_plane.kubectl(*arguments, *raw, "/configz")

    async def asked() -> list[Document]:
        ours = ("system:kube-controller-manager", "system:serviceaccount:kube-system:")
        return [event for event in await audited(control_plane) if event["user"]["username"].startswith(ours)]

    requests = await asked()
    users = {event["user"]["username"].rpartition(":")[2] for event in requests}
    assert users >= {
        "kube-controller-manager",
        "deployment-controller",
        "replicaset-controller",
        "replication-controller",
        "statefulset-controller",
    }
    assert [event["requestURI"] for event in requests if event["responseStatus"]["code"] in {401, 403}] == []
    agents = {event["userAgent"] for event in requests}
    start = "kube-controller-manager/v1.37.2 (linux/"
    assert all(agent.startswith(start) for agent in agents), agents
    assert {agent.rpartition("/")[2] for agent in agents} >= {
        "leader-election",
        "shared-informers",
        "system:serviceaccount:kube-system:statefulset-controller",
    }
