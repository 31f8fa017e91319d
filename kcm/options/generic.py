"""What concerns all controllers. Follows controller-manager options/generic.go and options/debugging.go."""

from collections.abc import Collection
from dataclasses import dataclass

from kcm.gotext import quote
from kcm.options.controller_names import (
    CONTROLLER_ALIASES,
    DISABLED_BY_DEFAULT,
    IMPLEMENTED_CONTROLLERS,
    KNOWN_CONTROLLERS,
    is_controller_enabled,
    resolve_aliases,
)


@dataclass(frozen=True, kw_only=True)
class DebuggingOptions:
    """What is served for those who look for the cause of something."""

    profiling: bool = True
    """Whether /debug/pprof/ and /debug/flags/v are there."""
    contention_profiling: bool = False
    """Without effect: no lock of kcm is waited for."""


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
