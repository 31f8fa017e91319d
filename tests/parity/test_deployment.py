"""Sizes, annotations, revisions, order and status of a Deployment and its ReplicaSets."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import pytest

from kcm.api.types.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, status_document
from kcm.api.types.meta import Document, from_document
from kcm.controllers.deployment.conditions import (
    deployment_complete,
    deployment_progressing,
    deployment_timed_out,
    has_progress_deadline,
    remove_deployment_condition,
    set_deployment_condition,
)
from kcm.controllers.deployment.decisions import calculate_status, generate_replica_set_name
from kcm.controllers.deployment.util import (
    by_creation,
    by_revision,
    by_size,
    find_active_or_latest,
    find_new_replica_set,
    find_old_replica_sets,
    get_actual_replica_count_for_replica_sets,
    get_available_replica_count_for_replica_sets,
    get_desired_replicas_annotation,
    get_ready_replica_count_for_replica_sets,
    get_replica_count_for_replica_sets,
    get_replica_set_proportion,
    get_terminating_replica_count_for_replica_sets,
    is_saturated,
    last_revision,
    max_revision,
    max_surge,
    max_unavailable,
    min_available,
    new_rs_new_replicas,
    resolve_fenceposts,
    revision,
    set_new_replica_set_annotations,
)
from kcm.controllers.owners import selecting
from tests.parity import make
from tests.parity.ring import Ring


def _deployment(document: Document) -> Deployment:
    return from_document(Deployment, document)


def _replica_set(document: Document) -> ReplicaSet:
    return from_document(ReplicaSet, document)


def _replica_sets(documents: Sequence[Document]) -> list[ReplicaSet]:
    return [_replica_set(document) for document in documents]


def _names(replica_sets: Sequence[ReplicaSet]) -> list[str]:
    return [rs.metadata.name for rs in replica_sets]


def _name(replica_set: ReplicaSet | None) -> str:
    return "" if replica_set is None else replica_set.metadata.name


class TestSizes:
    """The arithmetic of rolling updates and scaling."""

    @pytest.mark.row("D-092", "D-093")
    def test_both_bounds_resolve_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            given = {key: make.bound(random) for key in ("surge", "unavailable") if make.chance(random, 0.95)}
            return {**given, "desired": make.size(random)}

        def ours(given: Document) -> Document:
            surge, unavailable = resolve_fenceposts(given.get("surge"), given.get("unavailable"), given["desired"])
            return {"surge": surge, "unavailable": unavailable}

        ring.agree("resolveFenceposts", random_input, ours)

    @pytest.mark.row("D-094", "D-095", "D-096")
    def test_a_deployment_has_the_same_bounds(self, ring: Ring) -> None:
        def ours(given: Document) -> Document:
            deployment = _deployment(given)
            return {
                "maxSurge": max_surge(deployment),
                "maxUnavailable": max_unavailable(deployment),
                "minAvailable": min_available(deployment),
            }

        ring.agree("bounds", make.deployment, ours)

    @pytest.mark.row("D-097", "D-098")
    def test_the_new_replica_set_grows_to_the_same_size(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            given = {"deployment": make.deployment(random), "old": make.replica_sets(random, 4)}
            return {**given, "new": make.replica_set(random, "new")}

        def ours(given: Document) -> int:
            new = _replica_set(given["new"])
            everything = [*_replica_sets(given["old"]), new]
            return new_rs_new_replicas(_deployment(given["deployment"]), everything, new)

        ring.agree("newReplicas", random_input, ours, share=0.5)

    @pytest.mark.row("D-113", "D-114", "D-115")
    def test_a_replica_set_gets_the_same_share(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            to_add = random.choice((-1, 1)) * make.size(random)
            added = random.choice((0, to_add, to_add // 2, make.size(random)))
            return {
                "deployment": make.deployment(random),
                "replicaSet": make.replica_set(random),
                "toAdd": to_add,
                "added": added,
            }

        def ours(given: Document) -> int:
            deployment, rs = _deployment(given["deployment"]), _replica_set(given["replicaSet"])
            return get_replica_set_proportion(rs, deployment, given["toAdd"], given["added"])

        ring.agree("proportion", random_input, ours)

    @pytest.mark.row("D-101")
    def test_the_same_replica_sets_are_saturated(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            deployment, rs = make.deployment(random), make.replica_set(random)
            replicas = deployment["spec"]["replicas"]
            texts = (str(replicas), f"+{replicas}", f"0{replicas}", str(replicas + 2**32), f"{replicas} ")
            if make.chance(random, 0.7):
                rs["spec"]["replicas"] = rs["status"]["availableReplicas"] = replicas
                rs["metadata"].setdefault("annotations", {})[make.DESIRED] = random.choice(texts)
            return {"deployment": deployment, "old": [], "new": rs if make.chance(random, 0.98) else None}

        def ours(given: Document) -> bool:
            new = _replica_set(given["new"]) if given["new"] else None
            return is_saturated(_deployment(given["deployment"]), new)

        ring.agree("saturated", random_input, ours)

    @pytest.mark.row("D-068")
    def test_the_desired_replicas_are_read_the_same(self, ring: Ring) -> None:
        def ours(given: Document) -> int | None:
            return get_desired_replicas_annotation(_replica_set(given))

        ring.agree("desiredReplicas", make.replica_set, ours)

    @pytest.mark.row("D-136")
    def test_pods_are_counted_the_same(self, ring: Ring) -> None:
        def ours(given: list[Document]) -> Mapping[str, int | None]:
            sets = _replica_sets(given)
            return {
                "wanted": get_replica_count_for_replica_sets(sets),
                "actual": get_actual_replica_count_for_replica_sets(sets),
                "ready": get_ready_replica_count_for_replica_sets(sets),
                "available": get_available_replica_count_for_replica_sets(sets),
                "terminating": get_terminating_replica_count_for_replica_sets(sets),
            }

        ring.agree("counts", make.replica_sets, ours, share=0.5)


class TestReplicaSets:
    """Telling ReplicaSets apart."""

    @pytest.mark.row("D-051", "D-053")
    def test_the_same_replica_set_is_new_and_the_same_ones_are_old(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            sets = make.replica_sets(random)
            if make.chance(random, 0.5):
                for rs in sets:
                    rs["spec"]["replicas"] = random.choice((0, 0, 0, 1))
            return {"deployment": make.deployment(random), "replicaSets": sets}

        def ours(given: Document) -> Document:
            sets = _replica_sets(given["replicaSets"])
            new = find_new_replica_set(_deployment(given["deployment"]), sets)
            old = find_old_replica_sets(sets, new)
            return {"new": _name(new), "old": _names(old), "latest": _name(find_active_or_latest(new, old))}

        ring.agree("find", random_input, ours, share=0.3)

    @pytest.mark.row("D-054")
    def test_revisions_are_read_the_same(self, ring: Ring) -> None:
        def ours(given: list[Document]) -> Document:
            sets = _replica_sets(given)
            return {"each": [revision(rs) for rs in sets], "max": max_revision(sets), "last": last_revision(sets)}

        ring.agree("revisions", lambda random: [make.replica_set(random), *make.replica_sets(random)], ours, share=0.5)

    @pytest.mark.row("D-112", "D-168")
    def test_replica_sets_are_sorted_the_same(self, ring: Ring) -> None:
        def ours(given: list[Document]) -> Document:
            sets = _replica_sets(given)
            return {
                "created": _names(by_creation(sets)),
                "newer": _names(by_size(sets, newest_first=True)),
                "older": _names(by_size(sets, newest_first=False)),
                "revision": _names(by_revision(sets)),
            }

        ring.agree("orders", lambda random: make.replica_sets(random, 9), ours, share=0.3)

    @pytest.mark.row("D-023")
    def test_an_orphan_is_matched_by_the_same_deployments(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            rs = make.replica_set(random)
            if make.chance(random, 0.9):
                rs["metadata"]["labels"] = make.labels(random)
            deployments = [make.deployment(random, f"d-{number}") for number in range(random.randrange(1, 4))]
            for deployment in deployments:
                deployment["spec"]["selector"] = make.selector(random)
            return {"deployments": deployments, "replicaSet": rs}

        def ours(given: Document) -> list[str]:
            deployments = [_deployment(document) for document in given["deployments"]]
            matching = selecting(deployments, _replica_set(given["replicaSet"]).metadata.labels)
            return sorted(deployment.metadata.name for deployment in matching)

        ring.agree("deploymentsFor", random_input, ours, share=0.5)

    @pytest.mark.row("D-076")
    def test_new_replica_sets_are_named_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> list[str]:
            hashes = ("f" * 10, "54f4c57dcb", "x" * 252, "x" * 260)
            return ["web" * random.randrange(1, 90), random.choice(hashes)]

        ring.agree("replicaSetName", random_input, lambda given: generate_replica_set_name(*given), share=0.1)


class TestAnnotations:
    """What the new ReplicaSet's annotations become."""

    @pytest.mark.row("D-061", "D-062", "D-063", "D-065", "D-066")
    def test_they_become_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            rs = make.replica_set(random)
            target = random.choice((1, 2, 10, 2**63 - 1, make.size(random), -(2**63)))
            if make.chance(random, 0.5):
                rs["metadata"].setdefault("annotations", {})[make.REVISION] = str(random.choice((1, 2, target - 1)))
            return {
                "deployment": make.deployment(random),
                "replicaSet": rs,
                "revision": target,
                "exists": make.chance(random, 0.7),
                "limit": random.choice((2000, 2000, random.randrange(40), 0)),
            }

        ring.agree("newAnnotations", random_input, self._ours)

    @pytest.mark.row("D-064")
    def test_a_revision_that_is_no_number_stays(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            rs = make.replica_set(random)
            annotations = rs["metadata"].setdefault("annotations", {})
            annotations[make.REVISION] = random.choice(("x", "", " 1", "1_0", str(2**63), "1"))
            given = {"deployment": make.deployment(random), "replicaSet": rs, "revision": 3}
            return {**given, "exists": make.chance(random, 0.7), "limit": 2000}

        ring.agree("newAnnotations", random_input, self._ours, share=0.3)

    @staticmethod
    def _ours(given: Document) -> Document:
        annotations, changed = set_new_replica_set_annotations(
            _deployment(given["deployment"]),
            _replica_set(given["replicaSet"]).metadata.annotations,
            given["revision"],
            exists=given["exists"],
            history_limit=given["limit"],
        )
        return {"annotations": annotations, "changed": changed}


class TestStatus:
    """Conditions, counters and progress."""

    @pytest.mark.row("D-139")
    def test_conditions_are_set_and_removed_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            steps: list[Document] = []
            for _ in range(random.randrange(1, 6)):
                condition = make.condition(random)
                steps.append({"set": condition} if make.chance(random, 0.8) else {"remove": condition["type"]})
            return {"status": make.deployment_status(random), "steps": steps}

        def ours(given: Document) -> Any:
            status = msgspec.convert(given["status"], DeploymentStatus)
            for step in given["steps"]:
                if "set" in step:
                    status = set_deployment_condition(status, msgspec.convert(step["set"], DeploymentCondition))
                else:
                    status = remove_deployment_condition(status, step["remove"])
            return status_document(status).get("conditions")

        ring.agree("conditions", random_input, ours)

    @pytest.mark.row("D-146", "D-148", "D-150")
    def test_progress_is_judged_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            deployment = make.deployment(random)
            replicas, generation = deployment["spec"]["replicas"], deployment["metadata"]["generation"]
            status = make.deployment_status(random, replicas, generation)
            now = make.NOW.replace(microsecond=random.choice((0, 123456)))
            return {"deployment": deployment, "status": status, "now": make.instant(now)}

        def ours(given: Document) -> Document:
            deployment = _deployment(given["deployment"])
            status = msgspec.convert(given["status"], DeploymentStatus)
            return {
                "deadline": has_progress_deadline(deployment),
                "complete": deployment_complete(deployment, status),
                "progressing": deployment_progressing(deployment, status),
                "timedOut": deployment_timed_out(deployment, status, datetime.fromisoformat(given["now"])),
            }

        ring.agree("progress", random_input, ours)

    @pytest.mark.row("D-133", "D-134", "D-135", "D-138")
    def test_the_status_becomes_the_same(self, ring: Ring) -> None:
        def random_input(random: Random) -> Document:
            return {
                "deployment": make.deployment(random),
                "old": make.replica_sets(random, 4),
                "new": make.replica_set(random, "new") if make.chance(random, 0.8) else None,
                "counted": make.chance(random, 0.8),
                "now": make.instant(),
            }

        def ours(given: Document) -> Document:
            new = _replica_set(given["new"]) if given["new"] else None
            everything = [*_replica_sets(given["old"]), *([new] if new else [])]
            status = calculate_status(
                _deployment(given["deployment"]),
                everything,
                new,
                now=make.NOW.replace(microsecond=0),
                terminating_replicas=given["counted"],
            )
            return status_document(status)

        ring.agree("deploymentStatus", random_input, ours, share=0.3)
