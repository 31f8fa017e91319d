"""The API server goes away and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kcm.testing import ControlPlane
from tests.managers import PATIENCE, UNLIMITED, Manager, Managers, Namespace, candidate, deployment, watched

#: Seconds without a server, besides those that it takes to start.
OUTAGE = 5


@asynccontextmanager
async def away(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Crash the API server, and start it again at the end."""
    await control_plane.stop_apiserver(kill=True)
    try:
        yield
    finally:
        await control_plane.start_apiserver()


async def have_deployment(ns: Namespace, *, replicas: int) -> None:
    await ns.create("deployments", deployment(replicas=replicas))
    await ns.until(lambda: len(ns.pods) == replicas, f"there are {replicas} pods")


async def test_a_leader_outlives_an_outage_shorter_than_its_deadline(
    control_plane: ControlPlane, namespace: str, managers: Managers
) -> None:
    # Longer than the stock times, because a busy machine may need long to start a server.
    leader = managers.start(*candidate(namespace, lease=60, renew=45, retry=2), *UNLIMITED)
    async with watched(control_plane, namespace) as ns:
        await have_deployment(ns, replicas=2)
        holder = ns.holder

    async with away(control_plane):
        await asyncio.sleep(OUTAGE)  # the fault itself

    async with watched(control_plane, namespace) as ns:
        # Before kcm watches again, so what changes now must be found by watching on from before the outage.
        await ns.patch("deployments", "web", {"spec": {"replicas": 4}})
        await ns.delete("pods", ns.pods[0]["metadata"]["name"])
        await ns.until(lambda: len(ns.pods) == 4, "there are 4 pods")
        await ns.until(lambda: ns.get("deployments", "web")["status"].get("replicas") == 4, "the status tells so")
        assert leader.running
        assert ns.holder == holder


async def test_a_leader_ends_when_it_cannot_renew_and_a_new_one_waits_for_the_server(
    control_plane: ControlPlane, namespace: str, managers: Managers
) -> None:
    flags = (*candidate(namespace), *UNLIMITED)
    leader = managers.start(*flags)
    async with watched(control_plane, namespace) as ns:
        await have_deployment(ns, replicas=1)

    async with away(control_plane):
        assert await leader.exit_status() == 1
        assert leader.output.count("leaderelection lost") == 1
        successor = managers.start(*flags)
        await until_it_has_tried(successor)

    async with watched(control_plane, namespace) as ns:
        await ns.patch("deployments", "web", {"spec": {"replicas": 3}})
        await ns.until(lambda: len(ns.pods) == 3, "the successor acts")
        assert successor.running


async def until_it_has_tried(manager: Manager) -> None:
    async with asyncio.timeout(PATIENCE):
        while "Error retrieving lease lock" not in manager.output:  # noqa: ASYNC110 - there is no server to watch
            await asyncio.sleep(0.05)
