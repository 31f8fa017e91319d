"""Who owns the claims of a pod, so that they are deleted when they should be.

Follows the parts of pkg/controller/statefulset/stateful_set_utils.go that concern retention. The garbage collector deletes a
claim once all of its owners are gone; the controller only says who they are. All of it is pure.
"""

from typing import Any

from kcm.api.resources import PODS, STATEFUL_SETS, Resource
from kcm.api.types.apps import PersistentVolumeClaimRetentionPolicy, StatefulSet
from kcm.api.types.core import PersistentVolumeClaim, Pod
from kcm.api.types.meta import Object, ObjectMeta, OwnerReference, controller_reference
from kcm.controllers.statefulset.stateful_set_utils import in_ordinal_range, ordinal_of

RETAIN, DELETE = "Retain", "Delete"

_ALWAYS_RETAIN = PersistentVolumeClaimRetentionPolicy(when_deleted=RETAIN, when_scaled=RETAIN)


def retention_policy(stateful_set: StatefulSet) -> PersistentVolumeClaimRetentionPolicy:
    """What becomes of a StatefulSet's claims; without a policy all stay."""
    return stateful_set.spec.persistent_volume_claim_retention_policy or _ALWAYS_RETAIN


def wanted_owners(stateful_set: StatefulSet, pod: Pod) -> tuple[bool, bool]:
    """Whether the StatefulSet, and whether the pod, should own the pod's claims. An unknown policy wants neither."""
    policy = retention_policy(stateful_set)
    scaled_down = not in_ordinal_range(stateful_set, ordinal_of(pod))
    match policy.when_scaled, policy.when_deleted:
        case "Retain", "Delete":
            return True, False
        case "Delete", "Retain":
            return False, scaled_down
        case "Delete", "Delete":
            return not scaled_down, scaled_down
    return False, False


def is_claim_owner_up_to_date(claim: PersistentVolumeClaim, stateful_set: StatefulSet, pod: Pod) -> bool:
    """Whether a claim's owners are as the policy wants them, or are somebody else's affair."""
    if is_stale_claim(claim, STATEFUL_SETS, stateful_set) or is_stale_claim(claim, PODS, pod):
        return True
    owned_by_set, owned_by_pod = _owns(stateful_set, claim), _owns(pod, claim)
    if has_unexpected_controller(claim, stateful_set, pod):
        return not (owned_by_set or owned_by_pod)
    ours = {stateful_set.metadata.uid, pod.metadata.uid}
    if any(reference.uid in ours and not reference.controller for reference in claim.metadata.owner_references):
        return False
    return (owned_by_set, owned_by_pod) == wanted_owners(stateful_set, pod)


def has_unexpected_controller(claim: PersistentVolumeClaim, stateful_set: StatefulSet, pod: Pod) -> bool:
    """Whether there is a policy and the claim has another controller, or one of an earlier set or pod of the same name."""
    policy = retention_policy(stateful_set)
    if policy.when_scaled == RETAIN and policy.when_deleted == RETAIN:
        return False
    for reference in claim.metadata.owner_references:
        if _names(reference, STATEFUL_SETS, stateful_set.metadata):
            unexpected = reference.uid != stateful_set.metadata.uid
        elif _names(reference, PODS, pod.metadata):
            unexpected = reference.uid != pod.metadata.uid
        else:
            unexpected = reference.controller is True
        if unexpected:
            return True
    return False


def is_stale_claim(claim: PersistentVolumeClaim, resource: Resource[Any], owner: Object) -> bool:
    """Whether a claim belongs to an earlier object of the owner's name."""
    for reference in claim.metadata.owner_references:
        if _names(reference, resource, owner.metadata):
            return reference.uid != owner.metadata.uid
    return False


def updated_owners(claim: PersistentVolumeClaim, stateful_set: StatefulSet, pod: Pod) -> list[OwnerReference]:
    """A claim's owners as they should be; besides an unexpected controller neither the set nor the pod is one."""
    owners = [
        reference
        for reference in claim.metadata.owner_references
        if not _names(reference, STATEFUL_SETS, stateful_set.metadata) and not _names(reference, PODS, pod.metadata)
    ]
    if has_unexpected_controller(claim, stateful_set, pod):
        return owners
    candidates: tuple[tuple[Resource[Any], ObjectMeta], ...] = (
        (STATEFUL_SETS, stateful_set.metadata),
        (PODS, pod.metadata),
    )
    for wanted, (resource, meta) in zip(wanted_owners(stateful_set, pod), candidates, strict=True):
        if wanted and all(reference.uid != meta.uid for reference in owners):
            owners.append(controller_reference(resource.api_version, resource.kind, meta))
    return owners


def _owns(owner: Object, claim: PersistentVolumeClaim) -> bool:
    return any(reference.uid == owner.metadata.uid for reference in claim.metadata.owner_references)


def _names(reference: OwnerReference, resource: Resource[Any], owner: ObjectMeta) -> bool:
    """Whether a reference means an object of this kind and name, whatever its UID."""
    named = (reference.api_version, reference.kind, reference.name)
    return named == (resource.api_version, resource.kind, owner.name)
