"""Creating, repairing and deleting the pods of a StatefulSet, and creating their claims.

Follows pkg/controller/statefulset/stateful_pod_control.go. Claims come before their pod. All events are on the StatefulSet.

The cache of pods holds slices, so a pod that has to be repaired is read from the server first; the reference does without this
request. It is then written with the resourceVersion of the cached pod, so that a change which the cache has not seen yet is
a conflict here as it is there.
"""

from collections.abc import Iterator

import msgspec

from kcm.api.client import Client
from kcm.api.errors import is_already_exists, is_not_found, raise_all
from kcm.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kcm.api.types.apps import StatefulSet
from kcm.api.types.core import PersistentVolumeClaim, Pod
from kcm.api.types.meta import Document, Object, set_or_drop
from kcm.consistency import ConsistencyStore
from kcm.controllers.retry import DEFAULT_BACKOFF, retry_on_conflict
from kcm.controllers.statefulset.claim_owners import (
    RETAIN,
    has_unexpected_controller,
    is_claim_owner_up_to_date,
    is_stale_claim,
    retention_policy,
    updated_owners,
)
from kcm.controllers.statefulset.stateful_set_utils import (
    claim_names,
    new_claim_documents,
    ordinal_of,
    repaired_pod,
    storage_matches,
    update_identity,
    update_storage,
)
from kcm.events.recorder import NORMAL, WARNING, EventRecorder, reference_to
from kcm.informers.store import Indexer
from kcm.logs import get_logger

log = get_logger(__name__)


class ClaimError(Exception):
    """A claim could not be created, or not be given its owners; then `__cause__` says why."""


class StatefulPodControl:
    """Writes pods and claims, and notes what was written.

    Args:
        client: Writes them.
        pods: The cache of pods.
        claims: The cache of claims.
        recorder: Told of what happened to pods and claims.
        consistency: Told of the versions of written pods and claims.
    """

    def __init__(
        self,
        *,
        client: Client,
        pods: Indexer[Pod],
        claims: Indexer[PersistentVolumeClaim],
        recorder: EventRecorder,
        consistency: ConsistencyStore,
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._recorder = recorder
        self._consistency = consistency

    async def create(self, stateful_set: StatefulSet, pod: Pod, body: Document) -> None:
        """Create what is missing of a pod's claims, then the pod, and give the claims their owners.

        Raises:
            AggregateError: claims could not be created.
            ClaimError: a claim could not be given its owners, whether the pod was created or not.
            StatusError: the pod was refused; nothing is said of that if its name is taken.
            TransportError: no answer; the pod may exist all the same.
        """
        try:
            await self._create_claims(stateful_set, pod)
        except Exception as error:
            self._record(stateful_set, pod, "create", error)
            raise
        failure = None
        try:
            created = await self._client.create(PODS, stateful_set.metadata.namespace, body)
        except Exception as error:
            if is_already_exists(error):
                raise
            failure = error
        else:
            self._wrote(stateful_set, PODS.group_resource, created)
        await self._update_claims(stateful_set, pod)
        self._record(stateful_set, pod, "create", failure)
        if failure is not None:
            raise failure

    async def create_missing_claims(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Create what is missing of a pod's claims, and give all of them their owners.

        Raises:
            AggregateError: claims could not be created.
            ClaimError: a claim could not be given its owners.
        """
        await self._create_claims(stateful_set, pod)
        await self._update_claims(stateful_set, pod)

    async def update(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Give a pod the identity, the volumes and the claims that it should have, and PUT it if any of that was wrong.

        Tries again after a conflict, with the pod that is cached by then. The API lets nobody change the volumes of a pod,
        so a pod with wrong ones fails each time.

        Raises:
            AggregateError: claims could not be created.
            ClaimError: a claim could not be given its owners.
            StatusError: the pod could not be read or written.
            TransportError: no answer.
        """
        cached, repaired, tried = pod, pod, False

        async def attempt() -> None:
            nonlocal cached, repaired, tried
            before, stored = repaired, storage_matches(stateful_set, repaired)
            repaired = repaired_pod(stateful_set, before)
            changed = repaired is not before
            if not stored:
                try:
                    await self._create_claims(stateful_set, repaired)
                except Exception as error:
                    self._record(stateful_set, repaired, "update", error)
                    raise
            if not self.claims_match(stateful_set, repaired):
                await self._update_claims(stateful_set, repaired)
                changed = True
            if not changed:
                return
            tried = True
            try:
                await self._put(stateful_set, cached, repaired)
            except Exception:
                newest = self._pods.get(repaired.metadata.key)
                if newest is None:
                    log.error("Error getting updated Pod from cache", pod=repaired.metadata.key)
                else:
                    cached = repaired = newest
                raise

        failure = None
        try:
            await retry_on_conflict(DEFAULT_BACKOFF, attempt)
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
        if tried:
            self._record(stateful_set, repaired, "update", failure)
        if failure is not None:
            raise failure

    async def delete(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """DELETE a pod by its name; one that is gone already counts as deleted.

        Raises:
            StatusError: refused.
            TransportError: no answer.
        """
        try:
            await self._client.delete(PODS, pod.metadata.namespace, pod.metadata.name)
        except Exception as error:
            if not is_not_found(error):
                self._record(stateful_set, pod, "delete", error)
                raise
        self._record(stateful_set, pod, "delete", None)

    def claims_match(self, stateful_set: StatefulSet, pod: Pod) -> bool:
        """Whether those of a pod's claims that there are have the owners that they should have."""
        return all(is_claim_owner_up_to_date(claim, stateful_set, pod) for claim in self._claims_of(stateful_set, pod))

    async def fix_claims(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Give a pod's claims the owners that they should have, if any of them has not.

        Raises:
            ClaimError: a claim could not be given its owners.
        """
        if not self.claims_match(stateful_set, pod):
            await self._update_owners(stateful_set, pod)

    def has_stale_claim(self, stateful_set: StatefulSet, pod: Pod) -> bool:
        """Whether a pod must wait because one of its claims is to be deleted with an earlier pod of its name."""
        if retention_policy(stateful_set).when_scaled == RETAIN:
            return False
        return any(is_stale_claim(claim, PODS, pod) for claim in self._claims_of(stateful_set, pod))

    def _claims_of(self, stateful_set: StatefulSet, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        """Those of a pod's claims that are in the cache, each as it is there when it is asked for."""
        for name in claim_names(stateful_set, ordinal_of(pod)).values():
            claim = self._claims.get(f"{stateful_set.metadata.namespace}/{name}")
            if claim is not None:
                yield claim

    async def _create_claims(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """POST the claims that are not in the cache; whatever is found is taken as it is."""
        errors: list[Exception] = []
        namespace = stateful_set.metadata.namespace
        for name, body in new_claim_documents(stateful_set, ordinal_of(pod)).items():
            claim = self._claims.get(f"{namespace}/{name}")
            if claim is not None:
                if claim.metadata.deletion_timestamp is not None:
                    errors.append(ClaimError(f"pvc {name} is being deleted"))
                continue
            failure = None
            try:
                created = await self._client.create(PERSISTENT_VOLUME_CLAIMS, namespace, body)
            except Exception as error:  # noqa: BLE001 - all are tried, and the errors raised together
                failure = error
                errors.append(ClaimError(f"failed to create PVC {name}: {error}"))
            else:
                self._wrote(stateful_set, PERSISTENT_VOLUME_CLAIMS.group_resource, created)
            if not is_already_exists(failure):
                self._record_claim(stateful_set, pod, name, failure)
        raise_all(errors)

    async def _update_claims(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Give a pod's claims their owners; a failure is recorded as one of updating the pod."""
        try:
            await self._update_owners(stateful_set, pod)
        except Exception as error:
            self._record(stateful_set, pod, "update", error)
            raise

    async def _update_owners(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """PUT those of a pod's claims whose owners are not as they should be, one after another."""
        for claim in self._claims_of(stateful_set, pod):
            meta = claim.metadata
            if has_unexpected_controller(claim, stateful_set, pod):
                message = (
                    f"PersistentVolumeClaim {meta.name} has a conflicting OwnerReference that acts as a manging controller,"
                    " the retention policy is ignored for this claim"
                )
                about = reference_to(STATEFUL_SETS, stateful_set.metadata)
                self._recorder.event(about, WARNING, "ConflictingController", message)
            if is_claim_owner_up_to_date(claim, stateful_set, pod):
                continue
            body = claim.document()
            set_or_drop(body["metadata"], "ownerReferences", updated_owners(claim, stateful_set, pod))
            try:
                written = await self._client.update(PERSISTENT_VOLUME_CLAIMS, meta.namespace, meta.name, body)
            except Exception as error:
                raise ClaimError(f"could not update claim {meta.name} for delete policy ownerRefs: {error}") from error
            self._wrote(stateful_set, PERSISTENT_VOLUME_CLAIMS.group_resource, written)

    async def _put(self, stateful_set: StatefulSet, cached: Pod, repaired: Pod) -> None:
        """Write what was repaired of a pod into the whole of it."""
        namespace, ordinal = cached.metadata.namespace, ordinal_of(repaired)
        body: Document = msgspec.json.decode(
            await self._client.request("GET", PODS.path(namespace, cached.metadata.name))
        )
        if repaired.metadata is not cached.metadata:
            update_identity(body["metadata"], stateful_set, ordinal)
        if repaired.spec is not cached.spec:
            update_storage(body["spec"], stateful_set, ordinal)
        if cached.metadata.resource_version:
            body["metadata"]["resourceVersion"] = cached.metadata.resource_version
        written = await self._client.update(PODS, namespace, repaired.metadata.name, body)
        self._wrote(stateful_set, PODS.group_resource, written)

    def _wrote(self, stateful_set: StatefulSet, group_resource: str, written: Object) -> None:
        owner = stateful_set.metadata
        self._consistency.wrote_at(owner.key, owner.uid, group_resource, written.metadata.resource_version)

    def _record(self, stateful_set: StatefulSet, pod: Pod, verb: str, error: Exception | None) -> None:
        """Record what became of writing a pod; the verb is `create`, `update` or `delete`."""
        subject = f"{verb.title()} Pod {pod.metadata.name} in StatefulSet {stateful_set.metadata.name}"
        about = reference_to(STATEFUL_SETS, stateful_set.metadata)
        if error is None:
            self._recorder.event(about, NORMAL, f"Successful{verb.title()}", f"{subject} successful")
        else:
            self._recorder.event(about, WARNING, f"Failed{verb.title()}", f"{subject} failed error: {error}")

    def _record_claim(self, stateful_set: StatefulSet, pod: Pod, claim: str, error: Exception | None) -> None:
        """Record what became of creating a claim."""
        owner, name = stateful_set.metadata, pod.metadata.name
        about = reference_to(STATEFUL_SETS, owner)
        if error is None:
            message = f"Create Claim {claim} Pod {name} in StatefulSet {owner.name} success"
            self._recorder.event(about, NORMAL, "SuccessfulCreate", message)
        else:
            message = f"Create Claim {claim} for Pod {name} in StatefulSet {owner.name} failed error: {error}"
            self._recorder.event(about, WARNING, "FailedCreate", message)
