"""Which pods go first."""

from datetime import UTC, datetime, timedelta

import pytest

from kcm.api.types.core import Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus
from kcm.api.types.meta import ObjectMeta
from kcm.controllers.pod_ranking import Candidate, deletion_age_ratios, deletion_cost, logarithmic_age, pods_to_delete

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ago(**kwargs: float) -> datetime:
    return NOW - timedelta(**kwargs)


def pod(
    name: str = "p",
    *,
    node: str = "n1",
    phase: str = "Running",
    ready: bool = True,
    since: datetime | None = None,
    created: datetime | None = None,
    cost: str | None = None,
    restarts: int = 0,
    sidecar_restarts: int = 0,
    uid: str = "",
) -> Pod:
    condition = PodCondition(type="Ready", status="True" if ready else "False", last_transition_time=since)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=uid or name,
            creation_timestamp=created,
            annotations={} if cost is None else {"controller.kubernetes.io/pod-deletion-cost": cost},
        ),
        spec=PodSpec(
            node_name=node, init_containers=(Container(name="side", restart_policy="Always"), Container(name="init"))
        ),
        status=PodStatus(
            phase=phase,
            conditions=(condition,),
            container_statuses=(ContainerStatus(name="c", restart_count=restarts),),
            init_container_statuses=(
                ContainerStatus(name="side", restart_count=sidecar_restarts),
                ContainerStatus(name="init", restart_count=99),
            ),
        ),
    )


def goes_first(first: Pod, second: Pod, *, ranks: tuple[int, int] = (0, 0), by_cost: bool = True) -> bool:
    a, b = (Candidate(p, rank, NOW, by_cost=by_cost) for p, rank in zip((first, second), ranks, strict=True))
    if a < b:
        assert not b < a
    return a < b


@pytest.mark.row("R-093", "R-094", "R-095", "R-194")
def test_place_then_phase_then_readiness_decide() -> None:
    assert goes_first(pod(node="", phase="Pending"), pod(node="n", phase="Pending"))
    assert goes_first(pod(node="", phase="Running"), pod(node="n", phase="Pending"))
    assert goes_first(pod(phase="Pending"), pod(phase="Unknown"))
    assert goes_first(pod(phase="Unknown"), pod(phase="Running"))
    assert not goes_first(pod(phase="Pending"), pod(phase="Other")), "unknown phases count as pending"
    assert goes_first(pod(ready=False), pod(ready=True))
    assert goes_first(pod(node="", phase="Pending"), pod(phase="Pending"), ranks=(1, 2))
    assert goes_first(pod(phase="Pending"), pod(phase="Unknown"), ranks=(1, 2))


@pytest.mark.row("R-096", "R-196")
def test_cost_comes_before_rank_unless_the_gate_is_off() -> None:
    cheap, dear = pod(cost="10"), pod(cost="100")
    assert goes_first(cheap, dear, ranks=(1, 2))
    assert not goes_first(cheap, dear, ranks=(1, 2), by_cost=False)
    assert goes_first(pod(cost="-1"), pod())


@pytest.mark.row("R-097")
@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("-007", -7),
        ("-0", 0),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        *((text, 0) for text in ("", "+7", "007", "-", " 7", "7 ", "1_0", "1.5", "٧", "2147483648", "-2147483649")),
    ],
)
def test_the_syntax_of_costs(text: str, cost: int) -> None:
    assert deletion_cost({"controller.kubernetes.io/pod-deletion-cost": text}) == cost


@pytest.mark.row("R-098", "R-195")
def test_a_higher_rank_goes_first_whatever_times_and_restarts_say() -> None:
    assert goes_first(pod(since=NOW), pod(since=None), ranks=(2, 1))
    assert goes_first(pod(since=NOW), pod(since=NOW, restarts=9001), ranks=(2, 1))


@pytest.mark.row("R-099", "R-100", "R-104", "R-197")
def test_ready_ages_compare_by_their_logarithm() -> None:
    assert goes_first(pod(since=None), pod(since=ago(hours=1)))
    assert goes_first(pod(since=ago(hours=2)), pod(since=ago(hours=5)))
    assert not goes_first(pod(uid="x", since=ago(hours=5)), pod(uid="x", since=ago(hours=8)))
    assert not goes_first(pod(uid="x", since=ago(hours=8)), pod(uid="x", since=ago(hours=5)))
    assert goes_first(pod(uid="a", since=ago(hours=8)), pod(uid="b", since=ago(hours=5), restarts=7))
    assert logarithmic_age(NOW, NOW) == -1
    assert logarithmic_age(ago(seconds=-1), NOW) == -1
    assert logarithmic_age(ago(microseconds=1), NOW) == 9
    assert logarithmic_age(ago(seconds=1), NOW) == 29


@pytest.mark.row("R-101")
def test_more_restarts_go_first_regular_before_sidecars() -> None:
    assert goes_first(pod(restarts=2), pod(restarts=1, sidecar_restarts=5))
    assert goes_first(pod(sidecar_restarts=2), pod(sidecar_restarts=1))
    assert not goes_first(pod(), pod())


@pytest.mark.row("R-102", "R-198")
def test_creation_times_decide_last() -> None:
    def pending(uid: str = "p", created: datetime | None = None) -> Pod:
        return pod(uid=uid, created=created, phase="Pending", node="", ready=False)

    assert goes_first(pending(), pending(created=NOW))
    assert goes_first(pending(created=ago(hours=2)), pending(created=ago(hours=5)))
    same_class = [pending(created=ago(hours=age)) for age in (5, 8)]
    assert not goes_first(same_class[0], same_class[1])
    assert not goes_first(same_class[1], same_class[0])


@pytest.mark.row("R-084", "R-192")
def test_a_mix_goes_in_order_and_all_go_as_they_came() -> None:
    unscheduled, pending = pod("u", node="", phase="Pending", ready=False), pod("s", phase="Pending", ready=False)
    running, doubled, ready = pod("r", ready=False), pod("d", since=NOW), pod("k", node="n2", since=NOW)
    pods = [ready, doubled, running, pending, unscheduled]
    related = [doubled, pod("other"), ready]
    for count in range(len(pods)):
        assert pods_to_delete(pods, related, count, NOW) == [unscheduled, pending, running, doubled, ready][:count]
    assert pods_to_delete(pods, related, 5, NOW) == pods
    assert pods_to_delete([], [], 0, NOW) == []


@pytest.mark.row("R-092", "R-193")
def test_the_rank_counts_active_related_pods_on_the_node() -> None:
    one, two = pod("one", node="1", since=NOW), pod("two", node="2", since=NOW)
    ended = [pod(f"ended{n}", node="1", phase="Failed") for n in range(3)]
    related = [pod("a", node="1"), pod("b", node="2"), pod("c", node="2"), *ended]
    assert pods_to_delete([one, two], related, 1, NOW) == [two]


@pytest.mark.row("R-123", "R-124")
def test_the_age_ratio_is_whole_and_never_divides_by_zero() -> None:
    old, young = pod("old", created=ago(seconds=25)), pod("young", created=ago(seconds=10))
    unready = pod("unready", ready=False, created=NOW)
    assert deletion_age_ratios([old, young, unready], [old, young, unready], NOW) == [2, 1]
    assert deletion_age_ratios([pod(created=NOW)], [pod(created=NOW)], NOW) == [0]
    assert deletion_age_ratios([unready], [unready], NOW) == []
