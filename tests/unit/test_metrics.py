"""What a scrape finds."""

import math
import re
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from kcm import KUBERNETES_VERSION
from kcm.api.client import ClientMetrics
from kcm.api.resources import REPLICA_SETS
from kcm.controllers.controller import SyncMetrics
from kcm.controllers.replicaset.replica_set import ReplicaSetMetrics
from kcm.expectations import ControllerExpectations
from kcm.features import FeatureGates
from kcm.informers.metrics import InformerMetrics
from kcm.leaderelection.leader_election import LeaderElectionMetrics
from kcm.metrics import Metrics, format_float, text_format
from kcm.options import MetricsOptions
from kcm.workqueue.queue import Queue, QueueMetrics
from tests.clocks import FakeClock
from tools import metrics_table

Labels = dict[str, str]


def scrape(metrics: Metrics) -> dict[str, list[tuple[Labels, float]]]:
    """All samples by name, read by the library's own parser."""
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def types(metrics: Metrics) -> dict[str, str]:
    """Metric families with their types, as written."""
    lines = metrics.render().decode().splitlines()
    return dict(line.split()[2:4] for line in lines if line.startswith("# TYPE "))


def bounds(metrics: Metrics, name: str) -> list[str]:
    return [labels["le"] for labels, _ in scrape(metrics)[f"{name}_bucket"]]


# The text


@pytest.mark.row("C-152")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1, "1"),
        (-1, "-1"),
        (10.0, "10"),
        (0.001, "0.001"),
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (1e-8, "1e-08"),
        (9.999999999999999e-06, "9.999999999999999e-06"),
        (999999, "999999"),
        (1e6, "1e+06"),
        (1048576, "1.048576e+06"),
        (-1234567.25, "-1.23456725e+06"),
        (123456789012.5, "1.234567890125e+11"),
        (1e16, "1e+16"),
        (1.7e308, "1.7e+308"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_in_go(value: float, text: str) -> None:
    assert format_float(value) == text


@pytest.mark.row("C-151")
def test_labels_and_help_are_escaped_and_no_creation_times_are_shown() -> None:
    registry = CollectorRegistry()
    counter = Counter("odd_total", "a\\b\nc", ["value"], registry=registry)
    counter.labels('a"b\\c\nd').inc()
    Counter("never_seen_total", "without samples", ["value"], registry=registry)
    assert text_format(registry) == (
        '# HELP odd_total a\\\\b\\nc\n# TYPE odd_total counter\nodd_total{value="a\\"b\\\\c\\nd"} 1\n'
    )


def test_registries_are_not_shared_and_python_says_nothing_of_itself() -> None:
    first, second = Metrics(), Metrics()
    first.leader_election.leader_off("kcm")
    assert "leader_election_master_status" not in scrape(second)
    assert not [name for name in types(first) if name.startswith("python_")]


# Whose metrics they are


@pytest.mark.row("M-095", "C-112", "C-152")
def test_a_queue_shows_all_its_metrics_from_the_start() -> None:
    metrics = Metrics()
    queue: QueueMetrics = metrics.workqueue.for_queue("replicaset")
    name = {"name": "replicaset"}
    assert {key: kind for key, kind in types(metrics).items() if key.startswith("workqueue_")} == {
        "workqueue_adds_total": "counter",
        "workqueue_depth": "gauge",
        "workqueue_longest_running_processor_seconds": "gauge",
        "workqueue_queue_duration_seconds": "histogram",
        "workqueue_retries_total": "counter",
        "workqueue_unfinished_work_seconds": "gauge",
        "workqueue_work_duration_seconds": "histogram",
    }
    assert scrape(metrics)["workqueue_adds_total"] == [(name, 0)]
    buckets = [
        "1e-08",
        "1e-07",
        "1e-06",
        "9.999999999999999e-06",
        "9.999999999999999e-05",
        "0.001",
        "0.01",
        "0.1",
        "1",
        "10",
        "+Inf",
    ]
    assert bounds(metrics, "workqueue_queue_duration_seconds") == buckets
    assert bounds(metrics, "workqueue_work_duration_seconds") == buckets
    queue.adds()
    queue.retries()
    queue.depth(3)
    queue.queue_latency(0.5)
    queue.work_duration(2)
    queue.unfinished_work(1.5)
    queue.longest_running(0.75)
    found = scrape(metrics)
    assert found["workqueue_adds_total"] == found["workqueue_retries_total"] == [(name, 1)]
    assert found["workqueue_depth"] == [(name, 3)]
    assert found["workqueue_queue_duration_seconds_sum"] == [(name, 0.5)]
    assert found["workqueue_work_duration_seconds_sum"] == [(name, 2)]
    assert found["workqueue_unfinished_work_seconds"] == [(name, 1.5)]
    assert found["workqueue_longest_running_processor_seconds"] == [(name, 0.75)]


@pytest.mark.row("M-096", "M-097")
async def test_a_queue_counts_adds_and_one_without_a_name_is_not_seen() -> None:
    metrics = Metrics()
    queue = Queue("deployment", metrics=metrics.workqueue.for_queue("deployment"))
    nameless = Queue("", metrics=metrics.workqueue.for_queue("nobody"))
    for key in ("a", "a", "b"):
        queue.add(key)
        nameless.add(key)
    assert await queue.get() == "a"
    queue.add("a")
    found = scrape(metrics)
    assert dict(found["workqueue_adds_total"][0][0]) == {"name": "deployment"}
    assert [value for _, value in found["workqueue_adds_total"]] == [3, 0]
    assert [value for _, value in found["workqueue_depth"]] == [2, 0]


@pytest.mark.row("C-114")
def test_requests_are_counted_by_code_and_timed_by_verb() -> None:
    metrics = Metrics()
    client: ClientMetrics = metrics.rest_client
    host = "10.0.0.1:6443"
    for code, seconds in (("200", 0.25), ("200", 0.5), ("<error>", 30)):
        client.request(verb="GET", host=host, code=code, seconds=seconds)
    client.request(verb="POST", host=host, code="201", seconds=0.001)
    client.throttled(verb="GET", host=host, seconds=0)
    client.throttled(verb="GET", host=host, seconds=2)
    client.retried(verb="GET", host=host, code="429")
    found = scrape(metrics)
    assert found["rest_client_requests_total"] == [
        ({"code": "200", "host": host, "method": "GET"}, 2),
        ({"code": "<error>", "host": host, "method": "GET"}, 1),
        ({"code": "201", "host": host, "method": "POST"}, 1),
    ]
    assert found["rest_client_request_duration_seconds_sum"][0] == ({"host": host, "verb": "GET"}, 30.75)
    buckets = ["0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60", "+Inf"]
    assert bounds(metrics, "rest_client_request_duration_seconds")[:13] == buckets
    assert bounds(metrics, "rest_client_rate_limiter_duration_seconds") == buckets
    assert found["rest_client_rate_limiter_duration_seconds_count"] == [({"host": host, "verb": "GET"}, 2)]
    assert found["rest_client_request_retries_total"] == [({"code": "429", "host": host, "verb": "GET"}, 1)]


@pytest.mark.row("C-113", "M-107")
def test_election_says_whether_it_leads_and_how_old_the_renewal_is() -> None:
    metrics = Metrics()
    election: LeaderElectionMetrics = metrics.leader_election
    name = {"name": "kube-controller-manager"}
    election.leader_off("kube-controller-manager")
    assert scrape(metrics)["leader_election_master_status"] == [(name, 0)]
    ages = iter([1.5, 2.5])
    election.leader_on("kube-controller-manager", lambda: next(ages))
    election.slowpath_exercised("kube-controller-manager")
    election.renewed("kube-controller-manager", 0.125)
    found = scrape(metrics)
    assert found["leader_election_master_status"] == [(name, 1)]
    assert found["leader_election_slowpath_total"] == [(name, 1)]
    assert found["kcm_lease_renewal_duration_seconds_sum"] == [(name, 0.125)]
    assert found["kcm_lease_renewal_age_seconds"] == [(name, 1.5)]
    assert scrape(metrics)["kcm_lease_renewal_age_seconds"] == [(name, 2.5)]
    election.leader_off("kube-controller-manager")
    found = scrape(metrics)
    assert found["leader_election_master_status"] == [(name, 0)]
    assert "kcm_lease_renewal_age_seconds" not in found
    assert found["kcm_fenced_writes_total"] == [({}, 0)]
    election.write_fenced()
    assert scrape(metrics)["kcm_fenced_writes_total"] == [({}, 1)]


def test_controllers_count_failures_skips_and_choices() -> None:
    metrics = Metrics()
    sync: SyncMetrics = metrics.sync
    metrics.replica_set.register()
    replica_set: ReplicaSetMetrics = metrics.replica_set
    sync.sync_failed(controller="deployment", reason="KeyError")
    replica_set.stale_sync_skip(group="apps", resource="replicasets")
    replica_set.sorting_deletion_age_ratio(3)
    found = scrape(metrics)
    assert found["kcm_sync_failures_total"] == [({"controller": "deployment", "reason": "KeyError"}, 1)]
    assert found["replicaset_controller_stale_sync_skips_total"] == [({"group": "apps", "resource": "replicasets"}, 1)]
    assert found["replicaset_controller_sorting_deletion_age_ratio_bucket"] == [
        ({"le": bound}, 0.0 if bound in {"0.25", "0.5", "1", "2"} else 1.0)
        for bound in ("0.25", "0.5", "1", "2", "4", "8", "+Inf")
    ]


@pytest.mark.row("M-106")
def test_an_informer_shows_its_store_its_silence_and_why_it_lists_again() -> None:
    metrics = Metrics()
    informer: InformerMetrics = metrics.informers.for_resource(REPLICA_SETS)
    own = {"group": "apps", "version": "v1", "resource": "replicasets"}
    labels = {"name": "kube-controller-manager", **own}
    assert scrape(metrics)["informer_queued_items"] == [(labels, 0)]
    version = ""
    informer.started(store_version=lambda: version, silence=lambda: 12.5)
    assert scrape(metrics)["informer_store_resource_version"] == [(labels, 0)]
    version = "7123456789012345"
    for reason in ("start", "expired", "expired"):
        informer.snapshot(reason)
    informer.processed(0.002)
    found = scrape(metrics)
    assert found["informer_store_resource_version"] == [(labels, 123456789012345)]
    assert found["kcm_watch_silence_seconds"] == [(own, 12.5)]
    assert found["kcm_informer_snapshots_total"] == [({**own, "reason": "start"}, 1), ({**own, "reason": "expired"}, 2)]
    assert found["informer_processing_latency_seconds_sum"] == [(labels, 0.002)]
    assert bounds(metrics, "informer_processing_latency_seconds") == [
        "0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf",
    ]  # fmt: skip


def test_objects_that_wait_for_long_are_counted() -> None:
    metrics = Metrics()
    clock = FakeClock()
    expectations = ControllerExpectations(clock)
    metrics.expectations.watch("replicaset-controller", expectations.overdue)

    def overdue() -> list[tuple[Labels, float]]:
        return scrape(metrics)["kcm_overdue_expectations"]

    expectations.expect_creations("ns/a", 1)
    clock.seconds += 50
    expectations.expect_deletions("ns/b", ["ns/p"])
    assert overdue() == [({"controller": "replicaset-controller"}, 0)]
    clock.seconds += 11
    assert overdue() == [({"controller": "replicaset-controller"}, 1)]
    expectations.creation_observed("ns/a")
    clock.seconds += 61
    assert overdue() == [({"controller": "replicaset-controller"}, 1)]


def test_the_page_on_metrics_lists_what_there_is() -> None:
    assert metrics_table.PAGE.read_text() == metrics_table.page()


@pytest.mark.row("M-105")
def test_the_sizes_of_bodies_are_shown() -> None:
    metrics = Metrics()
    metrics.rest_client.request(verb="POST", host="h", code="201", seconds=0.1, sent=100, received=5000)
    metrics.rest_client.request(verb="POST", host="h", code="<error>", seconds=0.1, sent=100)
    metrics.rest_client.request(verb="GET", host="h", code="200", seconds=0.1)
    found = scrape(metrics)
    labels = {"verb": "POST", "host": "h"}
    assert found["rest_client_request_size_bytes_count"] == [(labels, 2)]
    assert found["rest_client_response_size_bytes_sum"] == [(labels, 5000)]
    for name in ("request", "response"):
        assert bounds(metrics, f"rest_client_{name}_size_bytes") == [
            "64", "256", "512", "1024", "4096", "16384", "65536", "262144",
            "1.048576e+06", "4.194304e+06", "1.6777216e+07", "+Inf",
        ]  # fmt: skip


def test_each_loop_has_its_lag() -> None:
    metrics = Metrics()
    metrics.loop_lag("controllers")(0.5)
    metrics.loop_lag("control")(0.25)
    assert scrape(metrics)["kcm_event_loop_lag_seconds_sum"] == [
        ({"loop": "controllers"}, 0.5),
        ({"loop": "control"}, 0.25),
    ]


# The process


@pytest.mark.row("C-115")
def test_the_release_is_shown_as_by_the_stock_manager() -> None:
    found = scrape(Metrics())
    [(labels, value)] = found["kubernetes_build_info"]
    assert value == 1
    assert set(labels) == {
        "major",
        "minor",
        "git_version",
        "git_commit",
        "git_tree_state",
        "build_date",
        "go_version",
        "compiler",
        "platform",
    }
    assert (labels["major"], labels["minor"], labels["git_version"]) == ("1", "37", KUBERNETES_VERSION)
    assert found["version_info"] == [
        ({"binary": "1.37.2", "component": "kube", "emulation": "1.37", "min_compat": "1.36"}, 1)
    ]


@pytest.mark.row("C-117")
def test_the_process_shows_its_resources() -> None:
    found = scrape(Metrics())
    for name in (
        "process_start_time_seconds",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
    ):
        [(labels, value)] = found[name]
        assert labels == {}
        assert value > 0


def test_telling_and_scraping_in_two_threads_loses_nothing() -> None:
    metrics = Metrics()
    queue = metrics.workqueue.for_queue("replicaset")
    done = threading.Event()

    def work() -> None:
        for number in range(5000):
            queue.work_duration(0.001)
            metrics.rest_client.request(verb="GET", host=f"h{number % 50}", code="200", seconds=0.001)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        scrape(metrics)
    thread.join()
    found = scrape(metrics)
    assert found["workqueue_work_duration_seconds_count"] == [({"name": "replicaset"}, 5000)]
    assert sum(value for _, value in found["rest_client_requests_total"]) == 5000


@pytest.mark.row("C-116")
def test_feature_gates_are_shown_with_their_stages() -> None:
    metrics = Metrics()
    metrics.feature_gates(FeatureGates({"StatefulSetRecreateStrategy": True}))
    text = metrics.render().decode()
    for line in (
        'kubernetes_feature_enabled{name="StatefulSetRecreateStrategy",stage="ALPHA"} 1',
        'kubernetes_feature_enabled{name="CoordinatedLeaderElection",stage="BETA"} 0',
        'kubernetes_feature_enabled{name="PodDeletionCost",stage="BETA"} 1',
    ):
        assert f"{line}\n" in text
    assert re.search(r'kubernetes_feature_enabled\{name="\w+",stage=""\} 1', text)


@pytest.mark.row("C-033")
def test_metrics_are_left_out_and_values_of_labels_put_together() -> None:
    metrics = Metrics()
    for queue in ("deployment", "replicaset", "statefulset"):
        metrics.workqueue.for_queue(queue).adds()
    allow = {"workqueue_adds_total,name": "deployment", "workqueue_depth,nope": "x"}
    metrics.restrict(MetricsOptions(disabled=("workqueue_retries_total",), allow_labels=allow))
    lines = metrics.render().decode().splitlines()
    assert [line for line in lines if line.startswith("workqueue_adds_total")] == [
        'workqueue_adds_total{name="deployment"} 1',
        'workqueue_adds_total{name="unexpected"} 2',
    ]
    assert not [line for line in lines if "workqueue_retries_total" in line]
    assert [line for line in lines if line.startswith("workqueue_depth")]


@pytest.mark.row("C-119", "C-151")
def test_requests_are_counted_by_kind_of_user() -> None:
    metrics = Metrics()
    for user in ("admin", "jane@example.org", "system:serviceaccount:a:b", None):
        metrics.requests.authenticated(result="success" if user else "error", seconds=0.002, user=user)
    metrics.requests.authorized(result="allowed", seconds=0.002)
    text = metrics.render().decode()
    for line in (
        "# TYPE authentication_attempts counter",
        'authentication_attempts{result="success"} 3',
        'authentication_attempts{result="error"} 1',
        "# TYPE authenticated_user_requests counter",
        'authenticated_user_requests{username="admin"} 1',
        'authenticated_user_requests{username="email_id"} 1',
        'authenticated_user_requests{username="other"} 1',
        'authorization_attempts_total{result="allowed"} 1',
        'authentication_duration_seconds_bucket{result="success",le="0.001"} 0',
        'authentication_duration_seconds_bucket{result="success",le="16.384"} 3',
    ):
        assert f"{line}\n" in text, line
