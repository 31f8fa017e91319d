"""Deployments in trouble: hurried, stuck, rolled back, and changed behind the controller's back."""

import copy
import json
from datetime import timedelta

import aiohttp
import pytest

from kcm.api.resources import DEPLOYMENTS
from kcm.api.types.apps import deployment_document
from kcm.testing import ControlPlane
from tests.audit import User, asked_of, code
from tests.integration.rich_template import RICH_TEMPLATE
from tests.integration.test_deployment import (
    DESIRED,
    FIRST,
    MAX,
    SECOND,
    THIRD,
    current,
    have,
    image,
    progressing,
    roll,
    rolled_out,
    web,
)
from tests.integration.test_replica_set_cases import bind
from tests.managers import (
    UNLIMITED,
    Document,
    Managers,
    Namespace,
    complete,
    condition,
    controller,
    deployment,
    instant,
    is_ready,
    names,
    pod_template,
    replica_set,
    revision,
    uid,
    with_image,
)

ROLLBACK = "deprecated.deployment.rollback.to"


def rolling(surge: int | str, unavailable: int | str) -> Document:
    """An update strategy."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def nowhere(image: str) -> Document:
    """A patch to a template whose pods no node takes."""
    changed = with_image(image)
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    return changed


def latest(ns: Namespace) -> list[Document]:
    """The last state of every ReplicaSet that there ever was."""
    return list({uid(state): state for state in ns.history["replicasets"]}.values())


def revisions(document: Document) -> set[int]:
    """All revisions that a ReplicaSet has had."""
    former = document["metadata"]["annotations"].get("deployment.kubernetes.io/revision-history")
    return {int(number) for number in (*(former.split(",") if former else ()), revision(document))}


@pytest.mark.usefixtures("manager")
class TestBesideOthers:
    """One manager acts, and pods run at once."""

    @pytest.mark.row("D-055", "D-063", "D-065")
    @pytest.mark.parametrize("images", [50, 5])
    async def test_fifty_changes_in_a_row_end_with_the_last(self, ns: Namespace, images: int) -> None:
        await have(ns, replicas=3, template=pod_template("registry.test/web:0"))
        for number in range(1, 51):
            await ns.patch("deployments", "web", with_image(f"registry.test/web:{number % (images + 1)}"))

        await ns.until(lambda: rolled_out(ns), "the last image is rolled out")
        await ns.until(lambda: len(ns.replica_sets) <= 11, "the history is cut")
        assert image(web(ns)) == f"registry.test/web:{50 % (images + 1)}"
        assert [found["spec"]["replicas"] for found in ns.replica_sets if found["spec"]["replicas"]] == [3]
        # Each template has one ReplicaSet. Revisions leave nothing out, and the last has the highest. Two others may be equal:
        # a ReplicaSet that was just made may not be seen yet when the next one is made.
        made = latest(ns)
        assert len({image(found) for found in made}) == len(made)
        last = int(revision(web(ns)))
        assert set().union(*map(revisions, made)) == set(range(1, last + 1))
        assert [uid(found) for found in made if int(revision(found)) == last] == [uid(current(ns))]
        assert "collisionCount" not in web(ns)["status"]

    @pytest.mark.row("D-093")
    async def test_bounds_that_round_to_nothing_let_one_pod_be_unavailable(self, ns: Namespace) -> None:
        for bound in (0, "0%"):
            with pytest.raises(aiohttp.ClientResponseError, match="may not be 0 when `maxSurge` is 0"):
                await ns.create("deployments", deployment(replicas=4, strategy=rolling(bound, bound)))

        await have(ns, replicas=4, strategy=rolling("0%", "24%"))
        available: set[int] = set()

        def within_bounds() -> None:
            assert sum(found["spec"]["replicas"] for found in ns.replica_sets) <= 4
            available.add(web(ns)["status"].get("availableReplicas", 0))

        ns.always(within_bounds)
        await roll(ns, SECOND)
        assert min(available) == 3
        assert current(ns)["metadata"]["annotations"][MAX] == "4"

    @pytest.mark.row("D-151", "D-152")
    async def test_an_update_that_stands_still_keeps_the_old_pods_until_it_goes_on(self, ns: Namespace) -> None:
        deadline = 2
        old = await have(ns, replicas=4, strategy=rolling(1, 1), progressDeadlineSeconds=deadline)

        def still_there() -> None:
            assert web(ns)["status"].get("availableReplicas", 0) >= 3

        ns.always(still_there)
        await ns.patch("deployments", "web", nowhere(SECOND))
        await ns.until(lambda: progressing(ns) == "ProgressDeadlineExceeded", "the deadline has passed")
        assert sum(map(is_ready, ns.pods_of(old))) == 3
        assert len(ns.pods_of(current(ns))) == 2
        marks = [condition(state, "Progressing") for state in ns.history["deployments"]]
        condemned = marks[-1]
        last = next(mark for mark in reversed(marks) if mark["status"] == "True")
        since, until = instant(last["lastUpdateTime"]), instant(condemned["lastUpdateTime"])
        assert until >= since + timedelta(seconds=deadline)
        assert condition(web(ns), "Available")["status"] == "True"

        free: Document = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
        await ns.patch("deployments", "web", free)
        await ns.until(lambda: rolled_out(ns), "the update goes on")
        assert condition(web(ns), "Progressing")["status"] == "True"

    @pytest.mark.row("D-067", "D-117")
    async def test_an_update_that_stands_still_is_scaled_in_proportion(self, ns: Namespace) -> None:
        old = await have(ns, replicas=10, strategy=rolling(3, 2))
        await ns.patch("deployments", "web", nowhere(SECOND))

        def sizes() -> list[int]:
            return [
                found["spec"]["replicas"] for found in (ns.get("replicasets", old["metadata"]["name"]), current(ns))
            ]

        await ns.until(lambda: sizes() == [8, 5], "there are 8 and 5")
        await ns.until(lambda: web(ns)["status"].get("availableReplicas") == 8, "8 are available")
        await ns.scale("deployments", "web", 30)
        await ns.until(lambda: sizes() == [20, 13], "there are 20 and 13")
        for found in ns.replica_sets:
            annotations = found["metadata"]["annotations"]
            assert (annotations[DESIRED], annotations[MAX]) == ("30", "33")

    @pytest.mark.row("D-078")
    async def test_a_template_stays_as_it_is_to_the_byte(self, ns: Namespace, control_plane: ControlPlane) -> None:
        await ns.create("deployments", deployment(replicas=2, template=RICH_TEMPLATE))
        await ns.until(lambda: web(ns)["status"].get("updatedReplicas") == 2, "the pods are made")
        template = await template_of(control_plane, ns, "deployments", "web")
        rich = current(ns)["metadata"]["name"]
        assert await template_of(control_plane, ns, "replicasets", rich) == template
        for found in ns.pods:
            assert found["metadata"]["annotations"] == RICH_TEMPLATE["metadata"]["annotations"]
            assert found["metadata"]["finalizers"] == RICH_TEMPLATE["metadata"]["finalizers"]
            spec = json.loads(template)["spec"]
            own = {field: found["spec"][field] for field in spec}
            # Admission tolerates nodes that have just become unready.
            own["tolerations"] = own["tolerations"][: len(spec["tolerations"])]
            assert own == spec

        # A ReplicaSet is written back when it is scaled, a Deployment when it is rolled back.
        await ns.scale("deployments", "web", 3)
        await ns.until(lambda: current(ns)["spec"]["replicas"] == 3, "it is scaled")
        assert await template_of(control_plane, ns, "replicasets", rich) == template
        await ns.patch("deployments", "web", with_image(SECOND))
        await ns.until(lambda: len(ns.replica_sets) == 2 and revision(web(ns)) == "2", "there is another template")
        assert await template_of(control_plane, ns, "deployments", "web") != template
        await ns.patch("deployments", "web", {"metadata": {"annotations": {ROLLBACK: "1"}}})
        await ns.until(lambda: revision(web(ns)) == "3", "it is rolled back")
        assert await template_of(control_plane, ns, "deployments", "web") == template
        assert len(ns.replica_sets) == 2

    @pytest.mark.row("D-158", "D-161", "D-162", "D-163", "D-165")
    async def test_the_rollback_annotation_is_obeyed_and_cleared(self, ns: Namespace) -> None:
        await have(ns, replicas=1)
        await roll(ns, SECOND)
        await roll(ns, THIRD)

        async def ask(for_revision: str, event: str) -> None:
            known = set(ns.events)
            await ns.patch("deployments", "web", {"metadata": {"annotations": {ROLLBACK: for_revision}}})
            await ns.until(lambda: event in set(ns.events) - known, f"there is an event: {event}")
            await ns.until(lambda: ROLLBACK not in web(ns)["metadata"]["annotations"], "the annotation is cleared")

        await ns.patch("deployments", "web", {"metadata": {"annotations": {"example.com/note": "of the third"}}})
        await ask("1", 'Normal DeploymentRollback: Rolled back deployment "web" to revision 1')
        await ns.until(lambda: rolled_out(ns) and image(web(ns)) == FIRST and revision(web(ns)) == "4", "it is done")
        assert "example.com/note" not in web(ns)["metadata"]["annotations"]
        await ask("0", 'Normal DeploymentRollback: Rolled back deployment "web" to revision 3')
        await ns.until(lambda: rolled_out(ns) and image(web(ns)) == THIRD and revision(web(ns)) == "5", "it is done")
        assert web(ns)["metadata"]["annotations"]["example.com/note"] == "of the third"
        await ask("99", "Warning DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to.")
        unchanged = 'The rollback revision contains the same template as current deployment "web"'
        await ask("5", f"Warning DeploymentRollbackTemplateUnchanged: {unchanged}")
        assert (image(web(ns)), revision(web(ns)), len(ns.replica_sets)) == (THIRD, "5", 3)

    @pytest.mark.row("D-082", "D-176")
    async def test_a_replica_set_with_another_template_is_in_the_way_once(self, ns: Namespace) -> None:
        made = await have(ns, replicas=2)
        changed: Document = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}}
        await ns.patch("replicasets", made["metadata"]["name"], changed)

        await ns.until(lambda: web(ns)["status"].get("collisionCount") == 1, "the collision is counted")
        await ns.until(lambda: rolled_out(ns) and revision(web(ns)) == "2", "another is made")
        assert len(names(ns.history["replicasets"])) == 2
        assert web(ns)["status"]["collisionCount"] == 1

    @pytest.mark.row("D-142")
    async def test_a_status_that_somebody_else_wrote_is_corrected(self, ns: Namespace) -> None:
        await have(ns, replicas=2)
        before = web(ns)["status"]

        wrong = {"replicas": 7, "readyReplicas": 0, "availableReplicas": 0, "updatedReplicas": 1}
        await ns.patch("deployments", "web", {"status": wrong}, "status")
        await ns.until(lambda: complete(web(ns)), "it is complete again")
        counters = {name: value for name, value in web(ns)["status"].items() if name != "conditions"}
        assert counters == {name: value for name, value in before.items() if name != "conditions"}

    @pytest.mark.row("D-179")
    async def test_less_patience_with_ready_pods_needs_no_new_ones(self, ns: Namespace) -> None:
        await ns.create("deployments", deployment(replicas=2, minReadySeconds=3600, progressDeadlineSeconds=7200))
        await ns.until(lambda: web(ns)["status"].get("readyReplicas") == 2, "the pods are ready")
        assert not web(ns)["status"].get("availableReplicas")
        assert condition(web(ns), "Available")["status"] == "False"

        await ns.patch("deployments", "web", {"spec": {"minReadySeconds": 0}})
        await ns.until(lambda: rolled_out(ns), "they are available")
        assert len(names(ns.history["replicasets"])) == 1
        assert len(names(ns.history["pods"])) == 2

    @pytest.mark.row("D-009")
    async def test_fields_of_others_stay_theirs(self, ns: Namespace, control_plane: ControlPlane) -> None:
        manifest = json.dumps(deployment(replicas=1))
        await control_plane.kubectl(
            "-n", ns.name, "apply", "--server-side", "--field-manager=me", "-f", "-", input=manifest
        )
        await ns.until(lambda: rolled_out(ns), "it is rolled out")

        fields = {entry["manager"]: entry for entry in web(ns)["metadata"]["managedFields"]}
        assert set(fields) == {"me", "kube-controller-manager"}
        assert fields["kube-controller-manager"]["subresource"] == "status"
        assert set(fields["kube-controller-manager"]["fieldsV1"]) == {"f:metadata", "f:status"}
        assert web(ns)["metadata"]["generation"] == 1
        cached = DEPLOYMENTS.decode(json.dumps(web(ns)).encode())
        assert "managedFields" not in deployment_document(cached)["metadata"]


async def template_of(control_plane: ControlPlane, ns: Namespace, plural: str, name: str) -> str:
    """The JSON of a pod template as the server gives it, but for the hash label."""
    answer = await control_plane.request("GET", f"/apis/apps/v1/namespaces/{ns.name}/{plural}/{name}")
    template: Document = copy.deepcopy(answer["spec"]["template"])
    template["metadata"]["labels"].pop("pod-template-hash", None)
    return json.dumps(template)


@pytest.fixture
def user(control_plane: ControlPlane, ns: Namespace) -> User:
    """Who the test's own manager is: nobody special."""
    return User(control_plane, ns, groups=())


class TestWithAManagerOfItsOwn:
    """No other manager acts, so the ReplicaSets' statuses are the test's to write, and every request is on record."""

    @pytest.fixture
    def control_plane(self, quiet_control_plane: ControlPlane) -> ControlPlane:
        return quiet_control_plane

    @pytest.mark.row("D-008")
    async def test_it_works_alone_with_its_bootstrap_role(
        self, ns: Namespace, control_plane: ControlPlane, managers: Managers, user: User
    ) -> None:
        await bind(control_plane, user, "system:controller:deployment-controller")
        flags = ("--controllers=deployment-controller", "--leader-elect=false", "--secure-port=0")
        managers.start(*flags, *UNLIMITED, kubeconfig=user.kubeconfig())

        await ns.create("deployments", deployment(replicas=2, revisionHistoryLimit=0))
        await ns.until(lambda: ns.replica_sets, "there is a ReplicaSet")
        await settle(ns, current(ns)["metadata"]["name"], 2)
        await ns.until(lambda: complete(web(ns)), "the rollout is complete")
        await ns.scale("deployments", "web", 3)
        await ns.until(lambda: current(ns)["spec"]["replicas"] == 3, "it is scaled")
        await settle(ns, current(ns)["metadata"]["name"], 3)

        # An old ReplicaSet comes, goes, and comes back to be cleaned up.
        old = replica_set("spare", replicas=0, labels={"app": "web"}, template=pod_template(SECOND))
        await ns.create("replicasets", old)
        await ns.until(lambda: controller(ns.get("replicasets", "spare")), "it is adopted")
        await ns.patch("replicasets", "spare", {"metadata": {"labels": {"app": "other"}}})
        await ns.until(lambda: controller(ns.get("replicasets", "spare")) is None, "it is released")
        await ns.patch("replicasets", "spare", {"metadata": {"labels": {"app": "web"}}})
        await settle(ns, "spare", 0)
        await ns.until(lambda: not ns.get("replicasets", "spare"), "it is cleaned up")

        asked = await user.requests()
        # A conflict is no lack of rights, nor a second deletion by a sync whose cache did not know of the first (D-170).
        assert {code(event) for event in asked if event["verb"] != "delete"} <= {200, 201, 409}
        assert {code(event) for event in asked if event["verb"] == "delete"} <= {200, 404}
        did = {
            (event["verb"], asked_of(event)) for event in asked if event["userAgent"].endswith("/deployment-controller")
        }
        assert did - {("patch", "events")} == {
            ("get", "deployments"),
            ("update", "deployments/status"),
            *((verb, "replicasets") for verb in ("create", "update", "patch", "delete")),
            ("create", "events"),
        }
        assert not ns.pods


async def settle(ns: Namespace, name: str, replicas: int) -> None:
    """Write the status of a ReplicaSet that has all of its pods."""
    generation = ns.get("replicasets", name)["metadata"]["generation"]
    counters = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), replicas)
    await ns.patch("replicasets", name, {"status": {**counters, "observedGeneration": generation}}, "status")
