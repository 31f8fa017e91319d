"""The faults' own control plane: managers act in all namespaces, so none but a test's own may run beside it."""

from collections.abc import Iterator

import pytest

from kcm.testing import ControlPlane
from tests.managers import managers, ns, pytest_runtest_makereport, serving

__all__ = ["control_plane", "managers", "ns", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Without a scheduler pods stay where they are and are gone as soon as they are deleted."""
    with serving(ControlPlane(audit_log=True)) as control_plane:
        yield control_plane
