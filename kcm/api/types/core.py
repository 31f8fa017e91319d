"""Slices of core/v1 objects. Follows k8s.io/api/core/v1/types.go."""

from datetime import datetime

import msgspec

from kcm.api.types.meta import ObjectMeta, Slice, Whole


class PodCondition(Slice, frozen=True, gc=False):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class Container(Slice, frozen=True, gc=False):
    """What is read of an init container: whether it is a sidecar."""

    name: str = ""
    restart_policy: str = ""


class ContainerStatus(Slice, frozen=True, gc=False):
    """What is read of a container's state."""

    name: str = ""
    restart_count: int = 0


class PersistentVolumeClaimVolumeSource(Slice, frozen=True, gc=False):
    """Which claim a volume is."""

    claim_name: str = ""


class Volume(Slice, frozen=True, gc=False):
    """What is read of a volume: whether it is a claim."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None


class PodSpec(Slice, frozen=True):
    """What is read of a pod's spec."""

    node_name: str = ""
    init_containers: tuple[Container, ...] = ()
    #: Those that are claims. Nearly every pod has a volume for its token, and nobody asks for that one.
    volumes: tuple[Volume, ...] = ()

    def __post_init__(self) -> None:
        if self.volumes:
            claims = tuple(volume for volume in self.volumes if volume.persistent_volume_claim is not None)
            msgspec.structs.force_setattr(self, "volumes", claims)


class PodStatus(Slice, frozen=True):
    """What is read of a pod's status."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Slice, frozen=True):
    """A pod as the controllers see it. Pods are hardly ever PUT, and read anew for that, so nothing else is kept."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PersistentVolumeClaim(Whole, frozen=True):
    """A claim, as far as its owners are concerned."""

    metadata: ObjectMeta = ObjectMeta()
