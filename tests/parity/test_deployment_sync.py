"""What a sync of a Deployment does: its requests with their bodies, in their order, its events and its wake-ups.

The reference's controller runs over caches with the same objects and a server that answers the same; see `actor` and
oracle/sync.go.
"""

import asyncio
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from kcm.api.types.apps import Deployment, ReplicaSet
from kcm.api.types.meta import Document, from_document
from kcm.controllers.deployment.decisions import plan_scale
from tests.parity import make, worlds
from tests.parity.actor import Actor, comparable, sync
from tests.parity.make import chance
from tests.parity.oracle import Answer
from tests.parity.ring import Ring


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as made:
        yield made


def _rollout(random: Random) -> Document:
    """A Deployment amid its ReplicaSets, of which several are active."""
    deployment = make.deployment(random)
    sets = make.replica_sets(random, 4)
    for rs in sets:
        if chance(random, 0.7):
            rs["spec"]["replicas"] = random.choice((0, 1, 1, 3, 8, random.randrange(50)))
        if chance(random, 0.5):
            limit = str(random.choice((1, 3, 10, random.randrange(60))))
            rs["metadata"].setdefault("annotations", {})[make.MAXIMUM] = limit
    new = make.replica_set(random, "new") if chance(random, 0.8) else None
    if new and chance(random, 0.4):
        replicas = deployment["spec"]["replicas"]
        new["spec"]["replicas"] = new["status"]["availableReplicas"] = replicas
        new["metadata"].setdefault("annotations", {})[make.DESIRED] = str(replicas)
    return {"deployment": deployment, "old": sets, "new": new}


@pytest.mark.row("D-109", "D-110", "D-111", "D-116", "D-117")
def test_replica_sets_are_scaled_the_same(ring: Ring, runner: asyncio.Runner) -> None:
    def ours(given: Document) -> Document:
        actor = Actor(given["deployment"])
        deployment = from_document(Deployment, given["deployment"])
        new = from_document(ReplicaSet, given["new"]) if given["new"] else None

        async def scale() -> None:
            plan = plan_scale(deployment, new, [from_document(ReplicaSet, rs) for rs in given["old"]])
            for replica_set, size in plan.steps:
                await actor.steps(deployment).scale_replica_set(replica_set, size, force=plan.force)

        return comparable(actor.outcome(runner, scale()))

    ring.agree("scale", _rollout, ours, theirs=comparable, share=0.3)


@pytest.mark.row("D-167", "D-168", "D-169")
def test_the_same_replica_sets_are_cleaned_up(ring: Ring, runner: asyncio.Runner) -> None:
    def random_input(random: Random) -> Document:
        sets = make.replica_sets(random, 8)
        for rs in sets:
            if chance(random, 0.8):
                rs["metadata"].setdefault("annotations", {})[make.REVISION] = str(random.randrange(6))
            if chance(random, 0.8):
                rs["spec"]["replicas"] = rs["status"]["replicas"] = 0
        return {"deployment": make.deployment(random), "old": sets, "new": None}

    def ours(given: Document) -> Document:
        actor = Actor(given["deployment"])
        steps = actor.steps(from_document(Deployment, given["deployment"]))
        action = steps.cleanup_deployment([from_document(ReplicaSet, rs) for rs in given["old"]])
        return comparable(actor.outcome(runner, action))

    ring.agree("cleanup", random_input, ours, theirs=comparable, share=0.2)


_FOCUSES = [
    pytest.param(
        worlds.rolling,
        ["Scaled up", "Scaled down", "NewReplicaSetAvailable", "rate limited", "us"],
        marks=pytest.mark.row("D-119", "D-120", "D-122", "D-123", "D-124"),
    ),
    pytest.param(worlds.stumbling, ["Scaled down"], marks=pytest.mark.row("D-125", "D-126")),
    pytest.param(
        worlds.recreating,
        ["from 0 to", "Scaled down", "POST"],
        marks=pytest.mark.row("D-128", "D-129", "D-130", "D-132"),
    ),
    pytest.param(
        worlds.pausing,
        ["DeploymentPaused", "DeploymentResumed", "DELETE"],
        marks=pytest.mark.row("D-102", "D-103", "D-104", "D-106"),
    ),
    pytest.param(
        worlds.rolling_back,
        ["Rolled back", "Unable to find last revision", "Unable to find the revision", "contains the same template"],
        marks=pytest.mark.row("D-158", "D-160", "D-161", "D-162", "D-163"),
    ),
    pytest.param(
        worlds.claiming,
        ["PATCH", "GET", '"$patch":"delete"', '"blockOwnerDeletion":true,"controller":true'],
        marks=pytest.mark.row("D-041", "D-042", "D-043", "D-044", "D-048"),
    ),
    pytest.param(
        worlds.creating,
        [
            "Failed to create new replica set",
            "NewReplicaSetCreated",
            "ReplicaSetCreateError",
            '"collisionCount":2,',
        ],
        marks=pytest.mark.row("D-077", "D-078", "D-081", "D-082", "D-084"),
    ),
    pytest.param(
        worlds.anything,
        ["ReplicaFailure", "ProgressDeadlineExceeded", "MinimumReplicasUnavailable"],
        marks=pytest.mark.row("D-036", "D-056", "D-145", "D-153", "D-154"),
    ),
]


@pytest.mark.parametrize(("focus", "expected"), _FOCUSES, ids=lambda value: getattr(value, "__name__", ""))
def test_syncs_do_the_same(ring: Ring, runner: asyncio.Runner, focus: worlds.Focus, expected: list[str]) -> None:
    """Each world is synced a few times, with what the sync before has written; in all, what is expected has to happen."""
    random = ring.random(focus.__name__)
    given = [worlds.world(random, focus) for _ in range(max(300, ring.inputs // 40))]
    seen: set[str] = set()
    for _ in range(4):
        outcomes = [comparable(answer.out) for answer in ring.oracle.ask("sync", given)]
        ring.compare(
            "sync", given, [Answer(out=out) for out in outcomes], lambda world: comparable(sync(runner, world))
        )
        text = msgspec.json.encode(outcomes, order="sorted").decode()
        seen |= {part for part in expected if part in text}
        given = [
            worlds.world(random, focus) if out["failed"] or made["refusals"] else worlds.successor(random, made, out)
            for made, out in zip(given, outcomes, strict=True)
        ]
    assert seen == set(expected)
