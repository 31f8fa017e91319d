"""`make demo`: a control plane, kcm, a Deployment and a StatefulSet, and their updates to watch.

Everything shown and checked comes from a watch. The bounds of the update are checked at every change, and what does not
converge or leaves its bounds makes the exit status 1.
"""

import argparse
import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kcm.api.client import Client
from kcm.api.config import load_config
from kcm.api.credentials import ConfigCredentials
from kcm.api.intstr import scaled_value
from kcm.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS
from kcm.api.transport import Transport
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.core import Pod
from kcm.informers.factory import SharedInformerFactory
from kcm.options import IMPLEMENTED_CONTROLLERS
from kcm.testing.control_plane import ControlPlane
from kcm.testing.demo_ordered import OrderedRollout, ready

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
NAMESPACE, NAME, ORDERED = "default", "web", "db"
NAME_LABEL = "app.kubernetes.io/name"
NEW_IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.54"
#: Seconds that each stage may take.
PATIENCE = 120.0


class DemoError(Exception):
    """The demo did not go as it should; the text says how."""


@dataclass
class Rollout:
    """What the watches show of the Deployment and what belongs to it."""

    deployment: Deployment | None = None
    replica_sets: list[ReplicaSet] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    updating: bool = False
    violations: list[str] = field(default_factory=list)

    @property
    def active(self) -> int:
        """Pods that are not on their way out."""
        return sum(pod.metadata.deletion_timestamp is None for pod in self.pods)

    @property
    def available(self) -> int:
        """Pods that could serve."""
        return sum(ready(pod) for pod in self.pods)

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest available and most pods during an update."""
        if self.deployment is None or self.deployment.spec.strategy.rolling_update is None:
            return 0, 0
        replicas, rolling = self.deployment.spec.replicas, self.deployment.spec.strategy.rolling_update
        surge = scaled_value(rolling.max_surge or 0, replicas, round_up=True)
        unavailable = scaled_value(rolling.max_unavailable or 0, replicas, round_up=False)
        return replicas - unavailable, replicas + surge

    @property
    def complete(self) -> bool:
        """Whether the Deployment has what it wants."""
        if self.deployment is None:
            return False
        status, wanted = self.deployment.status, self.deployment.spec.replicas
        observed = status.observed_generation >= self.deployment.metadata.generation
        counts = {status.replicas, status.updated_replicas, status.available_replicas, self.active, self.available}
        return observed and counts == {wanted}

    def check(self) -> None:
        """Note where the update leaves its bounds."""
        least, most = self.bounds
        if self.updating and self.available < least:
            self.violations.append(f"{self.available} pods available, {least} are the least allowed")
        if self.active > most > 0:
            self.violations.append(f"{self.active} pods, {most} are the most allowed")


class Screen:
    """A table that is redrawn on a terminal; a line for each change elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._last = ""
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self._started:5.1f} s] {text}", flush=True)  # noqa: T201

    def tell(self, text: str) -> None:
        """Print a line if it says something new."""
        if text != self._last:
            self._last = text
            self.say(text)

    @asynccontextmanager
    async def showing(self, rollout: Rollout) -> AsyncIterator[Callable[[], None]]:
        """Show a rollout until it is over; the function redraws it."""
        if not self._live:
            yield lambda: self._line(rollout)
            return
        from rich.live import Live  # noqa: PLC0415 - only wanted on a terminal

        with Live(_table(rollout), auto_refresh=False) as live:
            yield lambda: live.update(_table(rollout), refresh=True)

    def _line(self, rollout: Rollout) -> None:
        sizes = ", ".join(
            f"{rs.metadata.name} {rs.status.available_replicas}/{rs.spec.replicas}" for rs in rollout.replica_sets
        )
        self.tell(f"pods {rollout.active:2}  available {rollout.available:2}  ({sizes or 'no ReplicaSet yet'})")


def _table(rollout: Rollout) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415 - only wanted on a terminal

    least, most = rollout.bounds
    table = Table(title=f"Deployment {NAMESPACE}/{NAME}", caption=f"at least {least} available, at most {most} pods")
    for column in ("ReplicaSet", "image", "wanted", "pods", "available", ""):
        right = column in {"wanted", "pods", "available"}
        table.add_column(column, justify="right" if right else "left", min_width=0 if column else most)
    for rs in rollout.replica_sets:
        image = rs.spec.template.spec["containers"][0]["image"].rpartition("/")[2]
        bar = "█" * rs.status.available_replicas + "░" * (rs.status.replicas - rs.status.available_replicas)
        counts = (rs.spec.replicas, rs.status.replicas, rs.status.available_replicas)
        table.add_row(rs.metadata.name, image, *map(str, counts), f"[green]{bar}[/green]")
    table.add_section()
    table.add_row("all", "", "", str(rollout.active), str(rollout.available), "")
    return table


class Observer:
    """Keeps a rollout as the server's watches show it and wakes whoever waits for a state."""

    def __init__(self, client: Client) -> None:
        self.rollout = Rollout()
        self.ordered = OrderedRollout()
        self._changed = asyncio.Event()
        factory = SharedInformerFactory(client)
        self._deployments, self._replica_sets = factory.informer(DEPLOYMENTS), factory.informer(REPLICA_SETS)
        self._stateful_sets, self._pods = factory.informer(STATEFUL_SETS), factory.informer(PODS)
        for informer in (self._deployments, self._replica_sets, self._stateful_sets, self._pods):
            informer.add_handler(on_add=self._look, on_update=self._look, on_delete=self._look)
        self.run = factory.run

    def _look(self, *_: object) -> None:
        self.rollout.deployment = self._deployments.store.get(f"{NAMESPACE}/{NAME}")
        owner = self.rollout.deployment.metadata.uid if self.rollout.deployment else ""
        owned = [
            rs for rs in self._replica_sets.store.list(NAMESPACE) if (c := rs.metadata.controller) and c.uid == owner
        ]
        self.rollout.replica_sets = sorted(
            owned, key=lambda rs: (str(rs.metadata.creation_timestamp), rs.metadata.name)
        )
        self.rollout.pods = self._pods_named(NAME)
        self.rollout.check()
        self.ordered.look(self._stateful_sets.store.get(f"{NAMESPACE}/{ORDERED}"), self._pods_named(ORDERED))
        self._changed.set()

    def _pods_named(self, name: str) -> list[Pod]:
        return [pod for pod in self._pods.store.list(NAMESPACE) if pod.metadata.labels.get(NAME_LABEL) == name]

    async def wait_ordered(self, what: str, done: Callable[[OrderedRollout], bool], screen: Screen) -> None:
        """Tell of the StatefulSet until it has reached a state. Raises as `wait`."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not done(self.ordered):
                    screen.tell(str(self.ordered))
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DemoError(f"{what} did not happen within {PATIENCE:.0f} s") from None
        screen.tell(str(self.ordered))

    async def wait(self, what: str, done: Callable[[Rollout], bool], screen: Screen) -> None:
        """Show the rollout until it has reached a state.

        Raises:
            DemoError: it did not within the time that a stage may take.
        """
        try:
            async with asyncio.timeout(PATIENCE), screen.showing(self.rollout) as redraw:
                while not done(self.rollout):
                    redraw()
                    self._changed.clear()
                    await self._changed.wait()
                redraw()
        except TimeoutError:
            raise DemoError(f"{what} did not happen within {PATIENCE:.0f} s") from None


@asynccontextmanager
async def kcm_process(plane: ControlPlane, port: int, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run kcm until left, then stop it with SIGTERM."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kcm",
            f"--kubeconfig={plane.kubeconfig}",
            f"--controllers={','.join(IMPLEMENTED_CONTROLLERS)}",
            "--leader-elect-resource-name=kcm",
            "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            stdout=output,
            stderr=output,
            # Ctrl-C is for the demo, which then stops kcm in order.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def story(plane: ControlPlane, observer: Observer, screen: Screen) -> None:
    """Apply the examples, update the image, and look at what is left.

    Raises:
        DemoError: something did not converge or left its bounds.
    """
    rollout = observer.rollout
    screen.say(f"kubectl apply -k {EXAMPLES.relative_to(EXAMPLES.parents[1])}")
    await plane.kubectl("apply", "-k", str(EXAMPLES))
    await observer.wait("the first rollout", lambda r: r.complete, screen)
    least, most = rollout.bounds
    screen.say(f"{rollout.available} of {rollout.active} pods are available")
    first = rollout.replica_sets[0].metadata.name

    screen.say(f"kubectl set image deployment/{NAME} web={NEW_IMAGE}")
    rollout.updating = True
    await plane.kubectl("set", "image", f"deployment/{NAME}", f"web={NEW_IMAGE}")
    await observer.wait("the update", lambda r: len(r.replica_sets) == 2 and r.complete, screen)
    old = [rs for rs in rollout.replica_sets if rs.metadata.name == first]
    if [(rs.spec.replicas, rs.status.replicas) for rs in old] != [(0, 0)]:
        raise DemoError(f"the old ReplicaSet {first} still has pods")
    if rollout.violations:
        raise DemoError("the update left its bounds: " + "; ".join(rollout.violations))
    screen.say(
        f"updated: never fewer than {least} available nor more than {most} pods; {first} is kept at 0 for an undo"
    )


async def ordered_story(plane: ControlPlane, observer: Observer, screen: Screen) -> None:
    """Scale the StatefulSet of the examples and update its image; both go in order.

    Raises:
        DemoError: something did not converge, or happened out of order.
    """
    rollout = observer.ordered
    await observer.wait_ordered("the StatefulSet", lambda r: r.complete, screen)
    screen.say(f"kubectl scale statefulset/{ORDERED} --replicas=5")
    await plane.kubectl("scale", f"statefulset/{ORDERED}", "--replicas=5")
    await observer.wait_ordered("scaling the StatefulSet", lambda r: r.complete and len(r.pods) == 5, screen)
    screen.say(f"kubectl set image statefulset/{ORDERED} {ORDERED}={NEW_IMAGE}")
    before = rollout.stateful_set.status.update_revision if rollout.stateful_set else ""
    await plane.kubectl("set", "image", f"statefulset/{ORDERED}", f"{ORDERED}={NEW_IMAGE}")
    await observer.wait_ordered(
        "updating the StatefulSet",
        lambda r: r.complete and r.stateful_set is not None and r.stateful_set.status.update_revision != before,
        screen,
    )
    if rollout.violations:
        raise DemoError("the StatefulSet left its order: " + "; ".join(rollout.violations))
    screen.say("scaled from the lowest pod up and updated from the highest down, one at a time")


async def both_stories(plane: ControlPlane, observer: Observer, screen: Screen) -> None:
    """The Deployment's, then the StatefulSet's. Raises as they do."""
    await story(plane, observer, screen)
    await ordered_story(plane, observer, screen)


async def demo(*, once: bool) -> None:
    """Run it all.

    Raises:
        DemoError: as `story`, or kcm ended by itself.
    """
    screen = Screen()
    screen.say("starting etcd, kube-apiserver, kube-scheduler and kwok with three nodes")
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane(scheduler=True, nodes=3))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kcm-demo-")))
        log, port = folder / "kcm.log", free_port()
        screen.say("starting kcm with leader election")
        process = await stack.enter_async_context(kcm_process(plane, port, log))
        config = load_config(kubeconfig=str(plane.kubeconfig), master="")
        transport = await stack.enter_async_context(Transport(config.endpoint(), ConfigCredentials(config)))
        observer = Observer(Client(transport, user_agent="kcm-demo"))
        parts = [
            asyncio.create_task(both_stories(plane, observer, screen)),
            asyncio.create_task(observer.run()),
            asyncio.create_task(process.wait()),
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            if parts[2].done():
                raise DemoError(f"kcm ended with status {process.returncode}; its last words:\n{tail(log)}")
            await next(part for part in parts if part.done())
            screen.say(f"metrics: https://127.0.0.1:{port}/metrics")
            if not once:
                screen.say(f"look around with: export KUBECONFIG={plane.kubeconfig}")
                screen.say("kubectl get deployments,replicasets,statefulsets,pods")
                screen.say(f"kubectl: {plane.binary('kubectl')}, log of kcm: {log}")
                screen.say("Ctrl-C stops everything")
                await parts[2]
                raise DemoError(f"kcm ended with status {process.returncode}; its last words:\n{tail(log)}")
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
    screen.say("stopped")


def free_port() -> int:
    """A port on loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def main() -> int:
    """Run the demo; 0 if all went as it should."""
    parser = argparse.ArgumentParser(prog="make demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--once", action="store_true", help="stop after the update instead of waiting for Ctrl-C")
    arguments = parser.parse_args()
    try:
        asyncio.run(demo(once=arguments.once))
    except KeyboardInterrupt:
        print("\nstopped")  # noqa: T201
        return 0
    except DemoError as error:
        print(f"demo failed: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
