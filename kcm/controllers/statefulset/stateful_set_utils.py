"""Names, slots and new objects of a StatefulSet. Follows pkg/controller/statefulset/stateful_set_utils.go.

All of it is pure. A slot is a place for one pod; the first slot has the ordinal `spec.ordinals.start`. A pod that is still to
be made is a `Pod` without UID and phase ("unborn"), with the name, labels and claims that it will have.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from kcm.api.intstr import scaled_value
from kcm.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.api.types.apps import ControllerRevision, PodTemplate, StatefulSet
from kcm.api.types.core import PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume
from kcm.api.types.meta import Document, ObjectMeta, controller_reference, set_or_drop
from kcm.controllers.pod_utils import is_available, is_ready

#: Labels of a pod: its name, its ordinal, and the name of the revision that it was made from.
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"

PARALLEL = "Parallel"
ROLLING_UPDATE, ON_DELETE, RECREATE = "RollingUpdate", "OnDelete", "Recreate"

_POD_NAME = re.compile(r"(.*)-([0-9]+)\Z", re.ASCII)
_MAX_ORDINAL = 2**31 - 1


class RevisionError(ValueError):
    """A revision whose data is no pod template."""


# Names


def parent_and_ordinal(pod_name: str) -> tuple[str, int]:
    """The StatefulSet and ordinal that a pod's name speaks of; no name and -1 where it speaks of none."""
    match = _POD_NAME.search(pod_name)
    if match is None:
        return "", -1
    ordinal = int(match[2])
    return match[1], ordinal if ordinal <= _MAX_ORDINAL else -1


def ordinal_of(pod: Pod) -> int:
    """A pod's ordinal; -1 if it has none."""
    return parent_and_ordinal(pod.metadata.name)[1]


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    """The name of the pod with an ordinal."""
    return f"{stateful_set.metadata.name}-{ordinal}"


def claim_names(stateful_set: StatefulSet, ordinal: int) -> dict[str, str]:
    """The claims of the pod with an ordinal, by the names of their templates."""
    templates = [template["metadata"]["name"] for template in stateful_set.spec.volume_claim_templates]
    return {name: f"{name}-{stateful_set.metadata.name}-{ordinal}" for name in templates}


def is_member_of(stateful_set: StatefulSet, pod: Pod) -> bool:
    """Whether a pod is named like one of this StatefulSet."""
    return parent_and_ordinal(pod.metadata.name)[0] == stateful_set.metadata.name


def in_ordinal_range(stateful_set: StatefulSet, ordinal: int) -> bool:
    """Whether there is a slot for an ordinal."""
    return 0 <= ordinal - stateful_set.spec.ordinals.start < stateful_set.spec.replicas


# What a pod is like


def is_created(pod: Pod) -> bool:
    """Whether the server has the pod."""
    return pod.status.phase != ""


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended."""
    return pod.status.phase in {"Failed", "Succeeded"}


def is_terminating(pod: Pod) -> bool:
    """Whether the pod is being deleted, ended or not."""
    return pod.metadata.deletion_timestamp is not None


def is_running_and_ready(pod: Pod) -> bool:
    """Whether the pod runs and its Ready condition is True."""
    return pod.status.phase == "Running" and is_ready(pod)


def is_unavailable(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod is being deleted, or not ready for long enough; its phase does not matter."""
    return is_terminating(pod) or not is_available(pod, min_ready_seconds, now)


def pod_revision(pod: Pod) -> str:
    """The name of the revision that a pod was made from; empty if it does not say."""
    return pod.metadata.labels.get(REVISION_LABEL, "")


def identity_matches(stateful_set: StatefulSet, pod: Pod) -> bool:
    """Whether a pod has the name, namespace and name label that its ordinal gives it."""
    meta, ordinal = pod.metadata, ordinal_of(pod)
    return (
        ordinal >= 0
        and meta.name == pod_name(stateful_set, ordinal) == meta.labels.get(POD_NAME_LABEL, "")
        and meta.namespace == stateful_set.metadata.namespace
    )


def storage_matches(stateful_set: StatefulSet, pod: Pod) -> bool:
    """Whether each claim template has its volume in the pod."""
    if (ordinal := ordinal_of(pod)) < 0:
        return False
    volumes = {volume.name: volume.persistent_volume_claim for volume in pod.spec.volumes}
    return all(
        (source := volumes.get(name)) is not None and source.claim_name == claim
        for name, claim in claim_names(stateful_set, ordinal).items()
    )


# Slots


@dataclass(frozen=True, slots=True)
class Slots:
    """The pods of a StatefulSet in their places."""

    #: One for each slot, unborn ones included.
    replicas: Sequence[Pod]
    #: Those without a slot, highest ordinal first.
    condemned: Sequence[Pod]

    def first_unavailable(self, min_ready_seconds: int, now: datetime) -> Pod | None:
        """The unavailable pod of the lowest slot, else the unavailable condemned one of the lowest ordinal."""
        for pod in (*self.replicas, *reversed(self.condemned)):
            if is_unavailable(pod, min_ready_seconds, now):
                return pod
        return None


def assign_slots(stateful_set: StatefulSet, pods: Iterable[Pod], unborn: Callable[[int], Pod]) -> Slots:
    """Put pods into their slots; `unborn` makes those for empty slots from ordinals. Pods without ordinal are left out."""
    start = stateful_set.spec.ordinals.start
    replicas: list[Pod | None] = [None] * stateful_set.spec.replicas
    condemned = []
    for pod in pods:
        ordinal = ordinal_of(pod)
        if in_ordinal_range(stateful_set, ordinal):
            replicas[ordinal - start] = pod
        elif ordinal >= 0:
            condemned.append(pod)
    condemned.sort(key=ordinal_of, reverse=True)
    return Slots([pod or unborn(start + index) for index, pod in enumerate(replicas)], condemned)


def starts_at_current(stateful_set: StatefulSet, ordinal: int) -> bool:
    """Whether a new pod is made from the current revision, not from the update revision (newVersionedStatefulSetPod)."""
    strategy, first = stateful_set.spec.update_strategy, stateful_set.spec.ordinals.start
    if strategy.rolling_update is not None:
        return ordinal < first + strategy.rolling_update.partition
    return strategy.type == ROLLING_UPDATE and ordinal < first + stateful_set.status.current_replicas


def max_unavailable(stateful_set: StatefulSet) -> int:
    """How many pods a rolling update may make unavailable, at least 1.

    Raises:
        IntOrStringError: a text that is no percentage.
    """
    rolling = stateful_set.spec.update_strategy.rolling_update
    if rolling is None or rolling.max_unavailable is None:
        return 1
    return max(1, scaled_value(rolling.max_unavailable, stateful_set.spec.replicas, round_up=False))


# New objects


def revision_template(revision: ControllerRevision) -> Document:
    """The JSON of the pod template that a revision remembers.

    The reference applies the data as a strategic merge patch. All data that controllers write says that the template is to
    be replaced, so nothing needs to be merged.

    Raises:
        RevisionError: there is no template in its data.
    """
    try:
        template = dict(msgspec.json.decode(revision.data)["spec"]["template"])
    except (LookupError, TypeError, ValueError) as error:
        raise RevisionError(f"no pod template in ControllerRevision {revision.metadata.key}: {error}") from error
    template.pop("$patch", None)
    return template


def template_of(revision: ControllerRevision) -> PodTemplate:
    """The pod template that a revision remembers.

    Raises:
        RevisionError: its data is no pod template.
    """
    try:
        return msgspec.convert(revision_template(revision), PodTemplate)
    except msgspec.ValidationError as error:
        raise RevisionError(f"no pod template in ControllerRevision {revision.metadata.key}: {error}") from error


def new_pod_document(stateful_set: StatefulSet, template: PodTemplate, revision: str, ordinal: int) -> Document:
    """The body that creates a pod; its spec is the template's, but for host name, subdomain and the volumes of claims."""
    reference = controller_reference(STATEFUL_SETS.api_version, STATEFUL_SETS.kind, stateful_set.metadata)
    metadata: Document = {
        "generateName": f"{stateful_set.metadata.name}-",
        "labels": dict(template.metadata.labels),
        "ownerReferences": [reference],
    }
    set_or_drop(metadata, "annotations", template.metadata.annotations)
    set_or_drop(metadata, "finalizers", list(template.metadata.finalizers))
    spec = {**template.spec, "hostname": pod_name(stateful_set, ordinal)}
    set_or_drop(spec, "subdomain", stateful_set.spec.service_name)
    update_identity(metadata, stateful_set, ordinal)
    update_storage(spec, stateful_set, ordinal)
    metadata["labels"][REVISION_LABEL] = revision  # after the others: a template may have labels of these names too
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": spec}


def unborn_pod(stateful_set: StatefulSet, template: PodTemplate, revision: str, ordinal: int) -> Pod:
    """What will be read of the pod that `new_pod_document` creates, before the server has it."""
    metadata: Document = {"labels": {**template.metadata.labels, REVISION_LABEL: revision}}
    update_identity(metadata, stateful_set, ordinal)
    volumes = tuple(
        Volume(name=name, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim))
        for name, claim in claim_names(stateful_set, ordinal).items()
    )
    return Pod(metadata=ObjectMeta(**metadata), spec=PodSpec(volumes=volumes))


def update_identity(metadata: Document, stateful_set: StatefulSet, ordinal: int) -> None:
    """Give a pod's metadata the names that its ordinal demands."""
    name = pod_name(stateful_set, ordinal)
    metadata["name"] = name
    metadata["namespace"] = stateful_set.metadata.namespace
    labels = {POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}
    metadata["labels"] = {**metadata.get("labels", {}), **labels}


def update_storage(spec: Document, stateful_set: StatefulSet, ordinal: int) -> None:
    """Give a pod's spec the volumes of its claims, in place of others of their names and before the rest."""
    claims = claim_names(stateful_set, ordinal)
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims.items()]
    others = [volume for volume in spec.get("volumes", []) if volume["name"] not in claims]
    set_or_drop(spec, "volumes", volumes + others)


def repaired_pod(stateful_set: StatefulSet, pod: Pod) -> Pod:
    """The pod as it should be: with the identity and the storage of its ordinal; the same object if it has them."""
    ordinal = ordinal_of(pod)
    if not identity_matches(stateful_set, pod):
        metadata: Document = {"labels": pod.metadata.labels}
        update_identity(metadata, stateful_set, ordinal)
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **metadata))
    if not storage_matches(stateful_set, pod):
        spec = msgspec.to_builtins(pod.spec)
        update_storage(spec, stateful_set, ordinal)
        pod = msgspec.structs.replace(pod, spec=msgspec.convert(spec, PodSpec))
    return pod


def new_claim_documents(stateful_set: StatefulSet, ordinal: int) -> dict[str, Document]:
    """The bodies that create the claims of the pod with an ordinal, by their names."""
    selector = stateful_set.spec.selector
    documents = {}
    names = claim_names(stateful_set, ordinal)
    for template in stateful_set.spec.volume_claim_templates:
        name = names[template["metadata"]["name"]]
        labels = {**template["metadata"].get("labels", {}), **(selector.match_labels if selector else {})}
        metadata = {**template["metadata"], "name": name, "namespace": stateful_set.metadata.namespace}
        set_or_drop(metadata, "labels", labels)
        kind = {"apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version, "kind": PERSISTENT_VOLUME_CLAIMS.kind}
        documents[name] = {**template, **kind, "metadata": metadata}
    return documents
