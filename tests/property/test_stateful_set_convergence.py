"""A StatefulSet comes to what it wants, whatever happens on the way."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcm.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS
from kcm.consistency import ConsistencyError
from kcm.controllers.statefulset.stateful_set_utils import ordinal_of, pod_revision
from tests.unit.fakes import refusal
from tests.unit.stateful_set_world import StatefulSetWorld, running

#: What the role of the controller allows (system:controller:statefulset-controller), besides reading caches.
ALLOWED = re.compile(
    r"(POST|PATCH|PUT|DELETE|GET) (pods|controllerrevisions)(/\S+)?"
    r"|GET statefulsets/\S+|PUT statefulsets/\S+/status"
    r"|(POST|PUT) persistentvolumeclaims(/\S+)?"
)

Event = Callable[[StatefulSetWorld], None]


def scale(replicas: int) -> Event:
    return lambda w: w.edit(replicas=replicas)


def image(number: int) -> Event:
    return lambda w: w.set_image(f"web:{number}")


def start(ordinal: int) -> Event:
    return lambda w: w.edit(ordinals={"start": ordinal})


def fail(ordinal: int) -> Event:
    def act(w: StatefulSetWorld) -> None:
        with suppress(KeyError):
            w.end(ordinal)

    return act


def delete(ordinal: int) -> Event:
    def act(w: StatefulSetWorld) -> None:
        with suppress(KeyError):
            w.finish(ordinal)

    return act


def refuse(method: str) -> Event:
    return lambda w: w.api.fail(method, ".*", refusal(500, "InternalError", "down"))


events = st.one_of(
    st.builds(scale, st.integers(min_value=0, max_value=4)),
    st.builds(image, st.integers(min_value=1, max_value=3)),
    st.builds(start, st.integers(min_value=0, max_value=2)),
    st.builds(fail, st.integers(min_value=0, max_value=5)),
    st.builds(delete, st.integers(min_value=0, max_value=5)),
    st.builds(refuse, st.sampled_from(["POST", "PUT", "DELETE"])),
)


async def take_a_turn(w: StatefulSetWorld) -> bool:
    """Sync, then let nodes and the garbage collector do their work; give whether anything was asked of the server."""
    w.api.calls.clear()
    failed = False
    try:
        await w.sync()
    except ConsistencyError:
        raise
    except Exception:  # noqa: BLE001 - the server refuses what the test has it refuse
        failed = True
    for call in map(str, w.api.calls):
        assert ALLOWED.fullmatch(call), call
    acted = bool(w.api.calls) or failed
    for pod in w.api.all(PODS):
        if pod.metadata.deletion_timestamp is not None:
            w.finish(ordinal_of(pod))
        elif pod.status.phase == "Pending":
            w.run(ordinal_of(pod))
    uids = {w.stateful_set.metadata.uid, *(pod.metadata.uid for pod in w.api.all(PODS))}
    for claim in w.api.all(PERSISTENT_VOLUME_CLAIMS):
        owners = claim.metadata.owner_references
        if owners and not any(owner.uid in uids for owner in owners):
            w.api.remove(PERSISTENT_VOLUME_CLAIMS, claim.metadata.name)
    return acted


@pytest.mark.row("S-010")
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["OrderedReady", "Parallel"]),
    st.sampled_from([1, 2, "50%"]),
    st.sampled_from([("Retain", "Retain"), ("Delete", "Retain"), ("Delete", "Delete"), ("Retain", "Delete")]),
    st.booleans(),
    st.lists(st.tuples(events, st.integers(min_value=0, max_value=3)), max_size=6),
)
def test_it_converges(
    policy: str, most: int | str, retention: tuple[str, str], many: bool, story: list[tuple[Event, int]]
) -> None:
    async def run() -> None:
        w = await running(
            policy=policy, max_unavailable=most, claims=("data",), retention=retention, many=many, consistent=True
        )
        for event, turns in story:
            event(w)
            for _ in range(turns):
                await take_a_turn(w)
        for _ in range(100):
            if not await take_a_turn(w) and not w.api.changes:
                break
        else:
            raise AssertionError(f"no rest: {w.counters}, {[str(call) for call in w.api.calls]}")
        spec, status = w.stateful_set.spec, w.stateful_set.status
        first = spec.ordinals.start
        pods = {ordinal_of(pod): pod for pod in w.api.all(PODS)}
        assert sorted(pods) == list(range(first, first + spec.replicas))
        assert w.counters == (spec.replicas,) * 5
        assert status.current_revision == status.update_revision
        assert {pod_revision(pod) for pod in pods.values()} <= {status.update_revision}
        latest = max(w.api.all(CONTROLLER_REVISIONS), key=lambda revision: revision.revision)
        assert latest.metadata.name == status.update_revision
        assert status.observed_generation == w.stateful_set.metadata.generation
        claims = {claim.metadata.name: claim for claim in w.api.all(PERSISTENT_VOLUME_CLAIMS)}
        by_set = {"uid-web"} if retention[1] == "Delete" else set()
        for ordinal in pods:
            owners = {owner.uid for owner in claims[f"data-web-{ordinal}"].metadata.owner_references}
            assert owners == by_set

    asyncio.run(run())
