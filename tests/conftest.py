"""What all tests share."""

import asyncio

import pytest

from kcm.testing import ControlPlane

pytest_plugins = ["kcm.testing.plugin", "tests.rows"]

# looptime asks for the current event loop before plain tests too; asyncio would make one then, which nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def control_plane_setup() -> ControlPlane:
    """The control plane of the integration tests: pods get a node and run."""
    return ControlPlane(scheduler=True, nodes=3)
