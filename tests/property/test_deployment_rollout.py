"""Rollouts under a ReplicaSet controller that does its work bit by bit, with caches that lag behind and users who interfere."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kcm.api.errors import StatusError
from kcm.api.pod_template import template_document
from kcm.api.resources import DEPLOYMENTS, REPLICA_SETS
from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.meta import Document
from kcm.controllers.deployment.util import max_replicas, min_available
from tests.unit.deployment_world import DeploymentWorld
from tests.unit.fakes import deployment_document, pod_template

bounds = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "1%", "25%", "50%", "100%"]))
images = st.sampled_from(["web:1", "web:2", "web:3"])


def image_of(owner: Deployment | ReplicaSet) -> str:
    image: str = template_document(owner)["spec"]["containers"][0]["image"]
    return image


class RolloutMachine(RuleBasedStateMachine):
    """What the API server stores, seen while one Deployment is rolled over again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = DeploymentWorld()

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.loop.run_until_complete(work)

    @initialize(replicas=st.integers(0, 8), surge=bounds, unavailable=bounds)
    def deployed(self, replicas: int, surge: int | str, unavailable: int | str) -> None:
        document = deployment_document(
            replicas=replicas, max_surge=surge, max_unavailable=unavailable, history=2, template=pod_template("web:1")
        )
        self.run(self.world.have(document))
        self.run(self.world.settle())

    @rule(image=images)
    def user_changes_the_image(self, image: str) -> None:
        self.world.api.change(
            DEPLOYMENTS, "web", lambda document: document["spec"].update(template=pod_template(image))
        )

    @rule(at_most=st.one_of(st.none(), st.integers(1, 3)))
    def caches_catch_up(self, at_most: int | None) -> None:
        self.run(self.world.api.deliver([self.world.deployments], at_most=at_most))
        self.run(self.world.api.deliver([self.world.replica_sets], at_most=at_most))

    def statuses_follow_sizes(self) -> bool:
        """Whether no cached ReplicaSet still counts available pods that it was told to delete.

        Those are counted as if they stayed (as the reference does, `rolling.go:scaleDownOldReplicaSetsForRollingUpdate`), so
        while a ReplicaSet controller is that late, two syncs in a row may take the same pods twice.
        """
        return all(rs.status.available_replicas <= rs.spec.replicas for rs in self.world.replica_sets.store)

    @rule()
    @precondition(statuses_follow_sizes)
    def controller_syncs(self) -> None:
        self.run(self.sync())

    @rule(index=st.integers(0, 3), pods=st.integers(1, 4))
    def pods_come_and_go(self, index: int, pods: int) -> None:
        """A ReplicaSet makes some of the pods that it lacks, or deletes those beyond its size, unavailable ones first."""

        def edit(document: Document) -> None:
            size, status = document["spec"]["replicas"], document["status"]
            count = status["replicas"]
            status["replicas"] = min(size, count + pods) if count < size else size
            status["availableReplicas"] = status["readyReplicas"] = min(status["availableReplicas"], status["replicas"])
            status["observedGeneration"] = document["metadata"]["generation"]

        self.edit_replica_set(index, edit)

    @rule(index=st.integers(0, 3), pods=st.integers(1, 4))
    def pods_become_available(self, index: int, pods: int) -> None:
        def edit(document: Document) -> None:
            status = document["status"]
            status["availableReplicas"] = min(status["replicas"], status["availableReplicas"] + pods)
            status["readyReplicas"] = status["availableReplicas"]

        self.edit_replica_set(index, edit)

    def edit_replica_set(self, index: int, edit: Any) -> None:
        sets = self.replica_sets()
        if sets:

            def with_status(document: Document) -> None:
                counts = ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
                document["status"] = dict.fromkeys(counts, 0) | document.get("status", {})
                edit(document)

            self.world.api.change(REPLICA_SETS, sets[index % len(sets)].metadata.name, with_status)

    def replica_sets(self) -> list[ReplicaSet]:
        return self.world.api.all(REPLICA_SETS)

    async def sync(self) -> None:
        with suppress(StatusError):
            await self.world.sync()

    @invariant()
    def there_are_never_too_many_pods(self) -> None:
        for deployment in self.world.api.all(DEPLOYMENTS):
            wanted = sum(rs.spec.replicas for rs in self.replica_sets())
            assert wanted <= max_replicas(deployment)

    @invariant()
    def enough_pods_stay_available(self) -> None:
        for deployment in self.world.api.all(DEPLOYMENTS):
            available = sum(rs.status.available_replicas for rs in self.replica_sets())
            assert available >= min_available(deployment)

    def comes_to_rest(self) -> None:
        """Left alone, the rollout ends with all pods in one ReplicaSet that has the Deployment's template."""
        if not self.world.api.all(DEPLOYMENTS):
            return
        self.run(self.world.settle())
        deployment = self.world.api.one(DEPLOYMENTS, "web")
        sizes = {image_of(rs): rs.spec.replicas for rs in self.replica_sets() if rs.spec.replicas}
        assert sizes == ({image_of(deployment): deployment.spec.replicas} if deployment.spec.replicas else {})
        status = deployment.status
        assert status.updated_replicas == status.replicas == status.available_replicas == deployment.spec.replicas
        assert {c.type: c.reason for c in status.conditions}["Progressing"] == "NewReplicaSetAvailable"
        assert len(self.replica_sets()) <= 3


RolloutMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRollouts = pytest.mark.row("D-127")(RolloutMachine.TestCase)
