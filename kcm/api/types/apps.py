"""Slices of apps/v1 Deployments, ReplicaSets, StatefulSets and ControllerRevisions. Follows k8s.io/api/apps/v1/types.go.

Counters that the API leaves out when zero are 0 here; those that it tells apart from zero (pointers in Go) are None.
Conditions and statuses are written back from these slices, so their slices list every field of the reference.
"""

from datetime import datetime
from typing import Any

import msgspec

from kcm.api.types.meta import (
    Document,
    LabelSelector,
    ObjectMeta,
    Slice,
    Whole,
    format_time,
    from_document,
    set_or_drop,
)


class PodTemplate(Slice, frozen=True):
    """A pod template: metadata as far as it is copied to pods, and the spec as it came."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class ReplicaSetCondition(Slice, frozen=True, gc=False):
    """One condition of a ReplicaSet."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class ReplicaSetSpec(Slice, frozen=True):
    """What a ReplicaSet wants."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()


class ReplicaSetStatus(Slice, frozen=True):
    """What a ReplicaSet has."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[ReplicaSetCondition, ...] = ()


class ReplicaSet(Whole, frozen=True):
    """A ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdateDeployment(Slice, frozen=True, gc=False):
    """Bounds of a rolling update, absolute or in percent."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class DeploymentStrategy(Slice, frozen=True):
    """How old pods are replaced."""

    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentCondition(Slice, frozen=True, gc=False):
    """One condition of a Deployment."""

    type: str = ""
    status: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class DeploymentSpec(Slice, frozen=True):
    """What a Deployment wants."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(Slice, frozen=True):
    """What a Deployment has."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: tuple[DeploymentCondition, ...] = ()
    collision_count: int | None = None


class Deployment(Whole, frozen=True):
    """A Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class RollingUpdateStatefulSet(Slice, frozen=True, gc=False):
    """Which of a StatefulSet's pods a rolling update reaches, and how many at once."""

    partition: int = 0
    max_unavailable: int | str | None = None


class StatefulSetUpdateStrategy(Slice, frozen=True):
    """How pods of an old revision are replaced."""

    type: str = ""
    rolling_update: RollingUpdateStatefulSet | None = None


class PersistentVolumeClaimRetentionPolicy(Slice, frozen=True, gc=False):
    """What becomes of claims: `Retain` or `Delete`."""

    when_deleted: str = ""
    when_scaled: str = ""


class StatefulSetOrdinals(Slice, frozen=True, gc=False):
    """Where a StatefulSet begins to count."""

    start: int = 0


class StatefulSetSpec(Slice, frozen=True):
    """What a StatefulSet wants."""

    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    #: As they came, since claims are made from them.
    volume_claim_templates: tuple[dict[str, Any], ...] = ()
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int = 10
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: PersistentVolumeClaimRetentionPolicy | None = None
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()


class StatefulSetCondition(Slice, frozen=True, gc=False):
    """One condition of a StatefulSet."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class StatefulSetStatus(Slice, frozen=True):
    """What a StatefulSet has."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: tuple[StatefulSetCondition, ...] = ()
    available_replicas: int = 0


class StatefulSet(Whole, frozen=True):
    """A StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class ControllerRevision(Whole, frozen=True):
    """One remembered state of an owner. `raw` is without its data, which is kept byte for byte beside it."""

    metadata: ObjectMeta = ObjectMeta()
    data: bytes = b""
    revision: int = 0

    def document(self) -> Document:
        """A fresh copy of the object as it was read, to build a PUT body from; encoded, its data has the bytes it came with."""
        return super().document() | {"data": msgspec.Raw(self.data)}


class _Data(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


def decode_controller_revision(body: bytes | msgspec.Raw) -> ControllerRevision:
    """Read a ControllerRevision without touching the bytes of its data.

    Raises:
        msgspec.ValidationError: the object does not have the types that the API promises.
        msgspec.DecodeError: the bytes are no JSON.
    """
    document: Document = msgspec.json.decode(body)
    document.pop("data", None)
    data = bytes(msgspec.json.decode(body, type=_Data).data)
    return msgspec.structs.replace(from_document(ControllerRevision, document), data=data)


def status_document(status: ReplicaSetStatus | DeploymentStatus | StatefulSetStatus) -> Document:
    """A status as the API writes it: zero counters left out, times in whole seconds.

    `replicas` of a ReplicaSet, and that and `availableReplicas` of a StatefulSet, are always present.
    """
    document: Document = msgspec.to_builtins(status, builtin_types=(datetime,))
    if status.conditions:
        document["conditions"] = [
            {key: format_time(value) if isinstance(value, datetime) else value for key, value in condition.items()}
            for condition in document["conditions"]
        ]
    if isinstance(status, ReplicaSetStatus | StatefulSetStatus):
        document.setdefault("replicas", 0)
    if isinstance(status, StatefulSetStatus):
        document.setdefault("availableReplicas", 0)
    return document


def deployment_document(deployment: Deployment) -> Document:
    """The body of a PUT of a Deployment, main resource or status: as read, but for annotations and status."""
    document = deployment.document()
    set_or_drop(document["metadata"], "annotations", dict(deployment.metadata.annotations))
    document["status"] = status_document(deployment.status)
    return document


def replica_set_document(replica_set: ReplicaSet) -> Document:
    """The body of a PUT of a ReplicaSet: as read, but for annotations, replicas, minReadySeconds and status."""
    document = replica_set.document()
    set_or_drop(document["metadata"], "annotations", dict(replica_set.metadata.annotations))
    document["spec"]["replicas"] = replica_set.spec.replicas
    set_or_drop(document["spec"], "minReadySeconds", replica_set.spec.min_ready_seconds or None)
    document["status"] = status_document(replica_set.status)
    return document
