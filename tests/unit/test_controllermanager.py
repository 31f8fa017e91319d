"""The process around the controllers, as far as it needs no server."""

import asyncio
from pathlib import Path

import pytest

from kcm import controllermanager, logs
from kcm.api.config import load_config
from kcm.controllermanager import ControllerManager, ManagerError, lease_request_timeout
from kcm.options import LeaderMigrationOptions, Options, WorkerOptions


@pytest.mark.row("C-074")
@pytest.mark.parametrize(("renew", "timeout"), [(10, 5), (3, 1.5), (1, 1), (0.1, 1)])
def test_a_request_for_the_lease_takes_at_most_half_the_deadline_but_a_second(renew: float, timeout: float) -> None:
    assert lease_request_timeout(renew) == timeout


@pytest.mark.row("C-072")
async def test_a_stop_that_takes_long_is_told_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(controllermanager, "_exit", ended.set_result)
    with logs.capture() as records:
        controllermanager._limit_shutdown(0.09)
        assert await ended == 1
    assert {record.message for record in records} == {
        "Still waiting for some controllers to terminate...",
        "Controller shutdown timeout reached",
    }


@pytest.mark.row("C-072")
async def test_a_stop_without_limit_is_only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllermanager, "STILL_WAITING_PERIOD", 0.01)
    monkeypatch.setattr(controllermanager, "_exit", lambda _: pytest.fail("there is no limit"))
    with logs.capture() as records:
        controllermanager._limit_shutdown(0)
        async with asyncio.timeout(10):
            while len(records) < 3:  # noqa: ASYNC110 - nothing tells of a log record
                await asyncio.sleep(0.01)


@pytest.mark.row("C-040")
def test_only_the_number_of_stateful_set_workers_has_a_lower_bound() -> None:
    none = WorkerOptions(concurrent_deployment_syncs=0, concurrent_replicaset_syncs=-1, concurrent_rc_syncs=0)
    assert none.validate() == []
    assert len(WorkerOptions(concurrent_statefulset_syncs=0).validate()) == 1


MIGRATION = """\
apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: moving
controllerLeaders:
- {name: route-controller, component: "*"}
- {name: deployment-controller, component: other-manager}
"""


def options(tmp_path: Path, text: str) -> LeaderMigrationOptions:
    file = tmp_path / "migration.yaml"
    file.write_text(text)
    return LeaderMigrationOptions(enabled=True, config=str(file))


def test_a_controller_that_another_manager_runs_is_left_to_it(tmp_path: Path) -> None:
    ours = ("deployment-controller", "replicaset-controller")
    assert options(tmp_path, MIGRATION).left_to_others(ours) == {"deployment-controller"}
    assert LeaderMigrationOptions(enabled=True).left_to_others(ours) == frozenset()
    assert LeaderMigrationOptions(config="/nonexistent").left_to_others(ours) == frozenset()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "unable to read leader migration configuration from"),
        ("a: b", "it must be of kind LeaderMigrationConfiguration"),
        (MIGRATION.replace("leaderName: moving", "leader: x"), "unknown fields: leader, leaderName: Required value"),
        (
            MIGRATION.replace("leaderName", "resourceLock: configmaps\nleaderName"),
            "must be one of 'leases' or 'endpoints'",
        ),
        (MIGRATION.replace("name: route-controller, ", ""), r"controllerLeaders\[0\].name: Required value"),
        (
            MIGRATION.replace("other-manager", "kube-controller-manager"),
            "cannot run deployment-controller under a second",
        ),
    ],
)
def test_a_wrong_migration_ends_the_start(tmp_path: Path, text: str, problem: str) -> None:
    config = load_config(kubeconfig="", master="http://127.0.0.1:1")
    with pytest.raises(ManagerError, match=problem):
        ControllerManager(Options(leader_migration=options(tmp_path, text)), config=config)
