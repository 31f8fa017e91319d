"""The command `kcm` as a process: what it says when it cannot start, and what it serves when it runs."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kcm.options import IMPLEMENTED_CONTROLLERS
from kcm.testing import ControlPlane
from kcm.testing.process import reserve_port
from tests.managers import OPEN_METRICS, PATIENCE, ROOT, Managers, Namespace, candidate, lease, replica_set

QUEUE_METRICS = {
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_count",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds_count",
}


@pytest.fixture
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    """The one that no other manager acts on."""
    return quiet_control_plane


async def refused(*flags: str) -> str:
    """Run kcm, which must end with status 1, and give what it says about that."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kcm", *flags),
        cwd=ROOT,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, output) == (1, b"")
    said = [line for line in errors.decode().splitlines() if line.startswith(("E", "Error: "))]
    assert len(said) == 1
    assert "Traceback" not in errors.decode()
    return said[0]


@pytest.mark.row("C-042", "C-048")
class TestItEndsWithOneLine:
    async def test_without_a_configuration(self) -> None:
        line = await refused("--secure-port=0")
        assert '"command failed" err="invalid configuration: no configuration has been provided' in line
        assert "run with --kubeconfig=FILE" in line

    async def test_when_the_kubeconfig_is_missing(self, tmp_path: Path) -> None:
        line = await refused(f"--kubeconfig={tmp_path}/none", "--secure-port=0")
        assert line.endswith(f'"command failed" err="stat {tmp_path}/none: no such file or directory"')

    @pytest.mark.parametrize("content", ["clusters: [", "just text", "apiVersion: v2\nkind: Config\n", "\x00"])
    async def test_when_the_kubeconfig_is_malformed(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "kubeconfig"
        path.write_text(content)
        line = await refused(f"--kubeconfig={path}", "--secure-port=0")
        assert f'"command failed" err="error loading config file \\"{path}\\": ' in line

    async def test_when_a_controller_is_unknown(self, tmp_path: Path) -> None:
        line = await refused(f"--kubeconfig={tmp_path}/none", "--controllers=deployment-controller,deploymnet")
        assert line.endswith('"command failed" err="\\"deploymnet\\" is not in the list of known controllers"')

    async def test_when_a_port_is_taken(self, control_plane: ControlPlane) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            flags = (f"--kubeconfig={control_plane.kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}")
            line = await refused(*flags, "--leader-elect=false")
        assert f"failed to listen on 127.0.0.1:{port}: Address already in use" in line

    async def test_when_the_server_cannot_be_reached(self) -> None:
        with reserve_port() as closed:
            port = closed.getsockname()[1]
            line = await refused(f"--master=http://127.0.0.1:{port}", "--leader-elect=false", "--secure-port=0")
        assert '"command failed" err="failed to wait for apiserver being healthy: ' in line
        assert f"127.0.0.1:{port}" in line


@pytest.mark.row("C-043")
async def test_a_flag_that_cannot_be_read_is_told_with_the_usage() -> None:
    line = await refused("--leader-elect-lease-duration=15")
    expected = 'invalid argument "15" for "--leader-elect-lease-duration" flag: time: missing unit in duration "15"'
    assert line == f"Error: {expected}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def fetch(url: str) -> str:
    """What a server answers with status 200, as soon as it listens."""
    async with aiohttp.ClientSession(trust_env=False) as session, asyncio.timeout(PATIENCE):
        while True:
            try:
                async with session.get(url, ssl=False) as response:
                    assert response.status == 200
                    return await response.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)


async def metrics(server: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of /metrics: labels and value by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(await fetch(f"{server}/metrics")):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.row("C-064", "C-103")
async def test_a_standby_serves_as_a_leader_does(ns: Namespace, managers: Managers) -> None:
    await ns.create("leases", lease(holder="other"))
    server = f"https://127.0.0.1:{(port := free_port())}"
    managers.start(*candidate(ns.name), "--bind-address=127.0.0.1", f"--secure-port={port}", OPEN_METRICS)
    for path in ("healthz", "livez", "readyz"):
        assert await fetch(f"{server}/{path}") == "ok"
    checks = "[+]leaderElection ok\n"
    assert await fetch(f"{server}/healthz?verbose") == f"{checks}healthz check passed\n"
    assert (await metrics(server))["leader_election_master_status"] == [({"name": "kcm"}, 0)]

    await ns.create("replicasets", replica_set(replicas=1))
    await ns.patch("leases", "kcm", {"spec": {"holderIdentity": ""}})
    await ns.until(lambda: ns.pods, "it leads and acts")
    for path in ("healthz", "livez", "readyz"):
        assert await fetch(f"{server}/{path}") == "ok"
    checks += "[+]deployment-controller ok\n[+]replicaset-controller ok\n"
    assert await fetch(f"{server}/healthz?verbose") == f"{checks}healthz check passed\n"
    seen = await metrics(server)
    assert seen["leader_election_master_status"] == [({"name": "kcm"}, 1)]
    for name in QUEUE_METRICS:
        assert {labels["name"] for labels, _ in seen[name]} == {"deployment", "replicaset"}
    assert any(labels["name"] == "replicaset" and value >= 1 for labels, value in seen["workqueue_adds_total"])
    requests = {(labels["code"], labels["method"]): value for labels, value in seen["rest_client_requests_total"]}
    assert requests["201", "POST"] >= 1
    assert requests["200", "PUT"] >= 1


@pytest.mark.row("C-062")
async def test_without_a_controller_it_still_holds_the_lease(ns: Namespace, managers: Managers) -> None:
    none = ",".join(["*", *(f"-{name}" for name in IMPLEMENTED_CONTROLLERS)])
    manager = managers.start("--controllers=" + none, *candidate(ns.name)[1:])
    await ns.until(lambda: len(ns.history["leases"]) >= 5, "the Lease is taken and renewed")
    assert manager.running
