"""Two managers and one Lease: whoever does not surely hold it must not act, and the other takes over."""

import signal
import socket
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kcm.testing import ControlPlane
from tests.managers import (
    LEASE,
    PATIENCE,
    RETRY,
    UNLIMITED,
    Document,
    Manager,
    Managers,
    Namespace,
    audited,
    candidate,
    instant,
    names,
    replica_set,
)

#: Pods that cannot be created before anything else happens, at ten a second.
MANY = 100
RELEASE = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"
#: kcm whose control thread, and with it the election, goes on for ever when it is told to stop.
SLOW_TO_STOP = """
import asyncio
from kcm.cmd import main
from kcm.control_thread import ControlThread

async def stop(self):
    await asyncio.Event().wait()

ControlThread.stop = stop
main()
"""
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


async def leader_and_standby(ns: Namespace, managers: Managers, *flags: str) -> tuple[Manager, str]:
    """One manager that leads, its name in the Lease, and another that waits."""
    first = managers.start(*candidate(ns.name), *UNLIMITED, *flags)
    await ns.until(lambda: ns.holder, "the first leads")
    await start_standby(ns, managers, *flags)
    return first, ns.holder


async def start_standby(ns: Namespace, managers: Managers, *flags: str) -> None:
    """Start a manager that has noticed that another leads."""
    standby = managers.start(*candidate(ns.name), *UNLIMITED, "--v=4", *flags)
    await ns.until(lambda: "Lease is held by" in standby.output, "the standby has seen the Lease")


async def start_busy_leader(ns: Namespace, managers: Managers, *flags: str, kubeconfig: Path) -> Manager:
    """Start a manager that leads and has created some of many pods, and goes on creating them slowly."""
    slow = ("--kube-api-qps=10", "--kube-api-burst=10")
    leader = managers.start(*candidate(ns.name), *slow, *flags, kubeconfig=kubeconfig)
    await ns.until(lambda: ns.holder, "it leads")
    await ns.create("replicasets", replica_set(replicas=MANY))
    await ns.until(lambda: len(ns.pods) >= 20, "it is at work")
    return leader


async def have_pods(ns: Namespace, number: int) -> None:
    await ns.create("replicasets", replica_set(replicas=number))
    await ns.until(lambda: len(ns.pods) == number, f"there are {number} pods")


async def replace_one(ns: Namespace) -> Document:
    """Delete a pod and give the one that takes its place."""
    before = names(ns.pods)
    await ns.delete("pods", min(before))
    await ns.until(lambda: len(ns.pods) == len(before) and names(ns.pods) != before, "another pod has taken its place")
    return next(pod for pod in ns.pods if pod["metadata"]["name"] not in before)


def leases(ns: Namespace, holder: str) -> list[Document]:
    """The states of the Lease with this holder."""
    return [lease["spec"] for lease in ns.history["leases"] if (lease["spec"].get("holderIdentity") or "") == holder]


def when(lease: Document, field: str) -> datetime:
    return instant(lease[field])


async def writes_of(user: str, control_plane: ControlPlane) -> list[datetime]:
    """When a user's writes reached the server, but for those of the Lease and of events."""
    return [
        instant(event["requestReceivedTimestamp"])
        for event in await audited(control_plane)
        if event["user"]["username"] == user
        and event["verb"] in WRITES
        and event["objectRef"]["resource"] not in {"leases", "events"}
    ]


@pytest.mark.row("M-074", "C-073")
async def test_after_a_crash_the_other_acts_once_the_lease_has_expired(ns: Namespace, managers: Managers) -> None:
    first, holder = await leader_and_standby(ns, managers)
    await have_pods(ns, 2)

    first.kill()
    replacement = await replace_one(ns)
    await ns.until(lambda: ns.holder != holder, "the Lease shows the new holder")
    initial, last, taken = leases(ns, holder)[0], leases(ns, holder)[-1], leases(ns, ns.holder)[0]
    expiry = when(last, "renewTime") + timedelta(seconds=LEASE)
    assert when(taken, "acquireTime") >= expiry
    # The slack is for a machine that has other things to do.
    assert when(taken, "acquireTime") < expiry + timedelta(seconds=RETRY * 2.2 + PATIENCE / 4)
    assert instant(replacement["metadata"]["creationTimestamp"]) >= when(taken, "acquireTime").replace(microsecond=0)

    assert holder.startswith(f"{socket.gethostname()}_")
    assert initial["acquireTime"] == initial["renewTime"] == last["acquireTime"] != last["renewTime"]
    assert (initial["leaseTransitions"], last["leaseTransitions"], taken["leaseTransitions"]) == (0, 0, 1)


@pytest.mark.row("M-073", "M-074", "M-082", "C-077")
async def test_a_leader_that_is_told_to_stop_hands_work_and_lease_over(
    ns: Namespace, managers: Managers, control_plane: ControlPlane
) -> None:
    user = f"leaver-{ns.name}"
    identity = control_plane.write_kubeconfig(user=user, groups=["system:masters"])
    flags = ("--leader-elect-lease-duration=60s", "--v=4", RELEASE)
    leaver = await start_busy_leader(ns, managers, *flags, kubeconfig=identity)
    holder = ns.holder
    await start_standby(ns, managers, *flags)

    leaver.send(signal.SIGTERM)
    assert await leaver.exit_status() == 0
    await ns.until(lambda: f"Normal LeaderElection: {holder} became leader" in ns.events, "an event tells of its start")
    # Only the log shows it: the process does not stay to write an event.
    assert 'kind="Lease" apiVersion="coordination.k8s.io/v1" type="Normal" reason="LeaderElection"' in leaver.output
    assert f'message="{holder} stopped leading"' in leaver.output
    await ns.until(lambda: ns.holder not in {"", holder}, "the other has the Lease")
    last, released, taken = leases(ns, holder)[-1], leases(ns, "")[0], leases(ns, ns.holder)[0]
    assert (released["leaseDurationSeconds"], released["leaseTransitions"]) == (1, 0)
    assert released["acquireTime"] == released["renewTime"]
    assert taken["leaseTransitions"] == 1
    assert when(taken, "acquireTime") < when(last, "renewTime") + timedelta(seconds=60)

    await ns.until(lambda: len(ns.pods) == MANY, "the other has finished the work")
    assert max(await writes_of(user, control_plane)) < when(released, "renewTime")


@pytest.mark.row("C-077")
async def test_a_second_signal_ends_at_once(ns: Namespace, managers: Managers) -> None:
    leader = managers.start(
        *candidate(ns.name, lease=60, renew=45), RELEASE, program=(sys.executable, "-c", SLOW_TO_STOP)
    )
    await have_pods(ns, 1)

    leader.send(signal.SIGINT)
    await ns.until(lambda: "Shutting down controller" in leader.output, "it has begun to stop, and still renews")
    leader.send(signal.SIGTERM)
    assert await leader.exit_status() == 1
    assert "leaderelection lost" not in leader.output
    assert ns.holder


@pytest.mark.row("C-076")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_leader_with_stock_gates_dies_of_the_signal_and_keeps_the_lease(
    ns: Namespace, managers: Managers, number: signal.Signals
) -> None:
    leader = managers.start(*candidate(ns.name))
    await ns.until(lambda: ns.holder, "it leads")
    holder = ns.holder

    leader.send(number)
    assert await leader.exit_status() == -number
    assert ns.holder == holder
    assert not leases(ns, "")


@pytest.mark.row("C-075")
async def test_a_leader_whose_lease_is_stolen_ends(ns: Namespace, managers: Managers) -> None:
    leader = managers.start(*candidate(ns.name), *UNLIMITED)
    await ns.until(lambda: ns.holder, "it leads")

    await ns.patch("leases", "kcm", {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}})
    assert await leader.exit_status() == 1
    assert leader.output.count('"leaderelection lost/stopped"') == 1
    assert "Shutting down" not in leader.output
    assert ns.holder == "thief"


async def test_a_leader_that_stood_still_writes_nothing_when_it_goes_on(
    ns: Namespace, managers: Managers, control_plane: ControlPlane
) -> None:
    user = f"sleeper-{ns.name}"
    identity = control_plane.write_kubeconfig(user=user, groups=["system:masters"])
    sleeper = await start_busy_leader(ns, managers, kubeconfig=identity)
    holder = ns.holder
    sleeper.send(signal.SIGSTOP)

    managers.start(*candidate(ns.name), *UNLIMITED)
    await ns.until(lambda: ns.holder != holder, "the other has the Lease")
    taken = when(leases(ns, ns.holder)[0], "acquireTime")
    await ns.until(lambda: len(ns.pods) == MANY, "the other has finished the work")
    sleeper.send(signal.SIGCONT)
    assert await sleeper.exit_status() == 1
    assert "leaderelection lost" in sleeper.output

    writes = await writes_of(user, control_plane)
    assert 20 <= len(writes) < MANY
    assert max(writes) < taken
    assert len(ns.pods) == MANY
