"""The names of controllers, and which of them a selection means.

Follows cmd/kube-controller-manager/names/controller_names.go and controller-manager app/helper.go.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

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
