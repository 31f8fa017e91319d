"""What pods are made of, and what is said about it."""

import json
from typing import cast

import pytest

from kcm.api.client import Client
from kcm.api.errors import Status, StatusCause, StatusDetails, StatusError
from kcm.api.resources import Resource
from kcm.api.types.apps import PodTemplate
from kcm.api.types.core import Pod
from kcm.api.types.meta import ObjectMeta, controller_reference
from kcm.controllers.pod_control import DeletePodError, PodTemplateError, RealPodControl, pod_body
from kcm.events.recorder import FakeRecorder, ObjectReference

OWNER = controller_reference("apps/v1", "ReplicaSet", ObjectMeta(name="rs", namespace="ns", uid="u"))
ABOUT = ObjectReference(
    api_version="apps/v1", kind="ReplicaSet", namespace="ns", name="rs", uid="u", resource_version="1"
)


@pytest.mark.row("R-077")
def test_a_pod_takes_the_template_and_nothing_else() -> None:
    template = PodTemplate(
        metadata=ObjectMeta(name="x", namespace="y", labels={"a": "b"}, annotations={"c": "d"}, finalizers=("e/f",)),
        spec={"containers": [{"name": "c", "fieldFromTheFuture": {"deep": [1, None]}}], "unknown": True},
    )
    assert json.loads(pod_body(template, "rs", OWNER)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "rs-",
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["e/f"],
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "rs",
                    "uid": "u",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template.spec,
    }


@pytest.mark.row("R-079")
def test_a_template_without_labels_makes_no_pod() -> None:
    with pytest.raises(PodTemplateError, match=r"^unable to create pods, no labels$"):
        pod_body(PodTemplate(), "rs", OWNER)


class Api:
    """Answers like the server, or refuses."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def create(self, _resource: Resource[Pod], namespace: str, _body: bytes) -> Pod:
        if self._error is not None:
            raise self._error
        return Pod(metadata=ObjectMeta(name="rs-x", namespace=namespace))

    async def delete(self, _resource: Resource[Pod], _namespace: str, _name: str) -> None:
        if self._error is not None:
            raise self._error


def control(error: Exception | None = None) -> tuple[RealPodControl, FakeRecorder]:
    recorder = FakeRecorder()
    return RealPodControl(cast("Client", Api(error)), recorder), recorder


def refusal(code: int, reason: str, *causes: str) -> StatusError:
    details = StatusDetails(causes=tuple(StatusCause(reason=cause) for cause in causes))
    return StatusError(Status(message="no, sorry", reason=reason, code=code, details=details))


@pytest.mark.row("R-080", "R-087")
async def test_what_succeeds_is_told() -> None:
    pods, recorder = control()
    await pods.create("ns", b"{}", ABOUT)
    await pods.delete("ns", "rs-x", ABOUT)
    assert [(event.type, event.reason, event.message) for event in recorder.occurrences] == [
        ("Normal", "SuccessfulCreate", "Created pod: rs-x"),
        ("Normal", "SuccessfulDelete", "Deleted pod: rs-x"),
    ]
    assert {event.about for event in recorder.occurrences} == {ABOUT}


@pytest.mark.row("R-081", "R-089")
async def test_what_fails_is_told() -> None:
    pods, recorder = control(refusal(403, "Forbidden"))
    with pytest.raises(StatusError):
        await pods.create("ns", b"{}", ABOUT)
    with pytest.raises(DeletePodError, match=r"^unable to delete pods: no, sorry$"):
        await pods.delete("ns", "rs-x", ABOUT)
    assert [(event.type, event.reason, event.message) for event in recorder.occurrences] == [
        ("Warning", "FailedCreate", "Error creating: no, sorry"),
        ("Warning", "FailedDelete", "Error deleting: no, sorry"),
    ]


@pytest.mark.row("R-075", "R-088", "R-154")
async def test_a_terminating_namespace_and_a_vanished_pod_are_no_news() -> None:
    pods, recorder = control(refusal(403, "Forbidden", "NamespaceTerminating"))
    with pytest.raises(StatusError):
        await pods.create("ns", b"{}", ABOUT)
    pods, _ = control(refusal(404, "NotFound"))
    with pytest.raises(StatusError):
        await pods.delete("ns", "rs-x", ABOUT)
    assert recorder.occurrences == []
