"""Which pods a rolling update deletes; the values are those of the reference's own tests."""

from datetime import datetime

import pytest

from kcm.api.types.core import Pod
from kcm.controllers.statefulset.rolling_update import count_unavailable, next_pod_to_update, pods_to_update
from kcm.controllers.statefulset.stateful_set_utils import unborn_pod
from tests.clocks import START
from tests.unit.stateful_set_world import R1, R2, make_stateful_pod, make_stateful_set


def slots(
    size: int,
    *,
    unready: tuple[int, ...] = (),
    terminating: tuple[int, ...] = (),
    new: tuple[int, ...] = (),
) -> list[Pod]:
    return [
        make_stateful_pod(
            index,
            revision=R2 if index in new else R1,
            ready=index not in unready,
            ready_for=3600,
            deleted=index in terminating,
        )
        for index in range(size)
    ]


def chosen(
    replicas: list[Pod],
    max_unavailable: int,
    *,
    partition: int = 0,
    parallel: bool = False,
    min_ready_seconds: int = 0,
    now: datetime = START,
) -> list[int]:
    pods = pods_to_update(
        replicas,
        revision=R2,
        partition=partition,
        max_unavailable=max_unavailable,
        parallel=parallel,
        min_ready_seconds=min_ready_seconds,
        now=now,
    )
    return [int(pod.metadata.name.removeprefix("web-")) for pod in pods]


@pytest.mark.row("S-196", "S-163", "S-164", "S-165")
@pytest.mark.parametrize(
    ("size", "most", "unready", "deleted"),
    [
        (1, 1, (0,), [0]),
        (3, 1, (2,), [2]),
        (5, 2, (3, 4), [4, 3]),
        (4, 2, (0, 1), [1, 0]),
        (5, 3, (0, 1), [1, 0, 4]),
    ],
)
def test_parallel_with_unready_pods(size: int, most: int, unready: tuple[int, ...], deleted: list[int]) -> None:
    assert chosen(slots(size, unready=unready), most, parallel=True) == deleted


@pytest.mark.row("S-197", "S-163")
@pytest.mark.parametrize(
    ("size", "most", "unready", "terminating", "deleted"),
    [(3, 1, (), (2,), []), (5, 3, (3,), (4,), [3, 2]), (5, 3, (4,), (3,), [4, 2])],
)
def test_parallel_with_terminating_pods(
    size: int, most: int, unready: tuple[int, ...], terminating: tuple[int, ...], deleted: list[int]
) -> None:
    assert chosen(slots(size, unready=unready, terminating=terminating), most, parallel=True) == deleted


@pytest.mark.row("S-198", "S-159", "S-160")
@pytest.mark.parametrize(
    ("partition", "most", "unready", "deleted"),
    [
        (2, 1, (4,), [4]),
        (2, 1, (2,), [2]),
        (2, 1, (1,), []),
        (3, 2, (3, 4), [4, 3]),
        (3, 2, (1, 4), [4]),
        (5, 9, (4,), []),
        (9, 9, (4,), []),
    ],
)
def test_parallel_with_a_partition(partition: int, most: int, unready: tuple[int, ...], deleted: list[int]) -> None:
    assert chosen(slots(5, unready=unready), most, parallel=True, partition=partition) == deleted


@pytest.mark.row("S-198")
def test_a_pod_that_is_ready_since_just_now_is_not_available() -> None:
    replicas = [*slots(2), make_stateful_pod(2, ready_for=0)]
    assert chosen(replicas, 1, parallel=True, min_ready_seconds=30) == [2]


@pytest.mark.row("S-199", "S-161", "S-160")
@pytest.mark.parametrize(
    ("size", "most", "unready", "terminating", "deleted"),
    [
        (5, 2, (4,), (), [4]),
        (5, 3, (3,), (4,), [3]),
        (5, 3, (4,), (3,), [4]),
        (3, 1, (2,), (), []),
        (5, 3, (), (), [4, 3, 2]),
        (3, 9, (), (), [2, 1, 0]),
    ],
)
def test_ordered(
    size: int, most: int, unready: tuple[int, ...], terminating: tuple[int, ...], deleted: list[int]
) -> None:
    assert chosen(slots(size, unready=unready, terminating=terminating), most) == deleted


@pytest.mark.row("S-159", "S-161", "S-165")
def test_new_pods_stay() -> None:
    assert chosen(slots(5, new=(4, 2)), 2) == [3, 1]
    assert chosen(slots(5, new=(4, 2), unready=(2,)), 2, parallel=True) == [3]
    assert chosen(slots(3, new=(0, 1, 2), unready=(0, 1, 2)), 3, parallel=True) == []
    assert chosen(slots(5), 5, partition=3) == [4, 3]


@pytest.mark.row("S-160", "S-168")
def test_unborn_pods_are_unavailable_and_may_be_old() -> None:
    stateful_set = make_stateful_set()
    unborn = unborn_pod(stateful_set, stateful_set.spec.template, R1, 2)
    replicas = [*slots(2, new=(1,)), unborn]
    assert count_unavailable(replicas, 0, START) == 1
    assert chosen(replicas, 1, parallel=True) == [2]


@pytest.mark.row("S-169")
@pytest.mark.parametrize(
    ("replicas", "partition", "expected"),
    [
        (slots(3), 0, ["web-2"]),
        (slots(3, new=(2,)), 0, ["web-1"]),
        (slots(3, new=(2,), unready=(2,)), 0, []),
        (slots(3, unready=(2,)), 0, ["web-2"]),
        (slots(3, terminating=(2,)), 0, []),
        (slots(3, new=(2,), unready=(0,)), 0, ["web-1"]),
        (slots(3, new=(2,)), 2, []),
        (slots(3, new=(0, 1, 2)), 0, []),
    ],
)
def test_one_by_one_without_the_gate(replicas: list[Pod], partition: int, expected: list[str]) -> None:
    pods = next_pod_to_update(replicas, revision=R2, partition=partition, min_ready_seconds=0, now=START)
    assert [pod.metadata.name for pod in pods] == expected
