"""`kubectl rollout` and what else people type, against Deployments that kcm rolls out."""

import re

import pytest

from kcm.testing import ControlPlane
from kcm.testing.control_plane import KubectlError
from tests.integration.test_deployment import FIRST, SECOND, THIRD, current, have, image, progressing, rolled_out, web
from tests.integration.test_deployment_cases import nowhere
from tests.managers import Document, Namespace, names, revision, uid

pytestmark = pytest.mark.usefixtures("manager")

WEB = "deployment/web"
CAUSE = "kubernetes.io/change-cause"


class Kubectl:
    """kubectl in the test's namespace."""

    def __init__(self, control_plane: ControlPlane, ns: Namespace) -> None:
        self._control_plane = control_plane
        self._ns = ns

    async def __call__(self, *arguments: str) -> str:
        """Run it and give what it says."""
        return (await self._control_plane.kubectl("-n", self._ns.name, *arguments)).strip()

    async def refused(self, *arguments: str) -> str:
        """Run it, expect it to fail, and give why."""
        with pytest.raises(KubectlError) as caught:
            await self(*arguments)
        return str(caught.value).partition(": ")[2]

    async def set_image(self, to: str) -> None:
        """Change the image and note why, then wait until it is rolled out and the note has reached the ReplicaSet."""
        await self("set", "image", WEB, f"web={to}")
        await self("annotate", "--overwrite", WEB, f"{CAUSE}=to {to}")
        await self.wait(to)
        await self._ns.until(lambda: cause(current(self._ns)) == f"to {to}", "the cause is noted")

    async def wait(self, for_image: str) -> None:
        """Wait until an image is rolled out."""
        answer = await self("rollout", "status", WEB, "--timeout=60s")
        assert answer.endswith('deployment "web" successfully rolled out')
        await self._ns.until(lambda: rolled_out(self._ns) and image(web(self._ns)) == for_image, f"{for_image} runs")

    async def history(self) -> dict[int, str]:
        """The change causes by revision."""
        lines = (await self("rollout", "history", WEB)).splitlines()[2:]
        return {int(number): cause for number, cause in (line.split(maxsplit=1) for line in lines)}


@pytest.fixture
def kubectl(control_plane: ControlPlane, ns: Namespace) -> Kubectl:
    return Kubectl(control_plane, ns)


@pytest.mark.row("D-061")
async def test_history_and_undo(ns: Namespace, kubectl: Kubectl) -> None:
    first = await have(ns, replicas=2)
    await kubectl.set_image(FIRST)
    await kubectl.set_image(SECOND)
    await kubectl.set_image(THIRD)

    causes = {number: f"to {to}" for number, to in enumerate((FIRST, SECOND, THIRD), start=1)}
    assert await kubectl.history() == causes
    assert re.search(rf"Image:\s+{re.escape(SECOND)}\n", await kubectl("rollout", "history", WEB, "--revision=2"))
    assert (await kubectl("rollout", "status", WEB, "--revision=3")).endswith("successfully rolled out")
    why = await kubectl.refused("rollout", "status", WEB, "--revision=1", "--timeout=60s")
    assert "desired revision (1) is different from the running revision (3)" in why

    assert await kubectl("rollout", "undo", WEB, "--to-revision=1") == "deployment.apps/web rolled back"
    await kubectl.wait(FIRST)
    assert uid(current(ns)) == uid(first)
    assert await kubectl.history() == {2: causes[2], 3: causes[3], 4: causes[1]}
    assert await kubectl("rollout", "undo", WEB) == "deployment.apps/web rolled back"
    await kubectl.wait(THIRD)
    assert await kubectl.history() == {2: causes[2], 4: causes[1], 5: causes[3]}
    assert "skipped rollback (current template already matches revision 5)" in await kubectl(
        "rollout", "undo", WEB, "--to-revision=5"
    )
    assert "unable to find specified revision 99 in history" in await kubectl.refused(
        "rollout", "undo", WEB, "--to-revision=99"
    )
    assert len(names(ns.history["replicasets"])) == 3


def cause(document: Document) -> str:
    annotations: dict[str, str] = document["metadata"]["annotations"]
    return annotations.get(CAUSE, "")


@pytest.mark.row("D-106")
async def test_pause_and_resume(ns: Namespace, kubectl: Kubectl) -> None:
    await have(ns, replicas=2)
    await kubectl.set_image(SECOND)

    assert await kubectl("rollout", "pause", WEB) == "deployment.apps/web paused"
    assert "is already paused" in await kubectl.refused("rollout", "pause", WEB)
    await ns.until(lambda: progressing(ns) == "DeploymentPaused", "the pause is marked")
    await kubectl("set", "image", WEB, f"web={THIRD}")
    await kubectl("set", "env", WEB, "MORE=1")
    await kubectl("scale", WEB, "--replicas=3")
    await ns.until(lambda: web(ns)["status"].get("availableReplicas") == 3, "it is scaled")
    assert {image(found) for found in ns.history["replicasets"]} == {FIRST, SECOND}
    assert "0 out of 3 new replicas have been updated" in await kubectl("rollout", "status", WEB, "--watch=false")
    assert "cannot rollback a paused deployment" in await kubectl.refused("rollout", "undo", WEB)
    assert "can't restart paused deployment" in await kubectl.refused("rollout", "restart", WEB)

    assert await kubectl("rollout", "resume", WEB) == "deployment.apps/web resumed"
    await kubectl.wait(THIRD)
    assert "is not paused" in await kubectl.refused("rollout", "resume", WEB)
    assert [revision(found) for found in ns.replica_sets] == ["1", "2", "3"]
    assert len(names(ns.history["replicasets"])) == 3


async def test_restart(ns: Namespace, kubectl: Kubectl) -> None:
    await have(ns, replicas=3)
    before = names(ns.pods)

    assert await kubectl("rollout", "restart", WEB) == "deployment.apps/web restarted"
    await kubectl.wait(FIRST)
    await ns.until(lambda: revision(web(ns)) == "2" and len(ns.pods) == 3, "the old pods are gone")
    assert not before & names(ns.pods)
    template = current(ns)["spec"]["template"]["metadata"]
    assert list(template["annotations"]) == ["kubectl.kubernetes.io/restartedAt"]


async def test_status_tells_what_a_rollout_waits_for_and_that_it_stands_still(ns: Namespace, kubectl: Kubectl) -> None:
    old = await have(ns, replicas=2, progressDeadlineSeconds=2)
    await ns.patch("deployments", "web", nowhere(SECOND))

    assert 'deployment "web" exceeded its progress deadline' in await kubectl.refused(
        "rollout", "status", WEB, "--timeout=60s"
    )
    assert len(ns.pods_of(old)) == 2

    # Back to what runs: one pod has to go, and none to come.
    await kubectl("rollout", "undo", WEB)
    await kubectl.wait(FIRST)
    assert uid(current(ns)) == uid(old)

    patient = {"spec": {**nowhere(THIRD)["spec"], "progressDeadlineSeconds": 600}}
    await ns.patch("deployments", "web", patient)
    await ns.until(lambda: web(ns)["status"].get("updatedReplicas") == 1, "it has begun")
    begun = "1 out of 2 new replicas have been updated"
    assert begun in await kubectl("rollout", "status", WEB, "--watch=false")
    free: Document = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await ns.patch("deployments", "web", free)
    await kubectl.wait(THIRD)


async def test_what_people_ask_first(ns: Namespace, kubectl: Kubectl) -> None:
    manifest = ("create", "deployment", "web", f"--image={FIRST}", "--replicas=2")
    assert await kubectl(*manifest) == "deployment.apps/web created"
    assert (
        await kubectl("wait", WEB, "--for=condition=Available", "--timeout=60s") == "deployment.apps/web condition met"
    )
    assert (
        await kubectl("wait", WEB, "--for=condition=Progressing", "--timeout=60s")
        == "deployment.apps/web condition met"
    )
    await ns.until(lambda: rolled_out(ns), "all pods are available")
    header, row = (await kubectl("get", WEB)).splitlines()
    assert dict(zip(header.split(), row.split(), strict=True)) | {"AGE": ""} == {
        "NAME": "web",
        "READY": "2/2",
        "UP-TO-DATE": "2",
        "AVAILABLE": "2",
        "AGE": "",
    }
    description = await kubectl("describe", WEB)
    assert re.search(rf"NewReplicaSet:\s+{current(ns)['metadata']['name']} \(2/2 replicas created\)", description)
    assert re.search(r"OldReplicaSets:\s+<none>", description)
    assert re.search(r"Replicas:\s+2 desired \| 2 updated \| 2 total \| 2 available \| 0 unavailable", description)
    assert "ScalingReplicaSet" in description
