"""Controllers that move to another manager. Follows controller-manager pkg/leadermigration/options and config."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LeaderMigrationOptions:
    """A second Lease, for controllers that move from one manager to another; those of kcm do not unless named."""

    enabled: bool = False
    config: str = ""
    """A file with a LeaderMigrationConfiguration; without it the stock one, which names the cloud controllers."""
