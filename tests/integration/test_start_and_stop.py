"""What a manager logs and leaves from its start to its end."""

import json
import signal

import pytest

from kcm.testing import ControlPlane
from tests.integration.test_command import fetch, free_port
from tests.managers import Managers, Namespace, candidate, deployment

GATE = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true"


@pytest.fixture(scope="module")
def control_plane(quiet_control_plane: ControlPlane) -> ControlPlane:
    return quiet_control_plane


@pytest.mark.row("C-060", "C-069", "C-070", "C-089")
async def test_controllers_are_told_of_from_start_to_end(ns: Namespace, managers: Managers) -> None:
    interval = "--controller-start-interval=400ms"
    manager = managers.start(*candidate(ns.name), GATE, interval, "--logging-format=json", "-v=1")
    await ns.create("deployments", deployment(replicas=1))
    await ns.until(lambda: ns.pods, "it works")
    await ns.until(lambda: any("became leader" in event for event in ns.events), "an event of the election")
    # Events are written beside the work, so the last one may come after what it tells of.
    kinds = {"Lease", "Deployment", "ReplicaSet"}
    await ns.until(lambda: {event["involvedObject"]["kind"] for event in ns.all("events")} == kinds, "events of each")
    manager.send(signal.SIGTERM)
    assert await manager.exit_status() == 0

    lines = [json.loads(line) for line in manager.output.splitlines()]

    def told(message: str) -> dict[str, float]:
        return {line.get("controller", ""): line["ts"] for line in lines if line["msg"] == message}

    ours = {"deployment-controller", "replicaset-controller"}
    assert told("Warning: controller is disabled").keys() == {
        "replicationcontroller-controller",
        "statefulset-controller",
    }
    started = told("Controller starting...")
    assert started.keys() == told("Controller terminated").keys() == ours
    disabled = max(told("Warning: controller is disabled").values())
    assert all(time - disabled >= 400 for time in started.values()), "milliseconds"

    sources = {(event["involvedObject"]["kind"], event["source"]["component"]) for event in ns.all("events")}
    assert sources == {
        ("Lease", "kube-controller-manager"),
        ("Deployment", "deployment-controller"),
        ("ReplicaSet", "replicaset-controller"),
    }


@pytest.mark.row("C-080", "C-111")
async def test_without_election_and_port_nothing_is_led_served_or_looked_up(ns: Namespace, managers: Managers) -> None:
    flags = (flag for flag in candidate(ns.name) if "leader-elect" not in flag)
    nowhere = "--authentication-kubeconfig=/nonexistent"
    managers.start(*flags, "--leader-elect=false", nowhere)
    await ns.create("deployments", deployment(replicas=1))
    await ns.until(lambda: ns.pods, "it works")
    assert ns.all("leases") == []


async def test_without_election_the_lease_is_not_looked_at(ns: Namespace, managers: Managers) -> None:
    port = free_port()
    managers.start(
        "--leader-elect=false", "--controllers=statefulset", "--bind-address=127.0.0.1", f"--secure-port={port}"
    )
    text = await fetch(f"https://127.0.0.1:{port}/healthz?verbose")
    assert "leaderElection" not in text


@pytest.mark.row("C-061")
async def test_if_one_controller_cannot_be_built_none_starts(
    control_plane: ControlPlane, ns: Namespace, managers: Managers
) -> None:
    identity = control_plane.write_kubeconfig(user="no-accounts")
    manager = managers.start(
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials",
        "-v=1",
        kubeconfig=identity,
    )
    assert await manager.exit_status() == 1
    assert '"Error initializing a controller"' in manager.output
    assert '"command failed" err="error building controllers: ' in manager.output
    assert "Controller starting..." not in manager.output
