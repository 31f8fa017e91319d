"""The network between kcm and its server: watches that are late, that stand still, and that break off."""

from collections import Counter
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from kcm.testing import ControlPlane
from tests.audit import User, code
from tests.managers import (
    UNLIMITED,
    Document,
    Manager,
    Managers,
    Namespace,
    deployment,
    names,
    pod_template,
    replica_set,
    replication_controller,
    uid,
    with_image,
)
from tests.proxy import Proxy, kubeconfig_through

CONTROLLERS = "--controllers=deployment-controller,replicaset-controller,replicationcontroller-controller"
#: Seconds by which watches are late.
LONG, SHORT = 3.0, 1.0
#: What is kept at its size, by the names of the two objects that the tests make.
KINDS = {"set": "replicasets", "controller": "replicationcontrollers"}


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[Proxy]:
    """In front of the API server."""
    async with Proxy(control_plane.server) as proxy:
        yield proxy


@pytest.fixture
def user(ns: Namespace, control_plane: ControlPlane) -> User:
    """Who the manager is to the server."""
    return User(control_plane, ns)


@pytest.fixture
async def manager(ns: Namespace, managers: Managers, proxy: Proxy, user: User) -> Manager:
    """A manager behind the proxy, at rest, its watches open."""
    flags = (CONTROLLERS, *UNLIMITED, "--leader-elect=false", "--secure-port=0")
    manager = managers.start(*flags, kubeconfig=kubeconfig_through(proxy, user.kubeconfig()))
    await ns.create("deployments", deployment("probe", replicas=0, **labelled("probe")))
    await ns.create("replicationcontrollers", controller_of("probe", replicas=0))
    await ns.until(lambda: observed(ns, "deployments", "probe"), "Deployments are watched")
    await ns.until(lambda: observed(ns, "replicationcontrollers", "probe"), "ReplicationControllers are watched")
    return manager


def labelled(name: str) -> Document:
    return {"selector": {"matchLabels": {"app": name}}, "template": pod_template(app=name)}


def controller_of(name: str, *, replicas: int) -> Document:
    return replication_controller(name, replicas=replicas, selector={"app": name}, template=pod_template(app=name))


def observed(ns: Namespace, plural: str, name: str) -> bool:
    found = ns.get(plural, name)
    return bool(found and found["status"].get("observedGeneration") == found["metadata"]["generation"])


def pods(ns: Namespace, name: str) -> set[str]:
    """The names of the pods with a label."""
    return names([pod for pod in ns.pods if pod["metadata"]["labels"]["app"] == name])


async def have(ns: Namespace, replicas: int) -> None:
    await ns.until(lambda: all(len(pods(ns, name)) == replicas for name in KINDS), f"each has {replicas} pods")


async def status_tells(ns: Namespace, replicas: int) -> None:
    await ns.until(
        lambda: all(
            observed(ns, plural, name) and ns.get(plural, name)["status"]["replicas"] == replicas
            for name, plural in KINDS.items()
        ),
        f"each knows that it has {replicas} pods",
    )


async def scale(ns: Namespace, replicas: int) -> None:
    for name, plural in KINDS.items():
        await ns.scale(plural, name, replicas)


async def create_both(ns: Namespace, replicas: int) -> None:
    await ns.create("replicasets", replica_set("set", replicas=replicas, **labelled("set")))
    await ns.create("replicationcontrollers", controller_of("controller", replicas=replicas))


@pytest.mark.usefixtures("manager")
async def test_with_late_watches_there_is_never_a_pod_too_many(ns: Namespace, proxy: Proxy, user: User) -> None:
    proxy.delay_watches(LONG)
    most = 4

    def none_too_many() -> None:
        for name in KINDS:
            assert len(pods(ns, name)) <= most

    ns.always(none_too_many)
    await create_both(ns, 4)
    for note in ("one", "two", "three"):  # each makes a sync, some of them before the pods of the first are seen
        for name, plural in KINDS.items():
            await ns.patch(plural, name, {"spec": {"template": {"metadata": {"annotations": {"note": note}}}}})
    await have(ns, 4)

    most = 10
    await scale(ns, 10)
    await have(ns, 10)
    gone = {min(pods(ns, name)) for name in KINDS}
    for name in gone:
        await ns.delete("pods", name)
    await ns.until(lambda: not gone & names(ns.pods) and len(ns.pods) == 20, "each has 10 pods again")
    await scale(ns, 6)
    await have(ns, 6)
    await status_tells(ns, 6)

    assert await user.answers("pods", "create", "delete") == {("create", 201): 2 * 11, ("delete", 200): 2 * 4}
    assert proxy.delayed


@pytest.mark.row("D-080", "D-127")
@pytest.mark.usefixtures("manager")
async def test_with_late_watches_each_template_has_one_replica_set(ns: Namespace, proxy: Proxy, user: User) -> None:
    proxy.delay_watches(SHORT)

    def within_bounds() -> None:
        assert sum(found["spec"]["replicas"] for found in ns.replica_sets) <= 10 + 3
        assert "collisionCount" not in ns.get("deployments", "web").get("status", {})

    ns.always(within_bounds)
    # Nothing makes pods ready here, so an update must not need that.
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": "100%"}}
    await ns.create("deployments", deployment(replicas=10, strategy=strategy))
    await ns.until(lambda: len(ns.pods) == 10, "there are 10 pods")
    await ns.patch("deployments", "web", with_image("registry.test/web:2"))

    def finished() -> bool:
        sizes = {image(found): found["spec"]["replicas"] for found in ns.replica_sets if found["spec"]["replicas"]}
        status = ns.get("deployments", "web")["status"]
        return sizes == {"registry.test/web:2": 10} and status.get("updatedReplicas") == len(ns.pods) == 10

    await ns.until(finished, "all pods have the last image")
    assert len({uid(found) for found in ns.history["replicasets"] if "web" in found["metadata"]["name"]}) == 2
    made = Counter(map(code, await user.requests("replicasets", "create")))
    # Not seen yet, a ReplicaSet of its own is in its way, which is no collision.
    assert made[201] == 3  # that of the probe as well
    assert made[409] > 0
    assert not [event for event in ns.events if event.startswith("Warning")]


def image(document: Document) -> str:
    return str(document["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.row("M-001")
@pytest.mark.parametrize("fault", ["stalled", "broken"])
@pytest.mark.usefixtures("manager")
async def test_what_happened_while_the_network_was_away_is_made_up_for(
    ns: Namespace, proxy: Proxy, user: User, fault: str
) -> None:
    await create_both(ns, 4)
    await have(ns, 4)
    await status_tells(ns, 4)
    before = await watches(user)

    with proxy.stalled() if fault == "stalled" else proxy.broken():
        for name in KINDS:
            for pod in sorted(pods(ns, name))[:2]:
                await ns.delete("pods", pod)
        await scale(ns, 5)
        await have(ns, 2)
    await have(ns, 5)
    await status_tells(ns, 5)

    assert await user.answers("pods", "create", "delete") == {("create", 201): 2 * 7}
    after = await watches(user)
    assert (len(after) > len(before)) == (fault == "broken")
    lengths = {int(parse_qs(urlsplit(uri).query)["timeoutSeconds"][0]) for uri in after.values()}
    assert len(lengths) > 1
    assert 300 <= min(lengths) <= max(lengths) <= 600


async def watches(user: User) -> dict[str, str]:
    """The watches that it has opened so far: their URIs by an identifier."""
    return {event["auditID"]: event["requestURI"] for event in await user.requests("", "watch")}
