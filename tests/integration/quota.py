"""A quota of pods. There is no quota controller, so its status is the test's to write."""

from tests.managers import Namespace, pod


async def limit_pods(ns: Namespace, number: int) -> None:
    """Allow so many pods, for certain from now on."""
    limit = {"hard": {"pods": "100"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": limit}
    await ns.create("resourcequotas", quota)
    await set_quota(ns, hard=number, used=number)
    await ns.until_refused("pods", pod("probe"))
    await set_quota(ns, hard=number, used=0)


async def set_quota(ns: Namespace, *, hard: int, used: int) -> None:
    """Change what `limit_pods` has set."""
    status = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
    await ns.patch("resourcequotas", "pods", {"status": status}, "status")
