"""What kcm counts and measures, with the names of the reference. Follows component-base metrics/prometheus/*.

The only module that knows Prometheus: each library defines a small protocol for what it wants to tell, and the classes here
fit those protocols. Nothing is global; each `Metrics` has a registry of its own.

Telling is cheap (well under a microsecond for each value) and allowed in any thread, as is `Metrics.render`.
"""

import math
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kcm import KUBERNETES_VERSION, __version__
from kcm.api.resources import Resource
from kcm.features import FeatureGates
from kcm.options import MetricsOptions

#: What `Metrics.render` produces.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_SIZE_BUCKETS = (64, 256, 512, *(1024 * 4**power for power in range(8)))
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_NAMED_USERS = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})
_HANDLER_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """All metrics of one process, ready to be handed to the parts that fill them."""

    def __init__(self) -> None:
        #: What there is to show.
        self.registry = CollectorRegistry()
        self._disabled: Collection[str] = ()
        self._allowed: Mapping[tuple[str, str], Collection[str]] = {}
        self.rest_client = RestClientMetrics(self.registry)
        self.leader_election = LeaderElectionMetrics(self.registry)
        self.workqueue = WorkqueueMetrics(self.registry)
        self.informers = InformerMetrics(self.registry)
        self.sync = SyncMetrics(self.registry)
        self.expectations = ExpectationMetrics(self.registry)
        self.replica_set = ReplicaSetMetrics(self.registry)
        self.stateful_set = StatefulSetMetrics(self.registry)
        self._loop_lag = Histogram(
            "kcm_event_loop_lag_seconds",
            "How much later than asked for an event loop woke up.",
            ["loop"],
            buckets=_LAG_BUCKETS,
            registry=self.registry,
        )
        self._running = Gauge(
            "running_managed_controllers",
            "Whether a controller runs in this manager.",
            ["name", "manager"],
            registry=self.registry,
        )
        self.requests = RequestMetrics(self.registry)
        self.health = HealthMetrics()
        ProcessCollector(registry=self.registry)
        _register_build_info(self.registry)

    def loop_lag(self, loop: str) -> Callable[[float], None]:
        """Where to tell the lag of an event loop, in seconds; `loop` is its name."""
        return self._loop_lag.labels(loop).observe

    def render(self) -> bytes:
        """The present values in Prometheus' text format 0.0.4."""
        return text_format(self.registry, disabled=self._disabled, allowed=self._allowed).encode()

    def controller_started(self, name: str) -> None:
        """A controller begins to work."""
        self._running.labels(name, "kube-controller-manager").set(1)

    def feature_gates(self, gates: FeatureGates) -> None:
        """Show which feature gates are on."""
        enabled = Gauge(
            "kubernetes_feature_enabled",
            "Whether a feature gate is on, and how mature it is.",
            ["name", "stage"],
            registry=self.registry,
        )
        for name, gate in gates.known.items():
            if gate.stage != "PRE-ALPHA":
                enabled.labels(name, "" if gate.stage == "GA" else gate.stage).set(gates.enabled(name))

    def restrict(self, options: MetricsOptions) -> None:
        """Leave metrics out, and put `unexpected` for values of labels that are not allowed."""
        self._disabled = frozenset(options.disabled)
        self._allowed = options.allowed_values()


class BareCounter(Counter):
    """A counter whose name has no `_total`, as two of the reference's have none."""

    def _child_samples(self) -> Iterable[Sample]:
        return [sample._replace(name="") for sample in super()._child_samples() if sample.name == "_total"]


class RequestMetrics:
    """Fits `kcm.serving.secure_serving.RequestMetrics`. Follows apiserver pkg/endpoints/filters/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        buckets = _exponential_buckets(0.001, 2, 15)
        self._users = BareCounter(
            "authenticated_user_requests", "Requests by kind of user.", ["username"], registry=registry
        )
        self._attempts = BareCounter(
            "authentication_attempts", "Requests by whether it was found out who asks.", ["result"], registry=registry
        )
        self._attempt_seconds = Histogram(
            "authentication_duration_seconds",
            "How long it took to find out who asks.",
            ["result"],
            buckets=buckets,
            registry=registry,
        )
        self._decisions = Counter(
            "authorization_attempts_total", "Requests by whether they are allowed.", ["result"], registry=registry
        )
        self._decision_seconds = Histogram(
            "authorization_duration_seconds",
            "How long it took to find out whether a request is allowed.",
            ["result"],
            buckets=buckets,
            registry=registry,
        )

    def authenticated(self, *, result: str, seconds: float, user: str | None) -> None:
        """Somebody asks; `user` is the name, if that was found out. Names are put together, or there were too many."""
        self._attempts.labels(result).inc()
        self._attempt_seconds.labels(result).observe(seconds)
        if user is not None:
            self._users.labels(user if user in _NAMED_USERS else "email_id" if "@" in user else "other").inc()

    def authorized(self, *, result: str, seconds: float) -> None:
        """Whether that is allowed was looked at."""
        self._decisions.labels(result).inc()
        self._decision_seconds.labels(result).observe(seconds)


class HealthMetrics:
    """What /metrics/slis shows; fits `kcm.serving.healthz.HealthMetrics`. Follows component-base metrics/prometheus/slis."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._last = Gauge(
            "kubernetes_healthcheck", "The last result of a health check.", ["name", "type"], registry=self._registry
        )
        self._results = Counter(
            "kubernetes_healthchecks_total",
            "Results of all health checks.",
            ["name", "type", "status"],
            registry=self._registry,
        )
        self._start = Gauge("process_start_time_seconds", "When the process started.", registry=self._registry)
        own = CollectorRegistry()
        ProcessCollector(registry=own)
        self._start.set(own.get_sample_value("process_start_time_seconds") or 0)

    def checked(self, *, name: str, type: str, ok: bool) -> None:  # noqa: A002 - the label's name
        """A check was made."""
        self._last.labels(name, type).set(ok)
        self._results.labels(name, type, "success" if ok else "error").inc()

    def reset(self) -> None:
        """Forget all results."""
        self._last.clear()
        self._results.clear()

    def render(self) -> bytes:
        """The present values in Prometheus' text format 0.0.4."""
        return text_format(self._registry).encode()


class RestClientMetrics:
    """Fits `kcm.api.client.ClientMetrics`. Follows restclient/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._results = Counter(
            "rest_client_requests_total",
            "HTTP requests sent, by status code or <error>, method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._latency = Histogram(
            "rest_client_request_duration_seconds",
            "Time from sending a request to its whole answer, or to the beginning of a watch.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._waits = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "How long the client's own rate limit made requests wait.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._retries = Counter(
            "rest_client_request_retries_total",
            "Requests sent again, by the status code or <error> of the try before.",
            ["code", "verb", "host"],
            registry=registry,
        )
        self._sent = Histogram(
            "rest_client_request_size_bytes",
            "Sizes of the bodies sent.",
            ["verb", "host"],
            buckets=_SIZE_BUCKETS,
            registry=registry,
        )
        self._received = Histogram(
            "rest_client_response_size_bytes",
            "Sizes of the bodies received, watches and lists that are read as they arrive left out.",
            ["verb", "host"],
            buckets=_SIZE_BUCKETS,
            registry=registry,
        )
        # labels() costs more than the rest together.
        self._request_children: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._size_children: dict[tuple[str, str], tuple[Histogram, Histogram]] = {}
        self._wait_children: dict[tuple[str, str], Histogram] = {}

    def request(
        self, *, verb: str, host: str, code: str, seconds: float, sent: int | None = None, received: int | None = None
    ) -> None:
        """One try was answered, or failed."""
        children = self._request_children.get((verb, host, code))
        if children is None:
            children = self._results.labels(code, verb, host), self._latency.labels(verb, host)
            self._request_children[verb, host, code] = children
        children[0].inc()
        children[1].observe(seconds)
        if sent is not None:
            sizes = self._size_children.get((verb, host))
            if sizes is None:
                sizes = self._sent.labels(verb, host), self._received.labels(verb, host)
                self._size_children[verb, host] = sizes
            sizes[0].observe(sent)
            if received is not None:
                sizes[1].observe(received)

    def throttled(self, *, verb: str, host: str, seconds: float) -> None:
        """A request waited for the bucket, perhaps for no time."""
        child = self._wait_children.get((verb, host))
        if child is None:
            child = self._wait_children[verb, host] = self._waits.labels(verb, host)
        child.observe(seconds)

    def retried(self, *, verb: str, host: str, code: str) -> None:
        """A request is sent again."""
        self._retries.labels(code, verb, host).inc()


class LeaderElectionMetrics:
    """Fits `kcm.leaderelection.leader_election.LeaderElectionMetrics`. Follows clientgo/leaderelection/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status = Gauge(
            "leader_election_master_status",
            "Whether this process leads: 1, or is a candidate: 0. The name is the Lease's.",
            ["name"],
            registry=registry,
        )
        self._slowpath = Counter(
            "leader_election_slowpath_total",
            "Renewals that had to read the Lease before writing it.",
            ["name"],
            registry=registry,
        )
        self._renewals = Histogram(
            "kcm_lease_renewal_duration_seconds",
            "How long successful renewals of the Lease took.",
            ["name"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._age = Gauge(
            "kcm_lease_renewal_age_seconds",
            "Time since the last successful renewal began; absent while not leading. Writes stop at the renew deadline.",
            ["name"],
            registry=registry,
        )
        self._fenced = Counter(
            "kcm_fenced_writes_total",
            "Writes that were not sent because the Lease was no longer surely held.",
            registry=registry,
        )

    def leader_on(self, name: str, renewal_age: Callable[[], float]) -> None:
        """Leading begins."""
        self._status.labels(name).set(1)
        self._age.labels(name).set_function(renewal_age)

    def leader_off(self, name: str) -> None:
        """Not leading, or no longer."""
        self._status.labels(name).set(0)
        self._slowpath.labels(name)
        self._age.remove(name)

    def slowpath_exercised(self, name: str) -> None:
        """A renewal had to read the Lease first."""
        self._slowpath.labels(name).inc()

    def renewed(self, name: str, seconds: float) -> None:
        """A renewal succeeded."""
        self._renewals.labels(name).observe(seconds)

    def write_fenced(self) -> None:
        """The fence forbade a write."""
        self._fenced.inc()


class WorkqueueMetrics:
    """The metrics of all queues. Follows workqueue/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"workqueue_{name}", text, ["name"], registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"workqueue_{name}", text, ["name"], registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            buckets = _exponential_buckets(10e-9, 10, 10)
            return Histogram(f"workqueue_{name}", text, ["name"], buckets=buckets, registry=registry)

        self.depth = gauge("depth", "Keys that wait for a worker.")
        self.adds = counter("adds_total", "Keys added that were not waiting already.")
        self.latency = histogram("queue_duration_seconds", "How long keys waited before a worker took them.")
        self.work_duration = histogram("work_duration_seconds", "How long workers held a key.")
        self.unfinished = gauge(
            "unfinished_work_seconds",
            "How long workers have held their present keys, in sum; grows by the number of stuck workers each second.",
        )
        self.longest_running = gauge(
            "longest_running_processor_seconds", "How long the slowest worker has held its present key."
        )
        self.retries = counter("retries_total", "Keys added with a delay.")

    def for_queue(self, name: str) -> "QueueMetrics":
        """The metrics of one queue, all present from now on."""
        return QueueMetrics(self, name)


class QueueMetrics:
    """Fits `kcm.workqueue.queue.QueueMetrics`."""

    def __init__(self, metrics: WorkqueueMetrics, name: str) -> None:
        self._depth = metrics.depth.labels(name)
        self._adds = metrics.adds.labels(name)
        self._latency = metrics.latency.labels(name)
        self._work_duration = metrics.work_duration.labels(name)
        self._unfinished = metrics.unfinished.labels(name)
        self._longest_running = metrics.longest_running.labels(name)
        self._retries = metrics.retries.labels(name)

    def adds(self) -> None:
        """A key was added that was not waiting yet."""
        self._adds.inc()

    def depth(self, count: int) -> None:
        """This many keys wait."""
        self._depth.set(count)

    def queue_latency(self, seconds: float) -> None:
        """A key was handed out this long after it was added."""
        self._latency.observe(seconds)

    def work_duration(self, seconds: float) -> None:
        """A worker was done with a key after this long."""
        self._work_duration.observe(seconds)

    def unfinished_work(self, seconds: float) -> None:
        """Workers have held their keys for this long in sum."""
        self._unfinished.set(seconds)

    def longest_running(self, seconds: float) -> None:
        """A worker has held a key for this long."""
        self._longest_running.set(seconds)

    def retries(self) -> None:
        """A key was added with a delay."""
        self._retries.inc()


class InformerMetrics:
    """The metrics of all informers. Follows clientgo/fifo/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        own = ["group", "version", "resource"]
        labels = ["name", *own]
        self.queued = Gauge(
            "informer_queued_items",
            "Changes that wait between the watch and the store: none ever do.",
            labels,
            registry=registry,
        )
        self.latency = Histogram(
            "informer_processing_latency_seconds",
            "How long it took to store a change and to tell all handlers of it.",
            labels,
            buckets=_HANDLER_BUCKETS,
            registry=registry,
        )
        self.store_version = Gauge(
            "informer_store_resource_version",
            "The last 15 digits of the resource version of the store.",
            labels,
            registry=registry,
        )
        self.silence = Gauge(
            "kcm_watch_silence_seconds",
            "Time since the server last sent anything about a resource; a bookmark is due about once a minute.",
            own,
            registry=registry,
        )
        self.snapshots = Counter(
            "kcm_informer_snapshots_total",
            "Lists of all objects that were begun, by what ended the watches before.",
            [*own, "reason"],
            registry=registry,
        )

    def for_resource(self, resource: Resource[Any]) -> "ResourceMetrics":
        """The metrics of one resource's informer."""
        return ResourceMetrics(self, resource)


class ResourceMetrics:
    """Fits `kcm.informers.metrics.InformerMetrics`."""

    def __init__(self, metrics: InformerMetrics, resource: Resource[Any]) -> None:
        own = resource.group, resource.version, resource.plural
        labels = "kube-controller-manager", *own
        self._latency = metrics.latency.labels(*labels)
        self._store_version = metrics.store_version.labels(*labels)
        self._silence = metrics.silence.labels(*own)
        self._snapshots = metrics.snapshots
        self._own = own
        metrics.queued.labels(*labels).set(0)

    def started(self, *, store_version: Callable[[], str], silence: Callable[[], float]) -> None:
        """The informer runs."""
        self._store_version.set_function(lambda: float(store_version()[-15:] or 0))
        self._silence.set_function(silence)

    def snapshot(self, reason: str) -> None:
        """It begins a snapshot."""
        self._snapshots.labels(*self._own, reason).inc()

    def processed(self, seconds: float) -> None:
        """All handlers have heard of a change."""
        self._latency.observe(seconds)


class ExpectationMetrics:
    """How many objects wait for pods that should long have been seen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._overdue = Gauge(
            "kcm_overdue_expectations",
            "Objects whose controller has waited for more than a minute to see what it created or deleted.",
            ["controller"],
            registry=registry,
        )

    def watch(self, controller: str, overdue: Callable[[float], int]) -> None:
        """Show a controller; `overdue` counts those of its objects that have waited for longer than so many seconds."""
        self._overdue.labels(controller).set_function(lambda: overdue(60.0))


class SyncMetrics:
    """Fits `kcm.controllers.controller.SyncMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._failures = Counter(
            "kcm_sync_failures_total",
            "Syncs that raised, by controller and class of the exception.",
            ["controller", "reason"],
            registry=registry,
        )

    def sync_failed(self, *, controller: str, reason: str) -> None:
        """A sync raised."""
        self._failures.labels(controller, reason).inc()


class ReplicaSetMetrics:
    """Fits `kcm.controllers.replicaset.replica_set.ReplicaSetMetrics`. Follows pkg/controller/replicaset/metrics/metrics.go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._age_ratio = Histogram(
            "replicaset_controller_sorting_deletion_age_ratio",
            "How many times as old as the youngest ready pod the ready pods were that a scale-down chose.",
            buckets=_exponential_buckets(0.25, 2, 6),
            registry=None,
        )
        self._stale_syncs = Counter(
            "replicaset_controller_stale_sync_skips_total",
            "Syncs put off because a cache was older than an own write.",
            ["group", "resource"],
            registry=None,
        )

    def register(self) -> None:
        """Show them from now on; the controller of ReplicationControllers fills them as well, but does not."""
        self._registry.register(self._age_ratio)
        self._registry.register(self._stale_syncs)

    def sorting_deletion_age_ratio(self, ratio: float) -> None:
        """A pod was chosen for deletion that is this many times as old as the youngest."""
        self._age_ratio.observe(ratio)

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """A sync was refused because a cache was older than an own write."""
        self._stale_syncs.labels(group, resource).inc()


class StatefulSetMetrics:
    """Fits `kcm.controllers.statefulset.stateful_set_control.StatefulSetMetrics`.

    Follows pkg/controller/statefulset/metrics/metrics.go. As there, the series of a deleted StatefulSet stay.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        labels = ["statefulset_namespace", "statefulset_name", "pod_management_policy"]
        self._max_unavailable = Gauge(
            "statefulset_controller_statefulset_max_unavailable",
            "How many pods may be unavailable during a rolling update.",
            labels,
            registry=None,
        )
        self._unavailable = Gauge(
            "statefulset_controller_statefulset_unavailable_replicas",
            "How many slots had no available pod when a rolling update was last to go on.",
            labels,
            registry=None,
        )
        self._stale_syncs = Counter(
            "statefulset_controller_stale_sync_skips_total",
            "Syncs put off because a cache was older than an own write.",
            ["group", "resource"],
            registry=None,
        )

    def register(self) -> None:
        """Show them from now on."""
        for collector in (self._max_unavailable, self._unavailable, self._stale_syncs):
            self._registry.register(collector)

    def max_unavailable(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """So many pods of a StatefulSet may be unavailable in a rolling update."""
        self._max_unavailable.labels(namespace, name, pod_management_policy).set(pods)

    def unavailable_replicas(self, *, namespace: str, name: str, pod_management_policy: str, pods: int) -> None:
        """So many slots of a StatefulSet had no available pod when a rolling update was to go on."""
        self._unavailable.labels(namespace, name, pod_management_policy).set(pods)

    def stale_sync_skip(self, *, group: str, resource: str) -> None:
        """A sync was refused because a cache was older than an own write."""
        self._stale_syncs.labels(group, resource).inc()


def _register_build_info(registry: CollectorRegistry) -> None:
    """Say which Kubernetes release this process stands for, as its components do, and what it really is."""
    release = KUBERNETES_VERSION.removeprefix("v")
    major, minor, _ = release.split(".", 2)
    kubernetes = {
        "major": major,
        "minor": minor,
        "git_version": KUBERNETES_VERSION,
        "git_commit": "",
        "git_tree_state": "",
        "build_date": "",
        "go_version": "",
        "compiler": platform.python_implementation(),
        "platform": f"{sys.platform}/{_GO_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }
    compatibility = {
        "binary": release,
        "component": "kube",
        "emulation": f"{major}.{minor}",
        "min_compat": f"{major}.{int(minor) - 1}",
    }
    own = {"version": __version__, "python_version": platform.python_version()}
    for name, text, labels in (
        ("kubernetes_build_info", "The Kubernetes release whose behaviour this process has.", kubernetes),
        ("version_info", "The Kubernetes release as this process behaves towards others.", compatibility),
        ("kcm_build_info", "The version of kcm and of the Python that runs it.", own),
    ):
        Gauge(name, text, list(labels), registry=registry).labels(**labels).set(1)


def _exponential_buckets(start: float, factor: float, count: int) -> list[float]:
    """Bounds as prometheus.ExponentialBuckets makes them: by repeated multiplication, so with its rounding errors."""
    buckets = [start]
    for _ in range(count - 1):
        buckets.append(buckets[-1] * factor)
    return buckets


def text_format(
    collector: Collector,
    *,
    disabled: Collection[str] = (),
    allowed: Mapping[tuple[str, str], Collection[str]] | None = None,
) -> str:
    """Write text format 0.0.4 as Go's expfmt does.

    prometheus_client's own writer differs in what dashboards match as text (`le="10.0"`) and adds `_created` series.

    Args:
        collector: What to write.
        disabled: Names of metrics to leave out.
        allowed: By metric and label the only values to write; series with other values are added up as `unexpected`.
    """
    lines: list[str] = []
    for family in sorted(collector.collect(), key=lambda family: family.name):
        samples = [sample for sample in family.samples if sample.name != f"{family.name}_created"]
        if not samples:
            continue
        name = samples[0].name if family.type == "counter" else family.name
        if name in disabled:
            continue
        restricted = {label: values for (metric, label), values in (allowed or {}).items() if metric == name}
        if restricted:
            samples = _restrict(samples, restricted, add=family.type != "gauge")
        text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {family.type}\n")
        lines.extend(f"{sample.name}{_labels(sample)} {format_float(sample.value)}\n" for sample in samples)
    return "".join(lines)


def _restrict(samples: Iterable[Sample], allowed: Mapping[str, Collection[str]], *, add: bool) -> list[Sample]:
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        labels = {
            label: value if value in allowed.get(label, (value,)) else "unexpected"
            for label, value in sample.labels.items()
        }
        key = sample.name, tuple(sorted(labels.items()))
        value = sample.value + (merged[key].value if add and key in merged else 0)
        merged[key] = sample._replace(labels=labels, value=value)
    return list(merged.values())


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    labels = dict(sorted(sample.labels.items()))
    if "le" in labels:
        labels["le"] = format_float(float(labels.pop("le")))
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def format_float(value: float) -> str:
    """A number as Go's strconv.FormatFloat(value, 'g', -1, 64) prints it: 10, 0.001, 1e-08, 1e+06, +Inf."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, text = "-" if value < 0 else "", repr(abs(float(value)))
    if abs(value) < 1e6 or "e" in text:
        return sign + text.removesuffix(".0")
    # Here Go writes an exponent, and Python does not yet.
    digits = text.replace(".", "").rstrip("0")
    mantissa = digits[0] + (f".{digits[1:]}" if digits[1:] else "")
    return f"{sign}{mantissa}e+{text.index('.') - 1:02d}"
