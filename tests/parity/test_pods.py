"""Which pods are ready, available and first to go, and what a ReplicaSet's status makes of them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import msgspec
import pytest

from kcm.api.types.apps import ReplicaSet, status_document
from kcm.api.types.core import Pod
from kcm.api.types.meta import Document, from_document
from kcm.controllers.pod_ranking import Candidate, deletion_cost, pods_to_delete
from kcm.controllers.pod_utils import is_active, is_available, is_ready, is_terminating, min_next_availability_check
from kcm.controllers.replicaset.replica_set_utils import calculate_status
from kcm.controllers.slow_start import slow_start_batch
from tests.parity import make
from tests.parity.actor import StoppedClock
from tests.parity.ring import Ring

COST = "controller.kubernetes.io/pod-deletion-cost"


def _pod(document: Document) -> Pod:
    return msgspec.convert(document, Pod)


def _pods(documents: Sequence[Document]) -> list[Pod]:
    return [_pod(document) for document in documents]


@pytest.mark.row("R-097")
def test_deletion_costs_are_read_the_same(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        text = random.choice((make.number(random), "".join(random.choices("-+0129 _", k=random.randrange(5)))))
        return random.choice(({COST: text}, {COST: text}, {COST: f"-{text}"}, {"other": text}))

    ring.agree("deletionCost", random_input, deletion_cost)


class TestPairs:
    """Of two pods, whether one goes before the other."""

    @pytest.mark.row("R-093", "R-094", "R-095", "R-096", "R-098")
    def test_of_any_two_pods_the_same_one_goes_first(self, ring: Ring) -> None:
        self._agree(ring, lambda random: [make.pod(random), make.pod(random)])

    @pytest.mark.row("R-099", "R-100", "R-101", "R-102", "R-104")
    def test_of_two_similar_pods_the_same_one_goes_first(self, ring: Ring) -> None:
        """Both are scheduled, run and cost the same, so that times and restarts decide."""

        def pair(random: Random) -> list[Document]:
            pods = [make.pod(random), make.pod(random)]
            ready = make.chance(random, 0.6)
            for pod in pods:
                pod["spec"]["nodeName"] = "one"
                pod["status"]["phase"] = "Running"
                pod["metadata"].pop("annotations", None)
                for condition in pod["status"].get("conditions", []):
                    condition["status"] = "True" if ready else "False"
            return pods

        self._agree(ring, pair)

    @staticmethod
    def _agree(ring: Ring, pair: make.Maker[list[Document]]) -> None:
        def random_input(random: Random) -> Document:
            ranks = [random.choice((0, 0, 0, 1, 2)) for _ in range(2)]
            return {"pods": pair(random), "ranks": ranks, "now": make.instant(), "byCost": make.chance(random, 0.9)}

        def ours(given: Document) -> list[bool]:
            one, other = (
                Candidate(pod, rank, make.NOW, by_cost=given["byCost"])
                for pod, rank in zip(_pods(given["pods"]), given["ranks"], strict=True)
            )
            return [one < other, other < one]

        ring.agree("podGoesFirst", random_input, ours)


@pytest.mark.row("R-092", "R-103", "R-209", "R-211")
def test_sets_of_pods_are_ordered_the_same(ring: Ring) -> None:
    """Whatever the order makes of pods that it has no place for, and whatever it contradicts itself in."""

    def random_input(random: Random) -> Document:
        count = random.randrange(2, 14) if make.chance(random, 0.8) else random.randrange(14, 120)
        pods = [make.pod(random, f"pod-{number:03}") for number in range(count)]
        if make.chance(random, 0.7):
            # Alike but for times, restarts and UIDs.
            for pod in pods:
                pod["spec"]["nodeName"] = "one"
                pod["status"]["phase"] = "Running"
                pod["metadata"].pop("annotations", None)
        others = [make.pod(random, f"other-{number}") for number in range(random.randrange(4))]
        return {"pods": pods, "related": random.sample(pods, random.randrange(count)) + others, "now": make.instant()}

    def ours(given: Document) -> list[str]:
        pods, related = _pods(given["pods"]), _pods(given["related"])
        chosen = [pod.metadata.name for pod in pods_to_delete(pods, related, len(pods) - 1, make.NOW)]
        return chosen + [pod.metadata.name for pod in pods if pod.metadata.name not in chosen]

    ring.agree("podOrder", random_input, ours, share=0.1)


def _some_seconds(random: Random) -> int:
    return random.choice((0, 0, 1, 5, 10, 60, 600, random.randrange(400), make.MAX_INT32, -1))


@pytest.mark.row("R-107")
def test_pods_are_active_ready_and_available_alike(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        now = make.NOW.replace(microsecond=random.choice((0, 1, 123456)))
        seconds = _some_seconds(random)
        return {"pod": make.pod(random), "minReadySeconds": seconds, "now": make.instant(now)}

    def ours(given: Document) -> Document:
        pod = _pod(given["pod"])
        return {
            "active": is_active(pod),
            "terminating": is_terminating(pod),
            "ready": is_ready(pod),
            "available": is_available(pod, given["minReadySeconds"], datetime.fromisoformat(given["now"])),
        }

    ring.agree("availability", random_input, ours)


@pytest.mark.row("R-119", "R-167", "R-168")
def test_the_next_pod_becomes_available_at_the_same_time(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        later = make.NOW + timedelta(microseconds=random.choice((0, 1, 1_500_000, 10**8)))
        return {
            "pods": [make.pod(random) for _ in range(random.randrange(5))],
            "minReadySeconds": _some_seconds(random),
            "evaluated": make.instant(),
            "now": make.instant(later),
        }

    def ours(given: Document) -> int | None:
        seconds = min_next_availability_check(
            _pods(given["pods"]),
            given["minReadySeconds"],
            datetime.fromisoformat(given["evaluated"]),
            StoppedClock(datetime.fromisoformat(given["now"])),
        )
        return None if seconds is None else round(seconds * 1_000_000)

    ring.agree("nextAvailabilityCheck", random_input, ours)


@pytest.mark.row("R-106", "R-109", "R-110", "R-112")
def test_a_replica_set_gets_the_same_status(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        replica_set = make.replica_set(random)
        replica_set["spec"]["replicas"] = random.randrange(6)
        replica_set["spec"]["template"]["metadata"]["labels"] = make.labels(random)
        return {
            "replicaSet": replica_set,
            "active": [make.pod(random, f"pod-{number}") for number in range(random.randrange(6))],
            "terminating": [make.pod(random, f"gone-{number}") for number in range(random.randrange(3))],
            "failure": random.choice(("", "", "quota exceeded")),
            "counted": make.chance(random, 0.8),
            "now": make.instant(),
        }

    def ours(given: Document) -> Document:
        status = calculate_status(
            from_document(ReplicaSet, given["replicaSet"]),
            _pods(given["active"]),
            len(given["terminating"]) if given["counted"] else None,
            RuntimeError(given["failure"]) if given["failure"] else None,
            make.NOW,
        )
        return status_document(status)

    ring.agree("replicaSetStatus", random_input, ours, share=0.5)


@pytest.mark.row("R-072")
def test_the_same_number_of_calls_is_made(ring: Ring) -> None:
    def random_input(random: Random) -> Document:
        return {"count": random.randrange(70), "failFrom": random.randrange(1, 90)}

    def ours(given: Document) -> Document:
        calls = 0

        async def call() -> None:
            nonlocal calls
            calls += 1
            if calls >= given["failFrom"]:
                raise RuntimeError("refused")

        async def run() -> Document:
            successes, errors = await slow_start_batch([call] * given["count"])
            return {"calls": calls, "successes": successes, "failed": bool(errors)}

        return runner.run(run())

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        ring.agree("slowStartBatch", random_input, ours, share=0.05)
