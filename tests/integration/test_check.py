"""`kcm check` as a shell sees it: a table and a status."""

import asyncio
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from kcm.testing import ControlPlane
from kcm.testing.process import reserve_port
from tests.managers import ROOT, Document, Namespace


@pytest.fixture(scope="module")
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    return quiet_control_plane


class Table(NamedTuple):
    """What it printed, and its status."""

    status: int
    rows: dict[str, tuple[str, str]]


async def check(*flags: str) -> Table:
    """Run it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from kcm.cmd import main; main()", "check", *flags, stdout=-1, stderr=-1, cwd=ROOT
    )
    output, _ = await process.communicate()
    rows = {}
    for line in output.decode().splitlines():
        result, what, text = re.split(r" {2,}", line.strip(), maxsplit=2)
        rows[what] = (result, text)
    return Table(process.returncode or 0, rows)


def lease(name: str, namespace: str, *, renewed: datetime) -> Document:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": "somebody",
            "leaseDurationSeconds": 15,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


async def test_an_administrator_may_do_everything(control_plane: ControlPlane, ns: Namespace) -> None:
    flags = (f"--kubeconfig={control_plane.kubeconfig}", f"--leader-elect-resource-namespace={ns.name}")
    found = await check(*flags, "--leader-elect-resource-name=kcm")
    assert found.status == 0, found
    assert {result for result, _ in found.rows.values()} == {"ok"}, found
    assert found.rows["API server"][1].endswith("v1.37.2")
    assert found.rows[f"Lease {ns.name}/kcm"] == ("ok", "not there yet")
    assert found.rows["statefulset-controller"][1] == "all 27 verbs are allowed"


async def test_who_holds_the_lease_is_told(control_plane: ControlPlane, ns: Namespace) -> None:
    flags = (f"--kubeconfig={control_plane.kubeconfig}", f"--leader-elect-resource-namespace={ns.name}")
    await ns.create("leases", lease("kcm", ns.name, renewed=datetime.now(UTC)))
    await ns.create("leases", lease("old", ns.name, renewed=datetime(2026, 1, 1, tzinfo=UTC)))
    held = (await check(*flags, "--leader-elect-resource-name=kcm")).rows[f"Lease {ns.name}/kcm"]
    assert re.fullmatch(r"held by somebody, renewed \S+ ago", held[1])
    old = (await check(*flags, "--leader-elect-resource-name=old")).rows[f"Lease {ns.name}/old"]
    assert re.fullmatch(r"expired, last held by somebody, renewed \S+ ago", old[1])


async def test_a_stock_manager_that_leads_is_told_of(control_plane: ControlPlane, ns: Namespace) -> None:
    flags = (f"--kubeconfig={control_plane.kubeconfig}", f"--leader-elect-resource-namespace={ns.name}")
    name = "--leader-elect-resource-name=kcm"
    assert "stock manager" not in (await check(*flags, name)).rows
    stock = json.dumps(
        lease("kube-controller-manager", "kube-system", renewed=datetime.now(UTC) + timedelta(minutes=5))
    )
    await control_plane.kubectl("create", "-f", "-", input=stock)
    try:
        result, text = (await check(*flags, name, "--controllers=deployment")).rows["stock manager"]
    finally:
        await control_plane.kubectl("delete", "lease", "-n", "kube-system", "kube-controller-manager")
    assert result == "warning"
    assert re.fullmatch(r"held by somebody, renewed \S+ ago; it must run without deployment-controller", text)


async def test_what_nobody_would_run_is_told(control_plane: ControlPlane) -> None:
    found = await check(f"--kubeconfig={control_plane.kubeconfig}")
    result, text = found.rows["take-over"]
    assert (found.status, result) == (0, "warning")
    assert "namespace-controller" in text
    assert "deployment-controller" not in text


async def test_the_bootstrap_role_of_a_controller_is_all_that_it_needs(
    control_plane: ControlPlane, ns: Namespace
) -> None:
    roles = {
        "deployment-controller": "deployment-controller",
        "replicaset-controller": "replicaset-controller",
        "replicationcontroller-controller": "replication-controller",
        "statefulset-controller": "statefulset-controller",
    }
    for name, role in roles.items():
        user = f"{ns.name[-8:]}-{role}"
        await control_plane.kubectl(
            "create", "clusterrolebinding", user, f"--user={user}", f"--clusterrole=system:controller:{role}"
        )
        identity = control_plane.write_kubeconfig(user=user)
        found = await check(f"--kubeconfig={identity}", "--leader-elect=false", f"--controllers={name}")
        assert (found.status, found.rows[name][0]) == (0, "ok"), found
        others = await check(f"--kubeconfig={identity}", "--leader-elect=false", f"--controllers=-{name},*")
        assert others.status == 1
        assert {result for what, (result, _) in others.rows.items() if what in roles} == {"failed"}


async def test_what_is_not_allowed_is_listed(control_plane: ControlPlane, ns: Namespace) -> None:
    identity = control_plane.write_kubeconfig(user=f"{ns.name}-nobody")
    found = await check(f"--kubeconfig={identity}", "--controllers=replicaset", "--leader-elect-resource-name=kcm")
    assert found.status == 1
    assert found.rows["Lease"][1] == (
        "not allowed in kube-system: get leases, create leases, update leases, create events, patch events"
    )
    assert "create pods" in found.rows["replicaset-controller"][1]
    accounts = await check(f"--kubeconfig={identity}", "--use-service-account-credentials", "--leader-elect=false")
    assert accounts.rows["service accounts"][1].endswith(
        "get serviceaccounts, create serviceaccounts, create serviceaccounts/token"
    )


async def test_a_server_that_cannot_be_reached_is_told() -> None:
    with reserve_port() as closed:
        found = await check(f"--master=http://127.0.0.1:{closed.getsockname()[1]}")
    assert (found.status, found.rows["API server"][0]) == (1, "failed")
