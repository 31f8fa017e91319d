"""Slices of core/v1 objects. Follows k8s.io/api/core/v1/types.go."""

from datetime import datetime

from kcm.api.types.meta import ObjectMeta, Slice


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


class PodSpec(Slice, frozen=True):
    """What is read of a pod's spec."""

    node_name: str = ""
    init_containers: tuple[Container, ...] = ()


class PodStatus(Slice, frozen=True):
    """What is read of a pod's status."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Slice, frozen=True):
    """A pod as the controllers see it. Pods are never PUT, so nothing else is kept."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
