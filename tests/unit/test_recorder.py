"""Recording never waits; one task writes, repeats what did not get through, and gives up in the end."""

import asyncio
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from kcm.api.client import JSON, STRATEGIC_MERGE_PATCH, Body, Client
from kcm.api.errors import FencedError, Status, StatusCause, StatusDetails, StatusError, TransportError
from kcm.api.resources import EVENTS
from kcm.events.recorder import (
    EventBroadcaster,
    FakeRecorder,
    ObjectReference,
    Occurrence,
    event_name,
)
from kcm.logs import capture
from tests.clocks import START, FakeClock, LoopClock

RS = ObjectReference(
    api_version="apps/v1", kind="ReplicaSet", namespace="ns", name="web", uid="uid", resource_version="7"
)
UNREACHABLE = TransportError("connection refused", connection_refused=True)


def refusal(code: int, reason: str, *causes: str) -> StatusError:
    details = StatusDetails(causes=tuple(StatusCause(reason=cause) for cause in causes))
    return StatusError(Status(message=reason, reason=reason, code=code, details=details))


class Request(NamedTuple):
    method: str
    path: str
    body: dict[str, Any]
    content_type: str
    time: float


class ScriptedClient(Client):
    """Answers each request with the next outcome of a script, and with success after its end."""

    def __init__(self, *script: BaseException | None) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.answered = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        await self.gate.wait()
        sent = msgspec.json.decode(msgspec.json.encode(body))
        time = asyncio.get_running_loop().time()
        self.requests.append(Request(method, path, sent, content_type, time))
        self.answered.set()
        if self.script and (error := self.script.pop(0)) is not None:
            raise error
        return b"no JSON at all"

    async def wait_for(self, requests: int) -> list[Request]:
        while len(self.requests) < requests:
            self.answered.clear()
            await self.answered.wait()
        return self.requests


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.row("R-127", "M-112")
async def test_what_is_posted() -> None:
    client = ScriptedClient()
    async with EventBroadcaster(client, clock=FakeClock()) as broadcaster:
        broadcaster.recorder("replicaset-controller").event(RS, "Normal", "SuccessfulCreate", "Created pod: web-1")
        (request,) = await client.wait_for(1)
    nanoseconds = int(START.timestamp() + 1000) * 10**9
    assert request[:2] == ("POST", "/api/v1/namespaces/ns/events")
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"web.{nanoseconds:x}", "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "namespace": "ns",
            "name": "web",
            "uid": "uid",
            "resourceVersion": "7",
        },
        "reason": "SuccessfulCreate",
        "message": "Created pod: web-1",
        "source": {"component": "replicaset-controller"},
        "firstTimestamp": "2026-01-02T03:20:45Z",
        "lastTimestamp": "2026-01-02T03:20:45Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "replicaset-controller",
    }


@pytest.mark.row("M-112")
async def test_events_about_cluster_scoped_objects_go_to_default() -> None:
    client = ScriptedClient()
    async with EventBroadcaster(client) as broadcaster:
        broadcaster.recorder("c").event(ObjectReference(kind="Node", name="n"), "Warning", "R", "m")
        (request,) = await client.wait_for(1)
    assert request.path == "/api/v1/namespaces/default/events"
    assert request.body["metadata"]["namespace"] == "default"


@pytest.mark.row("M-111", "R-127")
@pytest.mark.parametrize("name", ["x" * 253, "Upper", "under_score", "trailing-", "two..dots", ""])
def test_a_name_that_would_be_invalid_becomes_a_random_uuid(name: str) -> None:
    first, second = (event_name(name, 0x18A1) for _ in range(2))
    assert uuid.UUID(first).version == 4
    assert first != second


@pytest.mark.row("M-111")
@pytest.mark.parametrize("name", ["web", "a.b-c.1", "x" * 248])
def test_a_valid_name_has_the_time_in_hex(name: str) -> None:
    assert event_name(name, 0x18A1) == f"{name}.18a1"


async def test_names_differ_though_the_clock_stands() -> None:
    client = ScriptedClient()
    async with EventBroadcaster(client, clock=FakeClock()) as broadcaster:
        recorder = broadcaster.recorder("c")
        for number in range(9):
            recorder.event(RS, "Normal", "R", f"{number}")
        requests = await client.wait_for(9)
    assert len({request.body["metadata"]["name"] for request in requests}) == 9
    assert [request.body["message"] for request in requests] == [str(number) for number in range(9)]


@pytest.mark.row("M-117", "R-129")
async def test_a_repetition_patches_count_time_and_message() -> None:
    client, clock = ScriptedClient(), FakeClock()
    async with EventBroadcaster(client, clock=clock) as broadcaster:
        recorder = broadcaster.recorder("c")
        recorder.event(RS, "Normal", "R", "m")
        clock.seconds += 60
        recorder.event(RS, "Normal", "R", "m")
        first, second = await client.wait_for(2)
    assert second[:2] == ("PATCH", f"/api/v1/namespaces/ns/events/{first.body['metadata']['name']}")
    assert second.content_type == STRATEGIC_MERGE_PATCH
    assert second.body == {"count": 2, "lastTimestamp": "2026-01-02T03:21:45Z", "message": "m"}


@pytest.mark.row("M-118", "R-129")
async def test_a_repetition_of_an_event_that_is_gone_creates_it_with_its_count() -> None:
    client = ScriptedClient(None, refusal(404, "NotFound"))
    async with EventBroadcaster(client) as broadcaster:
        recorder = broadcaster.recorder("c")
        recorder.event(RS, "Normal", "R", "m")
        recorder.event(RS, "Normal", "R", "m")
        requests = await client.wait_for(3)
    assert [request.method for request in requests] == ["POST", "PATCH", "POST"]
    first, again = requests[0].body, requests[2].body
    assert again["metadata"] == first["metadata"]
    assert again["count"] == 2


@pytest.mark.row("M-122", "R-131")
@pytest.mark.parametrize(
    ("error", "level", "v"),
    [
        (refusal(403, "Forbidden"), "error", None),
        (refusal(404, "NotFound"), "error", None),
        (refusal(409, "Conflict"), "error", None),
        (refusal(422, "Invalid"), "error", None),
        (refusal(500, "InternalError"), "error", None),
        (refusal(409, "AlreadyExists"), "info", 5),
        (refusal(403, "Forbidden", "NamespaceTerminating"), "info", 5),
    ],
)
async def test_a_refused_event_is_logged_and_not_tried_again(error: StatusError, level: str, v: int | None) -> None:
    client = ScriptedClient(error)
    with capture() as records:
        async with EventBroadcaster(client) as broadcaster:
            recorder = broadcaster.recorder("c")
            recorder.event(RS, "Normal", "R", "refused")
            recorder.event(RS, "Normal", "R", "next")
            requests = await client.wait_for(2)
    assert [request.body["message"] for request in requests] == ["refused", "next"]
    logged = [record for record in records if record.message == "Server rejected event (will not retry!)"]
    assert [(record.level, record.v) for record in logged] == [(level, v)]


@pytest.mark.row("M-123", "M-124", "R-131")
@pytest.mark.looptime
async def test_an_event_that_cannot_be_sent_is_tried_twelve_times_and_holds_up_the_next() -> None:
    client = ScriptedClient(*[UNREACHABLE] * 12)
    with capture(verbosity=0) as records:
        async with EventBroadcaster(client, clock=LoopClock()) as broadcaster:
            recorder = broadcaster.recorder("c")
            recorder.event(RS, "Normal", "R", "lost")
            recorder.event(RS, "Normal", "R", "next")
            requests = await client.wait_for(13)
    assert [request.body["message"] for request in requests] == ["lost"] * 12 + ["next"]
    gaps = [later.time - earlier.time for earlier, later in pairwise(requests)]
    assert 0 <= gaps[0] < 10
    assert gaps[1:] == pytest.approx([10.0] * 10 + [0.0])
    assert [record.message for record in records] == [
        *["Unable to write event (may retry after sleeping)"] * 12,
        "Unable to write event (retry limit exceeded!)",
    ]


@pytest.mark.row("M-123")
@pytest.mark.looptime
async def test_an_event_gets_through_when_the_server_is_back() -> None:
    client = ScriptedClient(UNREACHABLE, UNREACHABLE)
    async with EventBroadcaster(client, clock=LoopClock()) as broadcaster:
        broadcaster.recorder("c").event(RS, "Normal", "R", "m")
        requests = await client.wait_for(3)
    assert len({request.body["metadata"]["name"] for request in requests}) == 1


@pytest.mark.row("M-125")
@pytest.mark.looptime
async def test_leaving_ends_a_retry_at_once_and_drops_the_rest() -> None:
    client = ScriptedClient(UNREACHABLE)
    with capture(verbosity=0) as records:
        async with EventBroadcaster(client, clock=LoopClock()) as broadcaster:
            recorder = broadcaster.recorder("c")
            recorder.event(RS, "Normal", "R", "m")
            recorder.event(RS, "Normal", "R", "dropped")
            await client.wait_for(1)
            await settle()
            left = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() == left
    assert len(client.requests) == 1
    assert records[-1].message == "Unable to write event (broadcaster is shut down)"
    recorder.event(RS, "Normal", "R", "too late")


@pytest.mark.row("M-109", "R-131")
async def test_recording_does_not_wait_and_drops_with_an_error_what_1000_others_are_ahead_of() -> None:
    client = ScriptedClient()
    client.gate.clear()
    with capture(verbosity=0) as records:
        async with EventBroadcaster(client) as broadcaster:
            recorder = broadcaster.recorder("c")
            recorder.event(RS, "Normal", "R", "being written")
            await settle()
            for number in range(1001):
                recorder.event(ObjectReference(kind="Pod", namespace="ns", name=f"p{number}"), "Normal", "R", "m")
            assert [record.message for record in records] == [
                "Unable to record event: too many queued events, dropped event"
            ]
            client.gate.set()
            requests = await client.wait_for(1001)
            await settle()
    assert len(requests) == 1001
    assert requests[-1].body["involvedObject"]["name"] == "p999"


async def test_what_is_recorded_before_the_start_is_written_then() -> None:
    client = ScriptedClient()
    broadcaster = EventBroadcaster(client)
    broadcaster.recorder("c").event(RS, "Normal", "R", "m")
    async with broadcaster:
        await client.wait_for(1)


@pytest.mark.row("M-110")
@pytest.mark.parametrize("event_type", ["", "normal", "Error"])
async def test_an_unknown_type_is_logged_and_not_sent(event_type: str) -> None:
    client = ScriptedClient()
    with capture(verbosity=0) as records:
        async with EventBroadcaster(client) as broadcaster:
            recorder = broadcaster.recorder("c")
            recorder.event(RS, event_type, "R", "m")
            recorder.event(RS, "Normal", "R", "good")
            (request,) = await client.wait_for(1)
    assert request.body["message"] == "good"
    assert [(record.message, record.pairs["eventType"]) for record in records] == [
        ("Unsupported event type", event_type)
    ]


@pytest.mark.row("M-113")
@pytest.mark.parametrize("verbosity", [0, 3])
async def test_every_event_is_logged_even_those_that_are_filtered(verbosity: int) -> None:
    client = ScriptedClient()
    with capture(verbosity=verbosity) as records:
        async with EventBroadcaster(client, verbosity=verbosity) as broadcaster:
            recorder = broadcaster.recorder("c")
            for _ in range(30):
                recorder.event(RS, "Warning", "FailedCreate", "no quota")
            await client.wait_for(25)
            await settle()
    assert len(client.requests) == 25
    assert len(records) == 30
    assert records[0] == (
        "info",
        "Event occurred",
        verbosity,
        {
            "object": "ns/web",
            "fieldPath": "",
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "no quota",
        },
    )


async def test_events_are_not_logged_below_their_verbosity() -> None:
    with capture(verbosity=2) as records:
        async with EventBroadcaster(ScriptedClient()) as broadcaster:
            broadcaster.recorder("c").event(RS, "Normal", "R", "m")
    assert records == []


async def test_an_error_of_the_body_leaves_unwrapped() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with EventBroadcaster(ScriptedClient()):
            raise KeyError("mine")


@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), FencedError("the lease is not held")])
async def test_what_breaks_the_writing_task_ends_the_body(error: BaseException) -> None:
    async def body() -> None:
        async with EventBroadcaster(ScriptedClient(error)) as broadcaster:
            broadcaster.recorder("c").event(RS, "Normal", "R", "m")
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        await body()
    assert caught.value.exceptions == (error,)


async def test_cancelling_the_body_cancels_it() -> None:
    entered = asyncio.Event()

    async def body() -> None:
        async with EventBroadcaster(ScriptedClient()):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_fake_recorder_collects() -> None:
    recorder = FakeRecorder()
    recorder.event(RS, "Normal", "R", "m")
    assert recorder.occurrences == [Occurrence(RS, "Normal", "R", "m")]


def test_events_are_read_back_as_they_are_written() -> None:
    data = b"""{"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": {"kind": "Pod", "name": "p"}, "count": 2,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": null, "eventTime": null, "reportingInstance": ""}"""
    event = EVENTS.decode(re.sub(rb"\s+", b" ", data))
    assert (event.metadata.name, event.involved_object.name, event.count) == ("e", "p", 2)
    assert event.first_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
