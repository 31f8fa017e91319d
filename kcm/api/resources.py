"""The resources that kcm reads and writes, with their paths and how their objects are decoded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kcm.api.types.apps import (
    ControllerRevision,
    Deployment,
    ReplicaSet,
    StatefulSet,
    decode_controller_revision,
)
from kcm.api.types.coordination import Lease
from kcm.api.types.core import PersistentVolumeClaim, Pod, decode_pod
from kcm.api.types.events import Event
from kcm.api.types.meta import Object, WholeT, decode_whole

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[T]):
    """One namespaced resource of the API.

    `decode` turns an object's JSON into its slice; it raises msgspec.ValidationError for one of the wrong shape.
    """

    group: str
    version: str
    plural: str
    kind: str
    decode: Callable[[bytes | msgspec.Raw], T]

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`plural.group`, as the reference prints it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, f"namespaces/{namespace}" if namespace else "", self.plural, name, subresource]
        return "/".join(part for part in parts if part)


def _whole(kind: type[WholeT]) -> Callable[[bytes | msgspec.Raw], WholeT]:
    return lambda data: decode_whole(kind, data)


PODS: Resource[Pod] = Resource(group="", version="v1", plural="pods", kind="Pod", decode=decode_pod)
REPLICA_SETS: Resource[ReplicaSet] = Resource(
    group="apps", version="v1", plural="replicasets", kind="ReplicaSet", decode=_whole(ReplicaSet)
)
DEPLOYMENTS: Resource[Deployment] = Resource(
    group="apps", version="v1", plural="deployments", kind="Deployment", decode=_whole(Deployment)
)
STATEFUL_SETS: Resource[StatefulSet] = Resource(
    group="apps", version="v1", plural="statefulsets", kind="StatefulSet", decode=_whole(StatefulSet)
)
CONTROLLER_REVISIONS: Resource[ControllerRevision] = Resource(
    group="apps",
    version="v1",
    plural="controllerrevisions",
    kind="ControllerRevision",
    decode=decode_controller_revision,
)
PERSISTENT_VOLUME_CLAIMS: Resource[PersistentVolumeClaim] = Resource(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    decode=_whole(PersistentVolumeClaim),
)
LEASES: Resource[Lease] = Resource(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", decode=_whole(Lease)
)
EVENTS: Resource[Event] = Resource(
    group="", version="v1", plural="events", kind="Event", decode=msgspec.json.Decoder(Event).decode
)
