"""kcm beside the stock manager, in turn on the same API server: `make bench`.

Both run the same controllers with the same workers and without a client-side limit worth the name. One Deployment is scaled
0 → N → 0; a round is one manager's turn. What is printed comes from the kernel's accounting of the manager's process.
"""

import argparse
import asyncio
import os
import pstats
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kcm.api.client import MERGE_PATCH, Client
from kcm.api.config import load_config
from kcm.api.credentials import ConfigCredentials
from kcm.api.resources import DEPLOYMENTS
from kcm.api.transport import Transport
from kcm.testing.control_plane import ControlPlane

NAMESPACE, NAME = "default", "bench"
#: Below this share of the stock manager's speed the profile is printed.
SLOW = 0.6
#: Seconds that one scaling may take.
PATIENCE = 300.0
FLAGS = (
    "--leader-elect=false",
    "--secure-port=0",
    "--controllers=deployment-controller,replicaset-controller",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
)
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """One manager's turn."""

    created_per_second: float
    deleted_per_second: float
    create_cpu_ms: float
    delete_cpu_ms: float
    rss_mb: float


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@asynccontextmanager
async def running(command: Sequence[str], kubeconfig: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a manager and end it with SIGTERM."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, f"--kubeconfig={kubeconfig}", *FLAGS, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


class ManagerEndedError(Exception):
    """The manager under test ended by itself."""


async def scale(client: Client, pods: int, manager: asyncio.subprocess.Process) -> float:
    """Scale the Deployment and give the seconds until its status shows that many pods.

    Raises:
        ManagerEndedError: nobody is left to do it.
    """
    started = time.perf_counter()
    await client.patch(DEPLOYMENTS, NAMESPACE, NAME, {"spec": {"replicas": pods}}, content_type=MERGE_PATCH)
    async with asyncio.timeout(PATIENCE):
        while True:
            deployment = await client.get(DEPLOYMENTS, NAMESPACE, NAME)
            observed = deployment.status.observed_generation >= deployment.metadata.generation
            if observed and deployment.status.replicas == pods:
                return time.perf_counter() - started
            if manager.returncode is not None:
                raise ManagerEndedError(f"the manager ended with status {manager.returncode}")
            await asyncio.sleep(0.05)


async def take_turn(client: Client, command: Sequence[str], kubeconfig: Path, pods: int, log: Path) -> Round:
    """Scale up and down under one manager."""
    async with running(command, kubeconfig, log) as process:
        await scale(client, 1, process)
        await scale(client, 0, process)
        before = cpu_seconds(process.pid)
        up = await scale(client, pods, process)
        between, memory = cpu_seconds(process.pid), rss_mb(process.pid)
        down = await scale(client, 0, process)
        after = cpu_seconds(process.pid)
    return Round(pods / up, pods / down, (between - before) / pods * 1e3, (after - between) / pods * 1e3, memory)


def median(rounds: Iterable[Round], figure: str) -> float:
    """The median of one figure."""
    return float(statistics.median(getattr(turn, figure) for turn in rounds))


BUDGETS = (
    ("created_per_second", "pods created per second", "≥ 1.0"),
    ("deleted_per_second", "pods deleted per second", "≥ 1.0"),
    ("create_cpu_ms", "CPU per created pod, ms", "≤ 1.5"),
    ("delete_cpu_ms", "CPU per deleted pod, ms", "≤ 1.5"),
    ("rss_mb", "RSS with all pods, MB", ""),
)


def report(kcm: Sequence[Round], stock: Sequence[Round], pods: int) -> None:
    """Print both and their ratios."""
    print(f"\n0 → {pods} → 0, medians of {len(kcm)}; the budget is for kcm as a multiple of stock\n")
    print(f"{'':28}{'kcm':>10}{'stock':>10}{'ratio':>8}  budget")
    for figure, title, budget in BUDGETS:
        ours, theirs = median(kcm, figure), median(stock, figure)
        print(f"{title:28}{ours:10.2f}{theirs:10.2f}{ours / theirs:8.2f}  {budget}")


async def profile(client: Client, kubeconfig: Path, pods: int, folder: Path) -> None:
    """Print where kcm's time goes: one more turn under the profiler."""
    output = folder / "profile"
    # With this gate SIGTERM is a clean stop, at which the profile is written.
    gate = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"
    command = [sys.executable, "-m", "cProfile", "-o", str(output), "-m", "kcm", gate]
    await take_turn(client, command, kubeconfig, pods, folder / "profiled.log")
    print("\nwhere kcm's time goes (under the profiler, which slows calls down):")
    pstats.Stats(str(output)).sort_stats("tottime").print_stats(25)


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": NAME, "namespace": NAMESPACE},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": NAME}},
        "template": {
            "metadata": {"labels": {"app": NAME}},
            "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {}}]},
        },
    },
}


async def main() -> None:
    """Run the rounds and report."""
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print the profile whatever the speed is")
    arguments = parser.parse_args()
    async with ControlPlane() as plane:
        config = load_config(kubeconfig=str(plane.kubeconfig), master="")
        stock = [str(plane.binary("kube-controller-manager"))]
        ours = [sys.executable, "-m", "kcm"]
        results: dict[str, list[Round]] = {"kcm": [], "stock": []}
        with tempfile.TemporaryDirectory(prefix="kcm-bench-") as name:
            folder = Path(name)
            async with Transport(config.endpoint(), ConfigCredentials(config)) as transport:
                client = Client(transport, user_agent="kcm-bench", qps=-1)
                await client.create(DEPLOYMENTS, NAMESPACE, DEPLOYMENT)
                for number in range(arguments.rounds):
                    for who, command in (("stock", stock), ("kcm", ours)):
                        turn = await take_turn(client, command, plane.kubeconfig, arguments.pods, folder / f"{who}.log")
                        results[who].append(turn)
                        print(f"round {number + 1}, {who:5}: {turn.created_per_second:6.0f} created/s", flush=True)
                report(results["kcm"], results["stock"], arguments.pods)
                ratio = median(results["kcm"], "created_per_second") / median(results["stock"], "created_per_second")
                if ratio < SLOW or arguments.profile:
                    await profile(client, plane.kubeconfig, arguments.pods, folder)


if __name__ == "__main__":
    asyncio.run(main())
