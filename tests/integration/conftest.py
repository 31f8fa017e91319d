"""One manager acts for most integration tests of a process; those that start managers of their own have another server."""

from collections.abc import Iterator

import pytest

from kcm.testing import ControlPlane
from tests.managers import CONTROLLERS, UNLIMITED, Manager, managers, ns, pytest_runtest_makereport, serving

__all__ = ["manager", "managers", "ns", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def manager(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """kcm, acting in all namespaces of the shared control plane from now on."""
    log = tmp_path_factory.mktemp("kcm") / "kcm.log"
    process = Manager(
        f"--kubeconfig={control_plane.kubeconfig}",
        CONTROLLERS,
        "--leader-elect=false",
        "--secure-port=0",
        "--v=3",
        *UNLIMITED,
        log=log,
    )
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="session")
def quiet_control_plane() -> Iterator[ControlPlane]:
    """A control plane in which no managers run but those of the test. Without a scheduler pods stay Pending."""
    with serving(ControlPlane(audit_log=True)) as control_plane:
        yield control_plane
