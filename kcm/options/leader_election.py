"""Who may act. Follows component-base config/options/leaderelectionconfig.go and client-go leaderelection.go."""

from dataclasses import dataclass
from typing import Final

# client-go's leaderelection.JitterFactor: a retry waits up to this many times the retry period.
_JITTER_FACTOR: Final = 1.2


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
