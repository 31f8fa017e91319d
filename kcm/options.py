"""What a kcm process can be told: a frozen tree that the command line fills and an embedder builds the same way.

Follows cmd/kube-controller-manager/app/options/options.go, controller-manager options/generic.go and app/helper.go. Defaults
are the stock manager's, times are seconds. Nothing here acts: validation and the choice of controllers are pure.

    options = Options(kubeconfig="kubeconfig", generic=GenericOptions(kube_api_qps=100, kube_api_burst=200))
    assert not options.validate()
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kcm import KUBERNETES_VERSION
from kcm.features import FeatureGates
from kcm.gotext import format_duration, quote

#: The controllers that kcm has.
IMPLEMENTED_CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
)

# Canonical names without their common suffix -controller, each with its alias or "" (names/controller_names.go, app/*.go).
_CONTROLLERS: Final = {
    "bootstrap-signer": "bootstrapsigner",
    "certificatesigningrequest-approving": "csrapproving",
    "certificatesigningrequest-cleaner": "csrcleaner",
    "certificatesigningrequest-signing": "csrsigning",
    "clusterrole-aggregation": "clusterrole-aggregation",
    "cronjob": "cronjob",
    "daemonset": "daemonset",
    "deployment": "deployment",
    "device-taint-eviction": "",
    "disruption": "disruption",
    "endpoints": "endpoint",
    "endpointslice": "endpointslice",
    "endpointslice-mirroring": "endpointslicemirroring",
    "ephemeral-volume": "ephemeral-volume",
    "garbage-collector": "garbagecollector",
    "horizontal-pod-autoscaler": "horizontalpodautoscaling",
    "job": "job",
    "kube-apiserver-serving-clustertrustbundle-publisher": "",
    "legacy-serviceaccount-token-cleaner": "legacy-service-account-token-cleaner",
    "namespace": "namespace",
    "node-ipam": "nodeipam",
    "node-lifecycle": "nodelifecycle",
    "persistentvolume-attach-detach": "attachdetach",
    "persistentvolume-binder": "persistentvolume-binder",
    "persistentvolume-expander": "persistentvolume-expander",
    "persistentvolume-protection": "pv-protection",
    "persistentvolumeclaim-protection": "pvc-protection",
    "pod-garbage-collector": "podgc",
    "podcertificaterequest-cleaner": "",
    "podgroup-protection": "",
    "replicaset": "replicaset",
    "replicationcontroller": "replicationcontroller",
    "resourceclaim": "resource-claim-controller",
    "resourcepoolstatusrequest": "",
    "resourcequota": "resourcequota",
    "root-ca-certificate-publisher": "root-ca-cert-publisher",
    "selinux-warning": "",
    "service-cidr": "",
    "serviceaccount": "serviceaccount",
    "serviceaccount-token": "serviceaccount-token",
    "statefulset": "statefulset",
    "storage-version-migrator": "svm",
    "storageversion-garbage-collector": "storage-version-gc",
    "taint-eviction": "",
    "token-cleaner": "tokencleaner",
    "ttl": "ttl",
    "ttl-after-finished": "ttl-after-finished",
    "validatingadmissionpolicy-status": "",
    "volumeattributesclass-protection": "",
}

#: Canonical names of all controllers of the stock manager, in alphabetical order.
KNOWN_CONTROLLERS: Final = tuple(sorted(f"{name}-controller" for name in _CONTROLLERS))
#: Short names of old, each with the canonical name that it stands for.
CONTROLLER_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {alias: f"{name}-controller" for name, alias in _CONTROLLERS.items() if alias}
)
#: Controllers that `*` leaves out.
DISABLED_BY_DEFAULT: Final = frozenset(
    {"bootstrap-signer-controller", "selinux-warning-controller", "token-cleaner-controller"}
)

# client-go's leaderelection.JitterFactor: a retry waits up to this many times the retry period.
_JITTER_FACTOR: Final = 1.2


def resolve_aliases(controllers: Iterable[str]) -> tuple[str, ...]:
    """The items of --controllers with canonical names in place of aliases; a leading minus is kept."""
    names = ((item.startswith("-"), item.removeprefix("-")) for item in controllers)
    return tuple(("-" if minus else "") + CONTROLLER_ALIASES.get(name, name) for minus, name in names)


def is_controller_enabled(name: str, disabled_by_default: Collection[str], controllers: Sequence[str]) -> bool:
    """Whether the items of --controllers, without aliases, switch a controller on.

    The first item that names it decides; if none does, `*` enables whatever is not disabled by default.
    """
    for item in controllers:
        if item == name:
            return True
        if item == f"-{name}":
            return False
    return "*" in controllers and name not in disabled_by_default


@dataclass(frozen=True, kw_only=True)
class GenericOptions:
    """What concerns all controllers."""

    min_resync_period: float = 12 * 3600.0
    """Informers go over all of their objects again after between this and twice this many seconds."""
    kube_api_qps: float = 20.0
    """Requests per second that a client may make in the long run."""
    kube_api_burst: int = 30
    """Requests that a client may make at once after a pause."""
    kube_api_content_type: str = "application/vnd.kubernetes.protobuf"
    controller_start_interval: float = 0.0
    """Each controller starts after between this and twice this many seconds."""
    controller_shutdown_timeout: float = 10.0
    """How long a stop waits for the controllers; 0 waits without limit."""
    controllers: tuple[str, ...] = ("*",)
    """Items `*`, `name` or `-name`; names may be aliases."""
    use_service_account_credentials: bool = False
    """Whether each controller speaks as its own service account in kube-system."""

    def is_enabled(self, name: str) -> bool:
        """Whether the controller of this canonical name is to run."""
        return is_controller_enabled(name, DISABLED_BY_DEFAULT, resolve_aliases(self.controllers))

    def enabled_controllers(self) -> tuple[str, ...]:
        """Canonical names of all controllers that the stock manager would run, in alphabetical order."""
        return tuple(name for name in KNOWN_CONTROLLERS if self.is_enabled(name))

    def missing_controllers(self, implemented: Collection[str] = IMPLEMENTED_CONTROLLERS) -> tuple[str, ...]:
        """Enabled controllers that kcm does not have, and that nobody runs while kcm holds the stock Lease."""
        return tuple(name for name in self.enabled_controllers() if name not in implemented)

    def validate(self, implemented: Collection[str] = IMPLEMENTED_CONTROLLERS) -> list[str]:
        """Unknown names, and a choice of which kcm has none."""
        names = [item.removeprefix("-") for item in self.controllers if item != "*"]
        unknown = [name for name in names if CONTROLLER_ALIASES.get(name, name) not in KNOWN_CONTROLLERS]
        if unknown:
            return [f"{quote(name)} is not in the list of known controllers" for name in unknown]
        enabled = self.enabled_controllers()
        if "*" not in self.controllers and enabled and not set(enabled) & set(implemented):
            return [f"none of {', '.join(enabled)} is in kcm, which has {', '.join(implemented)}"]
        return []


@dataclass(frozen=True, kw_only=True)
class LeaderElectionOptions:
    """Who may act. Times as in client-go's LeaderElectionConfig."""

    leader_elect: bool = True
    lease_duration: float = 15.0
    """Seconds for which the others take an unrenewed Lease for held."""
    renew_deadline: float = 10.0
    """Seconds for which the leader tries to renew before it gives up."""
    retry_period: float = 2.0
    """Seconds between two attempts to take or to renew the Lease."""
    resource_lock: str = "leases"
    resource_name: str = "kube-controller-manager"
    resource_namespace: str = "kube-system"

    def validate(self) -> list[str]:
        """A lock of another kind, and times that let two leaders act at once; nothing without election."""
        if not self.leader_elect:
            return []
        rules = (
            (self.resource_lock == "leases", 'resourceLock value must be "leases"'),
            (self.lease_duration > self.renew_deadline, "leaseDuration must be greater than renewDeadline"),
            (
                self.renew_deadline > _JITTER_FACTOR * self.retry_period,
                "renewDeadline must be greater than retryPeriod*JitterFactor",
            ),
            (self.lease_duration > 0, "leaseDuration must be greater than zero"),
            (self.renew_deadline > 0, "renewDeadline must be greater than zero"),
            (self.retry_period > 0, "retryPeriod must be greater than zero"),
        )
        return [message for holds, message in rules if not holds]


@dataclass(frozen=True, kw_only=True)
class SecureServingOptions:
    """Where /healthz and /metrics are served."""

    bind_address: str = "0.0.0.0"  # noqa: S104 - the stock default: all interfaces
    secure_port: int = 10257
    """0 serves nothing."""
    cert_dir: str = ""
    """Where a self-signed certificate is kept; without it one is made in memory at each start."""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_min_version: str = ""
    """Go's name of the lowest TLS version to speak, such as VersionTLS13; 1.2 if empty."""
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names of the suites to offer below TLS 1.3; without any, OpenSSL's choice."""

    def validate(self) -> list[str]:
        """A port that there cannot be."""
        if self.secure_port > 65535:
            return [
                f"--secure-port {self.secure_port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            ]
        if self.secure_port < 0:
            return [
                f"--secure-port {self.secure_port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
            ]
        return []


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How many objects each controller works on at once; one that may have 0 or less then works on none."""

    concurrent_deployment_syncs: int = 5
    concurrent_replicaset_syncs: int = 5
    concurrent_rc_syncs: int = 5
    concurrent_statefulset_syncs: int = 5

    def validate(self) -> list[str]:
        """No worker for StatefulSets, the one controller that the reference checks."""
        if self.concurrent_statefulset_syncs < 1:
            return [f"concurrent-statefulset-syncs must be greater than 0, but got {self.concurrent_statefulset_syncs}"]
        return []


@dataclass(frozen=True, kw_only=True)
class LoggingOptions:
    """What is logged, and how. Follows component-base logs/api/v1/options.go."""

    format: str = "text"
    """`text` for klog's lines, `json` for JSON lines."""
    verbosity: int = 0
    vmodule: tuple[tuple[str, int], ...] = ()
    """Patterns of module names with the verbosity that they raise it to; see `kcm.logs.configure`."""
    flush_frequency: float = 5.0
    """Seconds; without effect, since every line is written at once."""

    def validate(self) -> list[str]:
        """An unknown format, and what JSON cannot do."""
        rules = (
            (
                self.flush_frequency > 0,
                f"flushFrequency: Invalid value: {quote(format_duration(self.flush_frequency))}: Must be greater than zero",
            ),
            (self.format in {"text", "json"}, f"format: Invalid value: {quote(self.format)}: Unsupported log format"),
            (not self.vmodule or self.format == "text", "vmodule: Forbidden: Only supported for text log format"),
        )
        return [message for holds, message in rules if not holds]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that a kcm process can be told."""

    generic: GenericOptions = field(default_factory=GenericOptions)
    leader_election: LeaderElectionOptions = field(default_factory=LeaderElectionOptions)
    serving: SecureServingOptions = field(default_factory=SecureServingOptions)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    logging: LoggingOptions = field(default_factory=LoggingOptions)
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    kubeconfig: str = ""
    """File with the API server's address and credentials; without it and `master`, those of the pod that kcm runs in."""
    master: str = ""
    """The API server's URL, which wins over the one in `kubeconfig`."""
    version: str = KUBERNETES_VERSION
    """The release that kcm reports to be."""

    def validate(self, implemented: Collection[str] = IMPLEMENTED_CONTROLLERS) -> list[str]:
        """Everything that is wrong, in words, in the reference's order; `kcm.features.aggregate` makes one text of it.

        Args:
            implemented: Canonical names of the controllers that there are.
        """
        return [
            *self.logging.validate(),
            *self.feature_gates.validate(),
            *self.leader_election.validate(),
            *self.generic.validate(implemented),
            *self.workers.validate(),
            *self.serving.validate(),
        ]
