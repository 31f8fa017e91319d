"""A control plane on loopback: etcd, kube-apiserver and, when asked for, kube-scheduler and nodes played by kwok.

It differs from a cluster in little that a controller could see: etcd does not wait for the disk, there is no controller
manager, and two admission plugins are off. ServiceAccount would refuse every pod until somebody creates the default
account of its namespace (`service_account_admission=True` turns it on), and TaintNodesByCondition would taint each new node
until a node controller removes the taint.

Guarantees: each server listens on 127.0.0.1 only, on a port that no other process can take while the control plane lives; API
server and scheduler speak TLS with certificates of an authority made for this run; whatever was started is stopped, and the
directory with keys, data and logs removed, when a start fails or is cancelled half-way and when `stop` is cancelled. When
this process is killed the servers are killed with it (Linux), but the directory stays.
"""

import asyncio
import functools
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from kcm.testing import binaries
from kcm.testing.certificates import Authority, kubeconfig, signing_key, write_private
from kcm.testing.process import Server, die_with_parent, reserve_port

# Bodies of writes are what two controller managers are compared by; of reads it is enough that they happened.
_AUDIT_POLICY = b"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Request
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
"""
_FRONT_PROXY = "front-proxy-client"
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-node-lease", "kube-public")
_STOP_ORDER = ("kwok", "kube-scheduler", "kube-apiserver", "etcd")
_HTTP_TIMEOUT = aiohttp.ClientTimeout(total=10)


class KubectlError(RuntimeError):
    """kubectl ended with a status other than 0; the message has what it wrote to standard error."""


class ControlPlane:
    """A control plane that lives for one `async with`, or from `start` to `stop`. It can be started once.

    Its processes belong to no event loop: each method may be awaited from another one. They are killed when the thread
    that started them ends, so start it from the main thread.

    Args:
        scheduler: Run kube-scheduler.
        nodes: How many nodes kwok plays, each Ready with room for a million pods. With a node's name set, by the scheduler
            or by hand, a pod is Running and Ready at once, and is gone at once when it is deleted. With 0 there is no kwok.
        audit_log: Record every request as JSON lines in `audit_log`, writes with their bodies.
        service_account_admission: Run the admission plugin ServiceAccount.
        extra_apiserver_args: More flags for kube-apiserver; of a flag given twice the last one counts.
        start_timeout: Seconds that each server may take until it is ready.
    """

    def __init__(
        self,
        *,
        scheduler: bool = False,
        nodes: int = 0,
        audit_log: bool = False,
        service_account_admission: bool = False,
        extra_apiserver_args: Sequence[str] = (),
        start_timeout: float = 60.0,
    ) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self._audit = audit_log
        self._service_account_admission = service_account_admission
        self._extra_apiserver_args = tuple(extra_apiserver_args)
        self._start_timeout = start_timeout
        self._authority = Authority("kcm-testing-ca")
        self._directory: Path | None = None
        self._reservations: dict[str, socket.socket] = {}
        self._servers: dict[str, Server] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def directory(self) -> Path:
        """Where keys, etcd's data and the servers' logs (logs/NAME.log) lie until the end."""
        if self._directory is None:
            raise RuntimeError("the control plane is not started")
        return self._directory

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self._port('kube-apiserver')}"

    @property
    def ca_pem(self) -> bytes:
        """The certificate authority that signed every server's and client's certificate."""
        return self._authority.certificate

    @property
    def kubeconfig(self) -> Path:
        """For a member of system:masters."""
        return self.directory / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path | None:
        """The API server's audit log, or None without the option of that name."""
        return self.directory / "audit.log" if self._audit else None

    @property
    def pids(self) -> Mapping[str, int]:
        """The process ids of the servers that run, by name."""
        return {name: server.pid for name, server in self._servers.items()}

    @staticmethod
    def binary(name: str) -> Path:
        """The file of a server, such as kube-controller-manager; see `kcm.testing.binaries.find`."""
        return binaries.find(name)

    async def start(self) -> None:
        """Starts everything and returns when all of it is ready.

        Raises:
            BinariesError: A server is not built.
            StartError: A server did not become ready.
        """
        if self._directory is not None:
            raise RuntimeError("a control plane can be started once")
        self._directory = Path(tempfile.mkdtemp(prefix="kcm-control-plane-"))
        try:
            self._prepare()
            etcd = self._launch("etcd", self._etcd_flags())
            apiserver = self._launch("kube-apiserver", self._apiserver_flags())
            await etcd.wait_ready(self._etcd_is_ready, timeout=self._start_timeout)
            await apiserver.wait_ready(self._apiserver_is_ready, timeout=self._start_timeout)
            waits = []
            if self._scheduler:
                waits.append((self._launch("kube-scheduler", self._scheduler_flags()), self._scheduler_is_ready))
            if self._nodes:
                waits.append((self._launch("kwok", self._kwok_flags()), self._nodes_are_ready))
                await self._create_nodes()
            for server, is_ready in waits:
                await server.wait_ready(is_ready, timeout=self._start_timeout)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stops every server, clients before those that they talk to, and removes the directory. Harmless when stopped."""
        try:
            for name in _STOP_ORDER:
                if name in self._servers:
                    await self._servers[name].stop()
        finally:
            for server in self._servers.values():
                server.kill()
            self._servers.clear()
            for reservation in self._reservations.values():
                reservation.close()
            self._reservations.clear()
            if self._directory is not None and self._directory.exists():
                shutil.rmtree(self._directory)

    async def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stops the API server alone; connections are refused until `start_apiserver`.

        Args:
            kill: End it as a crash would. Otherwise it answers what it has begun, ends its watches and takes about a second.
        """
        apiserver = self._servers["kube-apiserver"]
        if not kill:
            await apiserver.stop()
        apiserver.kill()
        del self._servers["kube-apiserver"]

    async def start_apiserver(self) -> None:
        """Starts the API server again, with the same port and data, and returns when it is ready.

        Raises:
            StartError: It did not become ready.
        """
        if "kube-apiserver" in self._servers:
            raise RuntimeError("the API server is running")
        apiserver = self._launch("kube-apiserver", self._apiserver_flags())
        await apiserver.wait_ready(self._apiserver_is_ready, timeout=self._start_timeout)

    def write_kubeconfig(self, *, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for any identity, with a client certificate. What it may do is up to RBAC."""
        content = kubeconfig(
            server=self.server,
            authority=self.ca_pem,
            identity=self._authority.client(user, groups),
            user=user,
        )
        readable = re.sub(r"[^\w.-]+", "-", user)
        handle, path = tempfile.mkstemp(prefix=f"{readable}-", suffix=".kubeconfig", dir=self.directory)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return Path(path)

    async def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002 - as subprocess.run
        """Runs kubectl as the administrator; returns what it wrote to standard output.

        Args:
            args: Its arguments, as in `await cp.kubectl("get", "pods", "-o", "json")`.
            input: Its standard input, for `-f -`.
            check: Whether a status other than 0 is an error.

        Raises:
            KubectlError: It failed, with `check`.
        """
        process = await asyncio.create_subprocess_exec(
            binaries.find("kubectl"),
            f"--kubeconfig={self.kubeconfig}",
            *args,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            preexec_fn=die_with_parent(),
        )
        try:
            output, errors = await process.communicate(None if input is None else input.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if check and process.returncode:
            command = " ".join(("kubectl", *args))
            raise KubectlError(f"{command} ended with status {process.returncode}: {errors.decode().strip()}")
        return output.decode()

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """Sends one request to the API server as the administrator and returns its JSON answer.

        Raises:
            aiohttp.ClientResponseError: The status is 400 or more; `message` has the answer.
            aiohttp.ClientError: There was no answer.
        """
        async with self._session() as session, session.request(method, self.server + path, json=body) as response:
            if response.status >= 400:
                raise aiohttp.ClientResponseError(
                    response.request_info, (), status=response.status, message=await response.text()
                )
            return await response.json()

    def _prepare(self) -> None:
        """Everything that must be there before the first server starts."""
        pki = self.directory / "pki"
        pki.mkdir()
        (self.directory / "logs").mkdir()
        write_private(pki / "ca.crt", self._authority.certificate)
        front_proxy = Authority("kcm-testing-front-proxy-ca")
        write_private(pki / "front-proxy-ca.crt", front_proxy.certificate)
        front_proxy.client(_FRONT_PROXY).write(pki, _FRONT_PROXY)
        hosts = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        self._authority.serving("kube-apiserver", hosts).write(pki, "kube-apiserver")
        self._authority.serving("kube-scheduler").write(pki, "kube-scheduler")
        private, public = signing_key()
        write_private(pki / "service-account.key", private)
        write_private(pki / "service-account.pub", public)
        write_private(self.directory / "audit-policy.yaml", _AUDIT_POLICY)
        for name in ("etcd", "kube-apiserver", *(["kube-scheduler"] if self._scheduler else [])):
            self._reservations[name] = reserve_port()
        admin = self._authority.client("kcm-testing-admin", ["system:masters"])
        admin.write(pki, "admin")
        content = kubeconfig(server=self.server, authority=self.ca_pem, identity=admin, user="kcm-testing-admin")
        write_private(self.kubeconfig, content)

    def _launch(self, name: str, flags: Sequence[str]) -> Server:
        log = self.directory / "logs" / f"{name}.log"
        self._servers[name] = Server(name, [binaries.find(name), *flags], log=log, env=self._environment())
        return self._servers[name]

    def _environment(self) -> dict[str, str]:
        # Nothing of the user's own set-up may decide what a test sees: no ~/.kube, no ~/.kwok, no ETCD_* variables.
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.directory), "TMPDIR": str(self.directory)}

    def _port(self, name: str) -> int:
        if name not in self._reservations:
            raise RuntimeError("the control plane is not started")
        port: int = self._reservations[name].getsockname()[1]
        return port

    def _etcd_flags(self) -> list[str]:
        url = self._etcd_url()
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--socket-reuse-port",
            "--unsafe-no-fsync",
        ]

    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._port('etcd')}"

    def _apiserver_flags(self) -> list[str]:
        pki = self.directory / "pki"
        disabled = ["TaintNodesByCondition", *([] if self._service_account_admission else ["ServiceAccount"])]
        flags = [
            f"--etcd-servers={self._etcd_url()}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port('kube-apiserver')}",
            "--permit-port-sharing",
            # Without it a server that is told to stop keeps its watches open for a minute.
            "--shutdown-watch-termination-grace-period=1s",
            # A loopback address is not valid in Endpoints, and nothing routes to the Service.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={','.join(disabled)}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
            f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'service-account.pub'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
            f"--requestheader-allowed-names={_FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki / _FRONT_PROXY}.crt",
            f"--proxy-client-key-file={pki / _FRONT_PROXY}.key",
        ]
        if self.audit_log is not None:
            flags += [
                f"--audit-policy-file={self.directory / 'audit-policy.yaml'}",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-maxsize=0",  # never begins a second file
            ]
        return [*flags, *self._extra_apiserver_args]

    def _scheduler_flags(self) -> list[str]:
        pki = self.directory / "pki"
        identity = self.write_kubeconfig(user="system:kube-scheduler")
        return [
            f"--kubeconfig={identity}",
            f"--authentication-kubeconfig={identity}",
            f"--authorization-kubeconfig={identity}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port('kube-scheduler')}",
            "--permit-port-sharing",
            f"--tls-cert-file={pki / 'kube-scheduler.crt'}",
            f"--tls-private-key-file={pki / 'kube-scheduler.key'}",
            "--leader-elect=false",
        ]

    def _kwok_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            *(f"--config={stage}" for stage in binaries.kwok_stages()),
            "--manage-all-nodes",
            # Nobody watches for missed heartbeats, and their writes would be noise in an audit log.
            "--node-lease-duration-seconds=0",
            "--node-ip=127.0.0.1",
            "--cidr=10.244.0.0/16",
        ]

    async def _create_nodes(self) -> None:
        for number in range(self._nodes):
            name = f"node-{number}"
            labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            await self.request("POST", "/api/v1/nodes", node)

    async def _etcd_is_ready(self) -> bool:
        return await self._answers(f"{self._etcd_url()}/health")

    async def _apiserver_is_ready(self) -> bool:
        # The system namespaces are made in the background, and are not part of /readyz.
        paths = ("/readyz", *(f"/api/v1/namespaces/{name}" for name in _SYSTEM_NAMESPACES))
        return await self._answers(*(self.server + path for path in paths))

    async def _scheduler_is_ready(self) -> bool:
        return await self._answers(f"https://127.0.0.1:{self._port('kube-scheduler')}/readyz")

    async def _nodes_are_ready(self) -> bool:
        nodes = (await self.request("GET", "/api/v1/nodes"))["items"]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
            for node in nodes
        )

    async def _answers(self, *urls: str) -> bool:
        """Whether every URL is answered with success."""
        try:
            async with self._session() as session:
                for url in urls:
                    async with session.get(url) as response:
                        if response.status != 200:
                            return False
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        return aiohttp.ClientSession(connector=connector, timeout=_HTTP_TIMEOUT, trust_env=False)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """The administrator's."""
        context = ssl.create_default_context(cadata=self.ca_pem.decode())
        context.load_cert_chain(self.directory / "pki" / "admin.crt", self.directory / "pki" / "admin.key")
        return context
