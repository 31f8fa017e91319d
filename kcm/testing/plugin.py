"""pytest fixtures: `pytest_plugins = ["kcm.testing.plugin"]` in the top conftest.py.

One control plane serves all tests of a process (with pytest-xdist: of a worker). Ask for more than etcd and kube-apiserver by
a fixture of your own:

    @pytest.fixture(scope="session")
    def control_plane_setup() -> ControlPlane:
        return ControlPlane(scheduler=True, nodes=3)

The fixtures are plain ones and depend on no event loop, so that they serve tests of any kind.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterator
from typing import TypeVar

import pytest

from kcm.testing.control_plane import ControlPlane

T = TypeVar("T")


@pytest.fixture(scope="session")
def control_plane_setup() -> ControlPlane:
    """What `control_plane` starts; override it to have other options."""
    return ControlPlane()


@pytest.fixture(scope="session")
def control_plane(control_plane_setup: ControlPlane) -> Iterator[ControlPlane]:
    """A running control plane, shared by the tests of this process."""
    _run(control_plane_setup.start())
    try:
        yield control_plane_setup
    finally:
        _run(control_plane_setup.stop())


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh namespace, called after the test.

    It is deleted at the end, but no namespace controller runs: it stays Terminating, in which nothing can be created, and
    keeps what is in it. So count and list in your own namespace only.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{readable}-"}}
    name: str = _run(control_plane.request("POST", "/api/v1/namespaces", manifest))["metadata"]["name"]
    yield name
    _run(control_plane.request("DELETE", f"/api/v1/namespaces/{name}"))


def _run(coroutine: Coroutine[object, object, T]) -> T:
    # A loop of its own, which does not become the thread's current one: the test framework may have set that.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(coroutine)
