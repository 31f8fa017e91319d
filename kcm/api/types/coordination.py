"""Slice of coordination.k8s.io/v1 Leases. Follows k8s.io/api/coordination/v1/types.go.

Every field of the spec is optional in the API, also the holder: an unheld Lease has an empty one, or none.
"""

from datetime import datetime

from kcm.api.types.meta import ObjectMeta, Slice, Whole


class LeaseSpec(Slice, frozen=True):
    """Who holds a Lease, and since and until when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Whole, frozen=True):
    """A Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
