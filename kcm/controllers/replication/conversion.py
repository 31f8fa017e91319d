"""ReplicationControllers in the form of ReplicaSets. Follows pkg/controller/replication/conversion.go.

What is kept to be written back is the ReplicationController itself. Statuses need no conversion: only `terminatingReplicas` is
missing in that of a ReplicationController, and its controller never sets it.
"""

import msgspec

from kcm.api.resources import Resource
from kcm.api.types.apps import ReplicaSet
from kcm.api.types.meta import Document, from_document


def decode_replication_controller(data: bytes | msgspec.Raw) -> ReplicaSet:
    """Read a ReplicationController as a ReplicaSet.

    Raises:
        msgspec.ValidationError: the object does not have the types that the API promises.
        msgspec.DecodeError: the bytes are no JSON.
    """
    document: Document = msgspec.json.decode(data)
    replica_set = from_document(ReplicaSet, _as_replica_set(document))
    return msgspec.structs.replace(replica_set, raw=msgspec.json.encode(document))


def _as_replica_set(document: Document) -> Document:
    """The same document with a ReplicaSet's selector: a plain map means matchLabels, none matches nothing."""
    spec = document.get("spec")
    if not isinstance(spec, dict) or spec.get("selector") is None:
        return document
    return {**document, "spec": {**spec, "selector": {"matchLabels": spec["selector"]}}}


REPLICATION_CONTROLLERS: Resource[ReplicaSet] = Resource(
    group="",
    version="v1",
    plural="replicationcontrollers",
    kind="ReplicationController",
    decode=decode_replication_controller,
)
