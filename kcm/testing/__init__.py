"""A real control plane on loopback, for kcm's own tests and for yours.

    from kcm.testing import ControlPlane

    async with ControlPlane(scheduler=True, nodes=3) as cp:
        print(await cp.kubectl("get", "nodes"))

The servers are built once: `python -m kcm.testing build`. With pytest, `pytest_plugins = ["kcm.testing.plugin"]` gives the
fixtures `control_plane` and `namespace`.
"""

from kcm.testing.control_plane import ControlPlane, KubectlError
from kcm.testing.process import StartError

__all__ = ["ControlPlane", "KubectlError", "StartError"]
