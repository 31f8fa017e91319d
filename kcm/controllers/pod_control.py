"""Creating, deleting and patching pods for an owner, with events. Follows controller_utils.go:RealPodControl."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kcm.api.client import Client
from kcm.api.errors import is_namespace_terminating, is_not_found
from kcm.api.resources import PODS
from kcm.api.types.apps import PodTemplate
from kcm.api.types.core import Pod
from kcm.api.types.meta import OwnerReference
from kcm.events.recorder import EventRecorder, ObjectReference
from kcm.logs import get_logger

log = get_logger(__name__)


class PodTemplateError(Exception):
    """A template that no pod can be made from."""


class DeletePodError(Exception):
    """A pod could not be deleted; `__cause__` says why."""


class PodControl(Protocol):
    """The writes that controllers make on pods; `about` is the object that events are recorded on."""

    async def create(self, namespace: str, body: bytes, about: ObjectReference) -> Pod:
        """POST a pod made by `pod_body`."""
        ...

    async def delete(self, namespace: str, name: str, about: ObjectReference) -> None:
        """DELETE a pod."""
        ...

    async def patch(self, namespace: str, name: str, body: bytes) -> Pod:
        """PATCH a pod with a strategic merge patch."""
        ...


class RealPodControl:
    """Writes pods through the API."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, namespace: str, body: bytes, about: ObjectReference) -> Pod:
        """POST a pod and record the outcome, except in a namespace that is being deleted.

        Raises:
            StatusError: refused.
            TransportError: no answer; the pod may exist all the same.
        """
        try:
            pod = await self._client.create(PODS, namespace, body)
        except Exception as error:
            if not is_namespace_terminating(error):
                self._recorder.event(about, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        log.info("Controller created pod", v=4, controller=about.name, pod=pod.metadata.key)
        self._recorder.event(about, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        return pod

    async def delete(self, namespace: str, name: str, about: ObjectReference) -> None:
        """DELETE a pod and record the outcome, except where the pod is gone already.

        Raises:
            StatusError: the pod is not there.
            DeletePodError: any other failure.
        """
        log.info("Deleting pod", v=2, controller=about.name, pod=f"{namespace}/{name}")
        try:
            await self._client.delete(PODS, namespace, name)
        except Exception as error:
            if is_not_found(error):
                raise
            self._recorder.event(about, "Warning", "FailedDelete", f"Error deleting: {error}")
            raise DeletePodError(f"unable to delete pods: {error}") from error
        self._recorder.event(about, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")

    async def patch(self, namespace: str, name: str, body: bytes) -> Pod:
        """PATCH a pod. Raises as `Client.patch`."""
        return await self._client.patch(PODS, namespace, name, body)


def pod_body(template: PodTemplate, owner_name: str, controller: OwnerReference) -> bytes:
    """The body that creates a pod from a template; the same one serves for all pods of an owner.

    Follows controller_utils.go:GetPodFromTemplate: of the template's metadata only labels, annotations and finalizers
    reach the pod; its spec is taken over as it is, fields unknown to this code included.

    Raises:
        PodTemplateError: the template has no labels.
    """
    if not template.metadata.labels:
        raise PodTemplateError("unable to create pods, no labels")
    metadata: dict[str, Any] = {"generateName": f"{owner_name}-", "labels": template.metadata.labels}
    optional: Mapping[str, Any] = {
        "annotations": template.metadata.annotations,
        "finalizers": template.metadata.finalizers,
    }
    metadata |= {key: value for key, value in optional.items() if value}
    metadata["ownerReferences"] = [controller]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.spec})
