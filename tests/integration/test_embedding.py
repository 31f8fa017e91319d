"""A manager inside of another program: it runs in the caller's loop and leaves nothing behind."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kcm import controllermanager
from kcm.controllermanager import ControllerManager, ManagerError
from kcm.leaderelection.leader_election import LeadershipLostError
from kcm.options import GenericOptions, LeaderElectionOptions, Options, SecureServingOptions
from kcm.serving import ServingError
from kcm.testing import ControlPlane
from kcm.testing.process import reserve_port
from tests.managers import Namespace, lease, replica_set


@pytest.fixture
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    """The one that no other manager acts on."""
    return quiet_control_plane


@pytest.fixture
def options(control_plane: ControlPlane, ns: Namespace) -> Options:
    return Options(
        kubeconfig=str(control_plane.kubeconfig),
        generic=GenericOptions(controllers=("deployment-controller", "replicaset-controller")),
        leader_election=LeaderElectionOptions(
            lease_duration=60, renew_deadline=40, retry_period=0.5, resource_name="kcm", resource_namespace=ns.name
        ),
        serving=SecureServingOptions(secure_port=0),
    )


@asynccontextmanager
async def leaving_nothing_behind() -> AsyncIterator[None]:
    """Check that the tasks and threads at the end are those of the beginning."""
    await asyncio.to_thread(lambda: None)  # the loop keeps the thread that it starts for this
    before = asyncio.all_tasks(), set(threading.enumerate())
    yield
    assert (asyncio.all_tasks(), set(threading.enumerate())) == before


async def test_a_manager_works_in_the_callers_loop(ns: Namespace, options: Options) -> None:
    async with leaving_nothing_behind():
        async with ControllerManager(options):
            await ns.create("replicasets", replica_set(replicas=3))
            await ns.until(lambda: len(ns.pods) == 3, "there are 3 pods")
            assert ns.holder
        await ns.until(lambda: not ns.holder, "the Lease is released")

        async with ControllerManager(options):
            await ns.scale("replicasets", "web", 1)
            await ns.until(lambda: len(ns.pods) == 1, "a second one works as well")


async def test_an_error_of_the_body_gets_out_as_it_is(ns: Namespace, options: Options) -> None:
    async with leaving_nothing_behind():
        with pytest.raises(ZeroDivisionError):
            async with ControllerManager(options):
                raise ZeroDivisionError
        await ns.until(lambda: ns.history["leases"] and not ns.holder, "the Lease is released")


@pytest.mark.parametrize("seconds", [0, 0.01, 1])
async def test_waiting_for_the_lease_can_be_given_up(ns: Namespace, options: Options, seconds: float) -> None:
    await ns.create("leases", lease(holder="other"))
    async with leaving_nothing_behind():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds), ControllerManager(options):
                pass
    assert ns.holder == "other"


async def test_a_lost_lease_ends_the_run(ns: Namespace, options: Options) -> None:
    election = replace(options.leader_election, lease_duration=3, renew_deadline=2)
    async with leaving_nothing_behind():
        run = asyncio.create_task(ControllerManager(replace(options, leader_election=election)).run())
        await ns.until(lambda: ns.holder, "it leads")
        await ns.patch("leases", "kcm", {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}})
        with pytest.raises(LeadershipLostError, match="could not renew for 2 seconds"):
            await run


async def test_the_body_can_wait_for_the_end(ns: Namespace, options: Options) -> None:
    election = replace(options.leader_election, lease_duration=3, renew_deadline=2)
    async with leaving_nothing_behind():
        manager = await ControllerManager(replace(options, leader_election=election)).__aenter__()
        await ns.patch("leases", "kcm", {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}})
        with pytest.raises(LeadershipLostError):
            await manager.wait()
        with pytest.raises(LeadershipLostError):
            await manager.__aexit__()


async def test_a_start_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllermanager, "API_SERVER_PATIENCE", 0.1)
    with reserve_port() as closed:
        options = Options(
            master=f"http://127.0.0.1:{closed.getsockname()[1]}",
            leader_election=LeaderElectionOptions(leader_elect=False),
            serving=SecureServingOptions(secure_port=0),
        )
        async with leaving_nothing_behind():
            with pytest.raises(ManagerError, match="failed to wait for apiserver being healthy"):
                async with ControllerManager(options):
                    pass


async def test_a_start_without_a_port_says_so(options: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serving = SecureServingOptions(bind_address="127.0.0.1", secure_port=taken.getsockname()[1])
        async with leaving_nothing_behind():
            with pytest.raises(ServingError, match="Address already in use"):
                async with ControllerManager(replace(options, serving=serving)):
                    pass
