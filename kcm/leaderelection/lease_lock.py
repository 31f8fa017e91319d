"""The election record kept in a Lease. Follows client-go tools/leaderelection/resourcelock/{interface,leaselock}.go.

An update sends the Lease back that was read last, with its resourceVersion and all that others wrote into its metadata, so
it either changes what this process has seen or is refused with a conflict.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kcm.api.client import Client
from kcm.api.errors import TransportError
from kcm.api.resources import LEASES
from kcm.api.types.coordination import Lease, LeaseSpec
from kcm.api.types.meta import ObjectMeta, format_micro_time

#: Takes a Lease, a reason and a message and records a Normal event. Called on the renewing task, so it must neither block
#: nor wait for the network.
RecordEvent = Callable[[Lease, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionRecord:
    """What the candidates tell each other.

    The times are written for people to read: no elector trusts those of another.
    """

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    leader_transitions: int = 0
    strategy: str = ""
    preferred_holder: str = ""


class LeaseLock:
    """One Lease, seen by one candidate."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        record_event: RecordEvent | None = None,
    ) -> None:
        """Make a lock.

        Args:
            client: Should have a time limit well below the renew deadline, and connections of its own.
            namespace: The Lease's namespace.
            name: The Lease's name.
            identity: What this candidate writes as holder; must differ between any two processes.
            record_event: Told when leading begins and ends.
        """
        self.identity = identity
        self._client = client
        self._namespace = namespace
        self._name = name
        self._record_event = record_event
        self._lease: Lease | None = None

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def get(self) -> LeaderElectionRecord:
        """Read the record.

        Raises:
            StatusError: refused, or there is no such Lease.
            TransportError: no answer, or one that is no Lease.
        """
        with _decoding():
            self._lease = await self._client.get(LEASES, self._namespace, self._name)
        return record_from_spec(self._lease.spec)

    async def create(self, record: LeaderElectionRecord) -> None:
        """Create the Lease with a record. Raises as `get`; a lost race is a StatusError."""
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec_from_record(record),
        }
        with _decoding():
            self._lease = await self._client.create(LEASES, self._namespace, body)

    async def update(self, record: LeaderElectionRecord) -> None:
        """Replace the record in the Lease as it was last seen.

        Raises:
            StatusError: refused; a conflict when the Lease changed since.
            TransportError: no answer, or one that is no Lease; the record may have been written or not.
        """
        if self._lease is None:
            raise RuntimeError("the Lease was neither read nor created yet")
        body = self._lease.document() | {"spec": spec_from_record(record)}
        with _decoding():
            self._lease = await self._client.update(LEASES, self._namespace, self._name, body)

    def record_event(self, what: str) -> None:
        """Record an event on the Lease that this candidate did something."""
        if self._record_event is not None:
            lease = self._lease or Lease(metadata=ObjectMeta(namespace=self._namespace, name=self._name))
            self._record_event(lease, "LeaderElection", f"{self.identity} {what}")


def record_from_spec(spec: LeaseSpec) -> LeaderElectionRecord:
    """The record in a Lease's spec (leaselock.go:LeaseSpecToLeaderElectionRecord)."""
    return LeaderElectionRecord(
        holder_identity=spec.holder_identity or "",
        lease_duration_seconds=spec.lease_duration_seconds or 0,
        acquire_time=spec.acquire_time,
        renew_time=spec.renew_time,
        leader_transitions=spec.lease_transitions or 0,
        strategy=spec.strategy or "",
        preferred_holder=spec.preferred_holder or "",
    )


def spec_from_record(record: LeaderElectionRecord) -> dict[str, Any]:
    """The whole spec of a Lease for a record (leaselock.go:LeaderElectionRecordToLeaseSpec)."""
    spec: dict[str, Any] = {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": None if record.acquire_time is None else format_micro_time(record.acquire_time),
        "renewTime": None if record.renew_time is None else format_micro_time(record.renew_time),
        "leaseTransitions": record.leader_transitions,
    }
    if record.preferred_holder:
        spec["preferredHolder"] = record.preferred_holder
    if record.strategy:
        spec["strategy"] = record.strategy
    return spec


@contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise TransportError(f"the answer is no Lease: {error}", answered=True) from error
