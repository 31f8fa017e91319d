"""What integration and fault tests share: kcm as a process, and a namespace as the server's watches show it.

Tests wait for events, never for time to pass: `Namespace.until` looks at every change that the server tells of, and `always`
checks something at each of them. Every wait ends after PATIENCE seconds and says what there was instead. Objects are plain
JSON, read by code that has nothing in common with kcm's.

A conftest imports the fixtures that it offers from here, and `pytest_runtest_makereport`, which adds the end of the managers'
logs to the report of a failed test.
"""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kcm.testing import ControlPlane
from kcm.testing.process import die_with_parent

Document = dict[str, Any]

ROOT = Path(__file__).parents[1]
#: Seconds that anything may take on a busy machine.
PATIENCE = 60.0
CONTROLLERS = "--controllers=deployment-controller,replicaset-controller"
#: So much that the client's limit does not count; stock is 20 and 30.
UNLIMITED = ("--kube-api-qps=1000", "--kube-api-burst=1000")
#: Lets everybody read the metrics.
OPEN_METRICS = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics"
#: Seconds of an election: short, but with room for a busy machine.
LEASE, RENEW, RETRY = 5.0, 4.0, 0.5
_LOG_LINES = 60

_PATHS = {
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "replicationcontrollers": "/api/v1",
    "statefulsets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "pods": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "resourcequotas": "/api/v1",
}
_WATCHED = tuple(plural for plural in _PATHS if plural != "resourcequotas")


def candidate(namespace: str, *, lease: float = LEASE, renew: float = RENEW, retry: float = RETRY) -> tuple[str, ...]:
    """Flags of a manager that serves nothing and competes for the Lease named kcm in a namespace; times are seconds."""
    return (
        CONTROLLERS,
        "--secure-port=0",
        "--leader-elect-resource-name=kcm",
        f"--leader-elect-resource-namespace={namespace}",
        f"--leader-elect-lease-duration={lease}s",
        f"--leader-elect-renew-deadline={renew}s",
        f"--leader-elect-retry-period={retry}s",
    )


#: What is run unless something else is named.
KCM = (sys.executable, "-m", "kcm")


class Manager:
    """kcm as a process that is killed with the thread that started it; its output goes to a file.

    Args:
        flags: Its command line.
        log: Where what it prints and logs goes.
        program: What is run instead of kcm.
    """

    def __init__(self, *flags: str, log: Path, program: Sequence[str] = KCM) -> None:
        self.log = log
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(log.parent)}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*program, *flags],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one system call, in a function that was loaded before
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """What it has printed and logged so far."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once and wait until it is gone. Harmless when it has ended."""
        self._process.kill()
        self._process.wait()

    async def exit_status(self, *, within: float = PATIENCE) -> int:
        """Wait for its end and give its status, that of a signal as a negative number."""
        ended = asyncio.Event()
        handle = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(handle, ended.set)  # readable once the process has ended
        try:
            async with asyncio.timeout(within):
                await ended.wait()
        except TimeoutError:
            raise AssertionError(f"the manager still runs after {within:.0f} s") from None
        finally:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
        return self._process.wait()

    def story(self) -> str:
        """How it fares, and the end of its log."""
        state = "running" if self.running else f"ended with status {self._process.returncode}"
        return "\n".join([f"({state})", *self.output.splitlines()[-_LOG_LINES:]])


class Managers:
    """The managers of one test."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._directory = directory
        self.started: list[Manager] = []

    def start(self, *flags: str, kubeconfig: Path | None = None, program: Sequence[str] = KCM) -> Manager:
        """Start kcm as the administrator, or with a kubeconfig; of a flag given twice the last one counts."""
        log = self._directory / f"kcm-{len(self.started)}.log"
        identity = f"--kubeconfig={kubeconfig or self._control_plane.kubeconfig}"
        manager = Manager(identity, *flags, log=log, program=program)
        self.started.append(manager)
        return manager

    def kill(self) -> None:
        """End those that still run."""
        for manager in self.started:
            manager.kill()


@pytest.fixture
def managers(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Managers]:
    """Starts managers that end with the test."""
    started = Managers(control_plane, tmp_path)
    try:
        yield started
    finally:
        started.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the managers of a failed test have logged."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            running = [value] if isinstance(value, Manager) else value.started if isinstance(value, Managers) else []
            report.sections.extend((f"log of kcm {manager.log.name}", manager.story()) for manager in running)
    return report


@contextmanager
def serving(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Run a control plane, for fixtures: in no event loop of a test."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(control_plane.start())
    try:
        yield control_plane
    finally:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(control_plane.stop())


class Namespace:
    """One namespace: what the server's watches show of it, and requests of the administrator.

    Each kind of object is followed by a watch of its own that misses no change. What is seen of different kinds need not be
    of the same moment, so what concerns several belongs into the condition of one `until`. What the test itself changes is
    seen once the method that changed it has returned.
    """

    def __init__(self, session: aiohttp.ClientSession, name: str) -> None:
        self.name = name
        #: Every state of every object, in order.
        self.history: dict[str, list[Document]] = {plural: [] for plural in _WATCHED}
        self._session = session
        self._objects: dict[str, dict[str, Document]] = {plural: {} for plural in _WATCHED}
        self._versions = dict.fromkeys(_WATCHED, 0)
        self._checks: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._watches: list[asyncio.Task[None]] = []

    @property
    def deployments(self) -> list[Document]:
        """The Deployments that there are."""
        return list(self._objects["deployments"].values())

    @property
    def replica_sets(self) -> list[Document]:
        """The ReplicaSets that there are, by revision."""
        return sorted(self._objects["replicasets"].values(), key=lambda rs: int(revision(rs) or 0))

    def all(self, plural: str) -> list[Document]:
        """The objects of a kind that there are."""
        return list(self._objects[plural].values())

    @property
    def pods(self) -> list[Document]:
        """The pods that there are, also those that are being deleted."""
        return list(self._objects["pods"].values())

    def pods_of(self, owner: Document) -> list[Document]:
        """The pods that an object controls."""
        return [pod for pod in self.pods if (reference := controller(pod)) and reference["uid"] == uid(owner)]

    @property
    def events(self) -> list[str]:
        """The events so far but for the scheduler's, as `Type Reason: message`."""
        return [
            f"{event['type']} {event['reason']}: {event['message']}"
            for event in self._objects["events"].values()
            if event["reportingComponent"] != "default-scheduler"
        ]

    @property
    def holder(self) -> str:
        """Who holds the one Lease here; empty if nobody does."""
        leases = self._objects["leases"].values()
        return next((str(found["spec"].get("holderIdentity") or "") for found in leases), "")

    def get(self, plural: str, name: str) -> Document:
        """An object as it was last seen; empty if there is none."""
        return self._objects[plural].get(name, {})

    async def until(self, condition: Callable[[], object], what: str, *, within: float = PATIENCE) -> None:
        """Return once a condition holds.

        Raises:
            AssertionError: it did not hold in time, or an `always` failed.
        """
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
                    for watch in self._watches:
                        if watch.done():
                            await watch
                            raise AssertionError(f"the server ended {watch.get_name()}")
        except TimeoutError:
            raise AssertionError(f"not within {within:.0f} s: {what}; there is:\n{self._summary()}") from None

    def always(self, check: Callable[[], None]) -> None:
        """Call a function with assertions now and at every change."""
        check()
        self._checks.append(check)

    async def create(self, plural: str, document: Document) -> Document:
        """Create an object and return what the server made of it."""
        return await self._seen(plural, await self._request("POST", self._path(plural), json=document))

    async def patch(self, plural: str, name: str, body: Document, subresource: str = "") -> Document:
        """Merge something into an object."""
        path = self._path(plural, name, subresource)
        headers = {"Content-Type": "application/merge-patch+json"}
        return await self._seen(plural, await self._request("PATCH", path, data=json.dumps(body), headers=headers))

    async def scale(self, plural: str, name: str, replicas: int) -> None:
        """Set replicas through the scale subresource."""
        await self.patch(plural, name, {"spec": {"replicas": replicas}}, "scale")

    async def delete(self, plural: str, name: str, **options: object) -> None:
        """Delete an object; keyword arguments are DeleteOptions."""
        await self._request("DELETE", self._path(plural, name), json=options)

    async def terminate(self) -> None:
        """Delete the namespace; without a namespace controller it stays, and nothing can be created in it any more."""
        await self._request("DELETE", f"/api/v1/namespaces/{self.name}")

    async def until_refused(self, plural: str, document: Document) -> None:
        """Try, without creating anything, until the server forbids it: nothing tells when admission knows what is new."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self._request("POST", self._path(plural), params={"dryRun": "All"}, json=document)
                except aiohttp.ClientResponseError as error:
                    if error.status == 403:
                        return
                    raise
                await asyncio.sleep(0.05)

    async def follow(self) -> None:
        """Watch until cancelled; returns once every kind was listed."""
        for plural in _WATCHED:
            listed = await self._request("GET", self._path(plural))
            for item in listed["items"]:
                self._take(plural, "ADDED", item)
            watch = self._watch(plural, listed["metadata"]["resourceVersion"])
            task = asyncio.create_task(watch, name=f"watch of {plural} in {self.name}")
            task.add_done_callback(lambda _: self._changed.set())
            self._watches.append(task)

    async def leave(self) -> None:
        """Stop watching.

        Raises:
            AssertionError: an `always` had failed.
        """
        for watch in self._watches:
            watch.cancel()
        for outcome in await asyncio.gather(*self._watches, return_exceptions=True):
            if isinstance(outcome, AssertionError):
                raise outcome

    async def _seen(self, plural: str, answer: Document) -> Document:
        """Wait until the watch has shown what the server answered."""
        if plural in _WATCHED:
            version = int(answer["metadata"]["resourceVersion"])
            await self.until(lambda: self._versions[plural] >= version, f"{plural} of version {version} are watched")
        return answer

    async def _watch(self, plural: str, version: str) -> None:
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
        endless = aiohttp.ClientTimeout(total=None)
        buffer = b""
        async with self._session.get(self._path(plural), params=params, timeout=endless) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    assert event["type"] in {"ADDED", "MODIFIED", "DELETED"}, event
                    self._take(plural, event["type"], event["object"])

    def _take(self, plural: str, change: str, document: Document) -> None:
        name = document["metadata"]["name"]
        self._versions[plural] = int(document["metadata"]["resourceVersion"])
        if change == "DELETED":
            self._objects[plural].pop(name, None)
        else:
            self._objects[plural][name] = document
            self.history[plural].append(document)
        for check in self._checks:
            check()
        self._changed.set()

    def _path(self, plural: str, name: str = "", subresource: str = "") -> str:
        parts = (f"{_PATHS[plural]}/namespaces/{self.name}/{plural}", name, subresource)
        return "/".join(part for part in parts if part)

    async def _request(self, method: str, path: str, **options: Any) -> Document:
        async with self._session.request(method, path, **options) as response:
            if response.status >= 400:
                raise aiohttp.ClientResponseError(
                    response.request_info, (), status=response.status, message=await response.text()
                )
            answer: Document = await response.json()
            return answer

    def _summary(self) -> str:
        lines = [f"  {plural}: {', '.join(sorted(found)) or 'none'}" for plural, found in self._objects.items()]
        for plural in ("deployments", "replicasets", "replicationcontrollers", "statefulsets", "leases"):
            for name, found in self._objects[plural].items():
                lines.append(f"  {name}: {json.dumps(found.get('status') or found['spec'])}")
        return "\n".join([*lines, *(f"  {event}" for event in self.events[-10:])])


@asynccontextmanager
async def watched(control_plane: ControlPlane, name: str) -> AsyncIterator[Namespace]:
    """Watch a namespace that exists."""
    pki = control_plane.directory / "pki"
    tls = ssl.create_default_context(cadata=control_plane.ca_pem.decode())
    tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    session = aiohttp.ClientSession(control_plane.server, connector=connector, trust_env=False)
    namespace = Namespace(session, name)
    try:
        await namespace.follow()
        yield namespace
    finally:
        await session.close()  # before the watches end: their connections are then waited for
        await namespace.leave()


@pytest.fixture
async def ns(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Namespace]:
    """A fresh namespace that is watched."""
    async with watched(control_plane, namespace) as found:
        yield found


async def audited(control_plane: ControlPlane) -> list[Document]:
    """What was asked of a server that keeps an audit log, from its start until now, in the order in which it was answered."""
    assert control_plane.audit_log is not None
    marker = f"until-{uuid.uuid4()}"
    # The log is written after the answer; this request comes after everything that was answered before.
    await control_plane.kubectl("get", "configmap", marker, "--ignore-not-found")
    async with asyncio.timeout(PATIENCE):
        while marker not in (text := control_plane.audit_log.read_text()):  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.05)
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


# Objects, and what is in them


def pod_template(image: str = "registry.test/web:1", **labels: str) -> Document:
    """The least that a pod needs."""
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }


def deployment(name: str = "web", *, replicas: int, **spec: object) -> Document:
    """A Deployment of pods labelled app=web; keyword arguments go into its spec."""
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod_template()}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {**body, **spec}}


def replica_set(
    name: str = "web", *, replicas: int, labels: Mapping[str, str] | None = None, **spec: object
) -> Document:
    """A ReplicaSet of pods labelled app=web; keyword arguments go into its spec."""
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod_template()}
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {**body, **spec}}


def replication_controller(name: str = "web", *, replicas: int, **spec: object) -> Document:
    """A ReplicationController of pods labelled app=web; keyword arguments go into its spec."""
    body = {"replicas": replicas, "selector": {"app": "web"}, "template": pod_template()}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": {**body, **spec}}


def pod(name: str, **metadata: object) -> Document:
    """A pod labelled app=web; keyword arguments go into its metadata."""
    template = pod_template()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": name, **metadata},
        "spec": template["spec"],
    }


def lease(*, holder: str) -> Document:
    """A Lease named kcm that somebody holds for an hour."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kcm"}, "spec": spec}


def with_image(image: str) -> Document:
    """A patch of the pod template's image."""
    return {"spec": {"template": pod_template(image)}}


def uid(document: Document) -> str:
    """Its identity; empty for what is not there."""
    return str(document.get("metadata", {}).get("uid", ""))


def names(documents: list[Document]) -> set[str]:
    """The names of objects."""
    return {document["metadata"]["name"] for document in documents}


def controller(document: Document) -> Document | None:
    """The owner reference of an object's controller."""
    owners: list[Document] = document["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), None)


def revision(document: Document) -> str:
    """A Deployment's or ReplicaSet's revision."""
    annotations: dict[str, str] = document["metadata"].get("annotations", {})
    return annotations.get("deployment.kubernetes.io/revision", "")


def condition(document: Document, kind: str) -> Document:
    """A condition of an object's status; empty if it has none of that kind."""
    conditions: list[Document] = document.get("status", {}).get("conditions", [])
    return next((found for found in conditions if found["type"] == kind), {})


def is_ready(document: Document) -> bool:
    """Whether a pod is ready and stays. One that has failed may still say that it is ready."""
    runs = document["status"].get("phase") == "Running" and "deletionTimestamp" not in document["metadata"]
    return runs and condition(document, "Ready").get("status") == "True"


def complete(document: Document) -> bool:
    """Whether the newest spec was seen and everything that it wants is there; with a partition, see the status."""
    if not document:
        return False
    status, wanted = document["status"], document["spec"]["replicas"]
    counters = [
        "replicas",
        "availableReplicas",
        *(["updatedReplicas"] if document["kind"] in {"Deployment", "StatefulSet"} else []),
    ]
    observed: int = status.get("observedGeneration", 0)
    return observed >= document["metadata"]["generation"] and {status.get(name, 0) for name in counters} == {wanted}


def instant(text: str) -> datetime:
    """A time as the API writes it."""
    return datetime.fromisoformat(text)
