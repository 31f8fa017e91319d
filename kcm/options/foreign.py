"""Flags of controllers that kcm does not have: they are read and checked as the stock manager does, and change nothing.

Follows cmd/kube-controller-manager/app/options/*controller.go, cloud-provider options/kubecloudshared.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kcm.gotext import quote

_POSITIVE: Final = {
    "concurrent-daemonset-syncs": "must be greater than 0, but got",
    "concurrent-device-taint-eviction-syncs": "must be greater than zero, got",
    "concurrent-resourceclaim-syncs": "must be larger than 0, got",
    "concurrent-ephemeralvolume-syncs": "must be greater than 0, but got",
    "concurrent-horizontal-pod-autoscaler-syncs": "must be greater than 0, but got",
    "concurrent-job-syncs": "must be greater than 0, but got",
    "concurrent-cron-job-syncs": "must be greater than 0, but got",
}
_RANGES: Final = {
    "concurrent-service-endpoint-syncs": (1, 50),
    "max-endpoints-per-slice": (1, 1000),
    "mirroring-concurrent-service-endpoint-syncs": (1, 50),
    "mirroring-max-endpoints-per-subset": (1, 1000),
}
# Pairs of files by the beginning of their flags' names, with the name that the reference calls each by.
_SIGNERS: Final = {
    "kubelet-serving": "cluster-signing-kubelet-serving",
    "kubelet-client": "cluster-signing-kube-apiserver-client",
    "kube-apiserver-client": "cluster-signing-kube-apiserver",
    "legacy-unknown": "cluster-signing-legacy-unknown",
}


@dataclass(frozen=True, kw_only=True)
class ForeignOptions:
    """Values of flags without effect."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """By the flag's name, those that are not the default."""

    def validate(self) -> list[str]:
        """What the stock manager would refuse."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        values = self.values
        if values.get("attach-detach-reconcile-sync-period", 60.0) < 1.0:
            yield (
                "duration time must be greater than one second as set via command line option reconcile-sync-loop-period"
            )
        yield from self._signing_problems()
        for name, rule in _POSITIVE.items():
            if values.get(name, 1) < 1:
                yield f"{name} {rule} {values[name]}"
        for name, (least, most) in _RANGES.items():
            value = values.get(name, least)
            if value < least:
                yield f"{name} must not be less than {least}, but got {value}"
            elif value > most:
                yield f"{name} must not be more than {most}, but got {value}"
        if values.get("service-cluster-ip-range", "").count(",") > 1:
            yield "--service-cluster-ip-range can not contain more than two entries"
        if (provider := values.get("cloud-provider", "")) not in {"", "external"}:
            yield (
                f"cloud provider {quote(provider)} was specified, but built-in cloud providers are disabled. Please set "
                "--cloud-provider=external and migrate to an external cloud provider"
            )
        if (allocator := values.get("cidr-allocator-type", "")) not in {"", "RangeAllocator"}:
            yield f"built-in cloud providers are disabled. The ipam {allocator} is not available"

    def _signing_problems(self) -> Iterator[str]:
        specific = False
        for signer, name in _SIGNERS.items():
            certificate, key = (
                self.values.get(f"cluster-signing-{signer}-{part}-file", "") for part in ("cert", "key")
            )
            specific = specific or bool(certificate or key)
            if key and not certificate:
                yield f"{quote(name)}: cannot specify key without cert"
            elif certificate and not key:
                yield f"{quote(name)}: cannot specify cert without key"
        if specific and any(self.values.get(f"cluster-signing-{part}-file") for part in ("cert", "key")):
            yield (
                "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time"
            )
