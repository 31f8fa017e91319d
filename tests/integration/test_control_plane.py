"""The control plane itself: what the other integration tests, the demo and the benches stand on."""

import asyncio
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest

import kcm
from kcm.testing import ControlPlane, KubectlError, StartError


def is_running(pid: int) -> bool:
    """Whether a process does anything yet; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    except FileNotFoundError:
        return False


def assert_nothing_left(cp: ControlPlane, pids: Iterable[int]) -> None:
    assert [pid for pid in pids if is_running(pid)] == []
    assert not cp.directory.exists()


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def manifest(name: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "main", "image": "registry.test/image:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


class TestIdentities:
    async def test_the_administrator_reaches_the_pinned_release(self, control_plane: ControlPlane) -> None:
        assert (await control_plane.request("GET", "/version"))["gitVersion"] == kcm.KUBERNETES_VERSION
        assert "Server Version: " + kcm.KUBERNETES_VERSION in await control_plane.kubectl("version")

    async def test_anonymous_requests_are_refused_by_rbac(self, control_plane: ControlPlane) -> None:
        tls = ssl.create_default_context(cadata=control_plane.ca_pem.decode())
        async with aiohttp.ClientSession(control_plane.server, connector=aiohttp.TCPConnector(ssl=tls)) as session:
            async with session.get("/api/v1/namespaces") as response:
                assert response.status == 403
                assert 'User "system:anonymous" cannot list' in (await response.json())["message"]
            async with session.get("/api/v1/namespaces", headers={"Authorization": "Bearer wrong"}) as response:
                assert response.status == 401

    async def test_the_server_proves_who_it_is(self, control_plane: ControlPlane) -> None:
        async with aiohttp.ClientSession(control_plane.server) as session:  # knows the system's authorities only
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get("/version")

    async def test_a_kubeconfig_for_anybody(self, control_plane: ControlPlane, namespace: str) -> None:
        path = control_plane.write_kubeconfig(user="jane", groups=["devs", "ops"])
        assert path.stat().st_mode & 0o077 == 0
        jane = f"--kubeconfig={path}"
        who = json.loads(await control_plane.kubectl(jane, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
        assert who["username"] == "jane"
        assert who["groups"] == ["devs", "ops", "system:authenticated"]
        with pytest.raises(KubectlError, match='User "jane" cannot list resource "pods"'):
            await control_plane.kubectl(jane, "-n", namespace, "get", "pods")

    async def test_servers_can_delegate_authentication(self, control_plane: ControlPlane) -> None:
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        data = (await control_plane.request("GET", path))["data"]
        assert data["client-ca-file"].encode() == control_plane.ca_pem
        assert data["requestheader-client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")
        assert data["requestheader-allowed-names"] == '["front-proxy-client"]'


class TestNodes:
    async def test_nodes_are_ready_and_without_taints(self, control_plane: ControlPlane) -> None:
        nodes = (await control_plane.request("GET", "/api/v1/nodes"))["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1", "node-2"]
        for node in nodes:
            assert "taints" not in node["spec"]
            assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"

    @pytest.mark.parametrize("spec", [{}, {"nodeName": "node-1"}], ids=["scheduled", "bound by hand"])
    async def test_a_pod_runs_until_it_is_deleted(
        self, control_plane: ControlPlane, namespace: str, spec: dict[str, object]
    ) -> None:
        await control_plane.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(manifest("web", **spec)))
        await control_plane.kubectl("-n", namespace, "wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
        answer = await control_plane.kubectl("-n", namespace, "get", "pod", "web", "-o", "json")
        web = json.loads(answer)
        assert web["status"]["phase"] == "Running"
        assert web["spec"]["nodeName"] in ({"node-1"} if spec else {"node-0", "node-1", "node-2"})
        await control_plane.kubectl("-n", namespace, "delete", "pod", "web", "--wait", "--timeout=30s")
        assert await control_plane.kubectl("-n", namespace, "get", "pods", "-o", "name") == ""


async def test_each_test_has_a_namespace_of_its_own(control_plane: ControlPlane, namespace: str) -> None:
    assert namespace.startswith("test-each-test-has-a-namespace-of-its-ow-")
    found = await control_plane.request("GET", f"/api/v1/namespaces/{namespace}")
    assert found["status"]["phase"] == "Active"


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_the_api_server_comes_back_with_its_port_and_its_data(kill: bool) -> None:
    async with ControlPlane() as cp:
        await cp.kubectl("create", "configmap", "kept", "--from-literal=key=value")
        pids, url = dict(cp.pids), cp.server
        watch = await asyncio.create_subprocess_exec(
            cp.binary("kubectl"),
            f"--kubeconfig={cp.kubeconfig}",
            *("get", "configmaps", "--watch", "-o", "name"),
            stdout=subprocess.PIPE,
        )
        assert watch.stdout is not None
        assert await watch.stdout.readline() == b"configmap/kept\n"

        await cp.stop_apiserver(kill=kill)
        assert not is_running(pids["kube-apiserver"])
        with pytest.raises(aiohttp.ClientConnectorError):
            await cp.request("GET", "/version")
        async with asyncio.timeout(10):
            await watch.wait()  # it is not left hanging

        await cp.start_apiserver()
        assert cp.server == url
        assert cp.pids["etcd"] == pids["etcd"]
        assert await cp.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.key}") == "value"
        pids |= cp.pids
    assert_nothing_left(cp, pids.values())


async def test_options_of_the_api_server() -> None:
    options = ["--max-requests-inflight=77"]
    async with ControlPlane(audit_log=True, service_account_admission=True, extra_apiserver_args=options) as cp:
        with pytest.raises(aiohttp.ClientResponseError, match="error looking up service account default/default"):
            await cp.request("POST", "/api/v1/namespaces/default/pods", manifest("refused"))
        assert options[0] in arguments(cp.pids["kube-apiserver"])

        assert cp.audit_log is not None
        events = [json.loads(line) for line in cp.audit_log.read_text().splitlines()]
        of_admin = [event for event in events if event["user"]["username"] == "kcm-testing-admin"]
        assert of_admin[-1]["verb"] == "create"
        assert of_admin[-1]["responseStatus"]["code"] == 403
        assert of_admin[-1]["requestObject"]["metadata"]["name"] == "refused"
        assert "RequestReceived" not in {event["stage"] for event in events}
        assert all("requestObject" not in event for event in events if event["verb"] == "get")


async def test_kubectl_says_why_it_failed(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlError, match=r'kubectl get pod nobody ended with status 1: .*pods "nobody" not found'):
        await control_plane.kubectl("get", "pod", "nobody")
    assert await control_plane.kubectl("get", "pod", "nobody", check=False) == ""


class TestNothingIsLeft:
    async def test_after_a_failed_start(self) -> None:
        cp = ControlPlane(extra_apiserver_args=["--no-such-flag"])
        pids: dict[str, int] = {}

        async def note_pids() -> None:
            while True:
                pids.update(cp.pids)
                await asyncio.sleep(0)

        notes = asyncio.create_task(note_pids())
        with pytest.raises(
            StartError, match=r"kube-apiserver ended with status 1 (.*\n)+.*unknown flag: --no-such-flag"
        ):
            await cp.start()
        notes.cancel()
        assert pids.keys() == {"etcd", "kube-apiserver"}
        assert_nothing_left(cp, pids.values())

    async def test_when_the_start_is_cancelled(self) -> None:
        cp = ControlPlane()
        start = asyncio.create_task(cp.start())
        while "kube-apiserver" not in cp.pids:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0)
        pids = dict(cp.pids)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        assert_nothing_left(cp, pids.values())

    async def test_when_the_stop_is_cancelled(self) -> None:
        cp = ControlPlane()
        await cp.start()
        pids = dict(cp.pids)
        stop = asyncio.create_task(cp.stop())
        await asyncio.sleep(0)
        stop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stop
        assert_nothing_left(cp, pids.values())

    def test_running_when_its_user_is_killed(self, tmp_path: Path) -> None:
        script = """
            import asyncio, json
            from kcm.testing import ControlPlane

            async def main():
                async with ControlPlane(scheduler=True, nodes=1) as cp:
                    print(json.dumps(dict(cp.pids)), flush=True)
                    await asyncio.sleep(600)

            asyncio.run(main())
        """
        root = Path(kcm.__file__).parent.parent
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(root)},
        ) as user:
            assert user.stdout is not None
            pids = json.loads(user.stdout.readline())
            assert pids.keys() == {"etcd", "kube-apiserver", "kube-scheduler", "kwok"}
            ends = [os.pidfd_open(pid) for pid in pids.values()]
            user.send_signal(signal.SIGKILL)
        for end in ends:
            assert select.select([end], [], [], 10)[0] == [end]  # readable once the process has ended
            os.close(end)
