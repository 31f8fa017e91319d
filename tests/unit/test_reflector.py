"""The reflector and informer against a scripted API."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kcm.api.client import Client
from kcm.api.errors import Status, StatusError, TransportError
from kcm.api.lists import ListMeta
from kcm.api.resources import PODS, Resource
from kcm.api.types.core import Pod
from kcm.informers.metrics import InformerMetrics
from kcm.informers.shared_informer import SharedInformer
from kcm.informers.store import Tombstone
from kcm.logs import capture
from tests.clocks import LoopClock

END = {"k8s.io/initial-events-end": "true"}


def document(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version), "labels": labels}}


def pod(name: str, version: int) -> Pod:
    return PODS.decode(json.dumps(document(name, version)).encode())


def event(kind: str, obj: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int, **annotations: str) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


def snapshot(version: int, *documents: Mapping[str, Any]) -> bytes:
    return b"".join(event("ADDED", doc) for doc in documents) + event(
        "BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": END}}
    )


def refusal(code: int, reason: str) -> StatusError:
    return StatusError(Status(message=reason, reason=reason, code=code))


@dataclass
class Page:
    """One page of a list."""

    metadata: ListMeta
    items: list[Pod]


@dataclass
class Api:
    """Answers each watch with the next script: chunks, errors to raise, events or seconds to wait for; then holds one open."""

    watches: list[list[bytes | Exception | asyncio.Event | float]]
    lists: list[Page | Exception] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def watch(
        self, _: Resource[Pod], *, params: Mapping[str, str], silence: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert silence == 180
        self.limits.append(int(params["timeoutSeconds"]))
        self.requests.append({key: value for key, value in params.items() if key != "timeoutSeconds"})
        if not self.watches:
            self.idle.set()
            await asyncio.Event().wait()
        steps = self.watches.pop(0)
        if steps and isinstance(steps[0], Exception):
            raise steps[0]

        async def chunks() -> AsyncIterator[bytes]:
            for step in steps:
                if isinstance(step, bytes):
                    yield step
                elif isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    raise step

        yield chunks()

    async def list(
        self, _: Resource[Pod], *, params: Mapping[str, str], take: Callable[[Pod], Awaitable[None]]
    ) -> ListMeta:
        self.requests.append({"list": "", **params})
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for pod in answer.items:
            await take(pod)
        return answer.metadata


class Heard:
    """What a handler heard."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def add(self, pod: Pod) -> None:
        self.log.append(f"+{pod.metadata.name}@{pod.metadata.resource_version}")

    def update(self, old: Pod, new: Pod) -> None:
        self.log.append(f"{old.metadata.name}@{old.metadata.resource_version}>{new.metadata.resource_version}")

    def delete(self, deleted: Pod | Tombstone[Pod]) -> None:
        mark, pod = ("?", deleted.last) if isinstance(deleted, Tombstone) else ("-", deleted)
        self.log.append(f"{mark}{pod.metadata.name}@{pod.metadata.resource_version}")


@asynccontextmanager
async def informing(
    api: Api, metrics: InformerMetrics | None = None
) -> AsyncIterator[tuple[SharedInformer[Pod], list[str]]]:
    """Run an informer until the script is through."""
    informer = SharedInformer(cast("Client", api), PODS, metrics=metrics, clock=LoopClock())
    heard = Heard()
    informer.add_handler(on_add=heard.add, on_update=heard.update, on_delete=heard.delete)
    task = asyncio.create_task(informer.run())
    try:
        idle = asyncio.create_task(api.idle.wait())
        await asyncio.wait({task, idle}, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        if task.done():
            await task
        yield informer, heard.log
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("M-006", "M-007", "M-008", "M-026", "M-042")
@pytest.mark.looptime
async def test_a_streamed_snapshot_is_taken_at_once_and_followed_on_the_same_stream() -> None:
    more = asyncio.Event()
    api = Api(
        [[event("ADDED", document("a", 1)), more, snapshot(5, document("b", 2)), event("MODIFIED", document("a", 6))]]
    )
    informer = SharedInformer(cast("Client", api), PODS, clock=LoopClock())
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(1)
    assert (len(informer.store), informer.has_synced) == (0, False), "nothing is stored before the closing bookmark"
    more.set()
    await informer.wait_synced()
    await api.idle.wait()
    assert sorted(pod.metadata.name for pod in informer.store) == ["a", "b"]
    assert informer.store.resource_version == "6"
    assert api.requests[0] == {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("M-019", "M-020", "M-041", "M-046", "M-134")
@pytest.mark.looptime
async def test_a_watch_that_ends_is_opened_again_from_where_it_stood() -> None:
    api = Api([[snapshot(5, document("a", 1)), 2.0], [event("MODIFIED", document("a", 7))], [bookmark(9)]])
    started = asyncio.get_running_loop().time()
    async with informing(api) as (informer, heard):
        assert asyncio.get_running_loop().time() - started == pytest.approx(2.0)
        assert heard == ["+a@1", "a@1>7"]
        assert informer.store.resource_version == "9"
    assert [request.get("resourceVersion") for request in api.requests] == [None, "5", "7", "9"]
    assert all("sendInitialEvents" not in request for request in api.requests[1:])


@pytest.mark.row("M-022", "M-035", "M-036", "M-038")
@pytest.mark.looptime
async def test_after_410_a_new_snapshot_tells_what_was_missed() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    api = Api(
        [
            [snapshot(5, document("a", 1), document("b", 2)), gone],
            [snapshot(20, document("b", 12), document("c", 13)), 2.0],
            [
                event("ADDED", document("c", 21)),
                event("MODIFIED", document("d", 22)),
                event("DELETED", document("b", 23)),
            ],
        ]
    )
    async with informing(api) as (informer, heard):
        assert heard == ["+a@1", "+b@2", "?a@1", "b@2>12", "+c@13", "c@13>21", "+d@22", "-b@23"]
        assert {pod.metadata.name for pod in informer.store} == {"c", "d"}
    assert api.requests[1]["resourceVersion"] == "5"


@pytest.mark.row("M-011", "M-016")
@pytest.mark.looptime
async def test_a_version_that_the_server_forgot_is_not_asked_for_again() -> None:
    api = Api([[snapshot(5), refusal(500, "x")], [refusal(410, "Expired")], [snapshot(30)]])
    async with informing(api):
        pass
    assert [request.get("resourceVersion") for request in api.requests] == [None, "5", None, "30"]


@pytest.mark.row("M-012", "M-014", "M-018")
@pytest.mark.looptime
async def test_a_server_that_cannot_stream_is_listed() -> None:
    first = Page(metadata=ListMeta(resource_version="8", continue_="more"), items=[pod("a", 1)])
    second = Page(metadata=ListMeta(resource_version="9"), items=[PODS.decode(json.dumps(document("b", 2)).encode())])
    api = Api([[refusal(422, "Invalid")]], [first, second])
    async with informing(api) as (informer, heard):
        assert heard == ["+a@1", "+b@2"]
        assert informer.has_synced
    assert [r for r in api.requests if "list" in r] == [
        {"list": "", "resourceVersion": "0", "limit": "500"},
        {"list": "", "limit": "500", "continue": "more"},
    ]
    assert api.requests[-1]["resourceVersion"] == "9"


@pytest.mark.row("M-018")
@pytest.mark.looptime
async def test_a_server_that_paged_the_first_list_is_asked_for_pages_again() -> None:
    def pages(version: str) -> list[Page]:
        return [
            Page(ListMeta(resource_version="1", continue_="more"), [pod("a", 1)]),
            Page(ListMeta(resource_version=version), [pod("b", 2)]),
        ]

    no_streams = refusal(422, "Invalid")
    api = Api([[no_streams], [refusal(410, "Expired")], [no_streams]], [*pages("8"), *pages("9")])
    async with informing(api):
        pass
    assert [(r.get("resourceVersion"), r["limit"]) for r in api.requests if "list" in r] == [
        ("0", "500"),
        (None, "500"),
        ("8", "500"),
        (None, "500"),
    ]


@pytest.mark.row("M-015", "M-017")
@pytest.mark.looptime
async def test_a_list_that_expired_is_repeated_without_a_version() -> None:
    page = Page(metadata=ListMeta(resource_version="9"), items=[])
    api = Api([[refusal(400, "BadRequest")]], [refusal(410, "Gone"), page])
    async with informing(api):
        pass
    assert [r.get("resourceVersion") for r in api.requests if "list" in r] == ["0", None]


@pytest.mark.row("M-010", "M-021")
@pytest.mark.looptime
@pytest.mark.parametrize("error", [refusal(429, "TooManyRequests"), TransportError("no", connection_refused=True)])
async def test_a_server_that_is_away_is_waited_for_with_the_same_request(error: Exception) -> None:
    api = Api([[error], [snapshot(5, document("a", 1)), 2.0], [error], [event("DELETED", document("a", 6))]])
    started = asyncio.get_running_loop().time()
    async with informing(api) as (_, heard):
        waited = asyncio.get_running_loop().time() - started
        assert heard == ["+a@1", "-a@6"]
    assert 2.0 + 0.8 + 1.6 <= waited <= 2.0 + 1.6 + 3.2
    assert [request.get("resourceVersion") for request in api.requests] == [None, None, "5", "5", "6"]


@pytest.mark.row("M-024")
@pytest.mark.looptime
async def test_a_watch_that_ends_at_once_without_a_word_is_a_failure() -> None:
    api = Api([[snapshot(5), 2.0], [b""], [snapshot(6), 2.0]])
    with capture() as records:
        async with informing(api):
            pass
    assert [record.message for record in records if record.level == "error"] == ["Failed to watch"]
    assert "sendInitialEvents" in api.requests[2]


@pytest.mark.row("M-027")
@pytest.mark.looptime
async def test_what_cannot_be_understood_is_skipped_and_a_line_that_is_no_json_ends_the_watch() -> None:
    odd = event("ADDED", {"metadata": {"name": 7, "resourceVersion": "50"}}) + event("SURPRISE", document("x", 51))
    api = Api([[snapshot(5) + odd + bookmark(6) + b"{nonsense\n"], [snapshot(7, document("a", 7))]])
    with capture() as records:
        async with informing(api) as (_, heard):
            assert heard == ["+a@7"]
    assert {record.message for record in records if record.level == "error"} == {
        "Unexpected object in watch event",
        "Unable to understand watch event",
        "Failed to watch",
    }
    assert api.requests[1]["resourceVersion"] == "6"


@pytest.mark.looptime
async def test_a_watch_that_breaks_off_goes_on_without_a_new_snapshot() -> None:
    broken = TransportError("reset", answered=True)
    api = Api([[snapshot(5), 2.0, broken], [event("ADDED", document("a", 6))]])
    async with informing(api) as (_, heard):
        assert heard == ["+a@6"]
    assert [request.get("resourceVersion") for request in api.requests] == [None, "5", "6"]


@pytest.mark.row("M-053")
@pytest.mark.looptime
async def test_a_handler_that_raises_ends_the_informer() -> None:
    informer = SharedInformer(cast("Client", Api([[snapshot(5, document("a", 1))]])), PODS, clock=LoopClock())

    def broken(_: Pod) -> None:
        raise RuntimeError("bug")

    informer.add_handler(on_add=broken)
    with pytest.raises(ExceptionGroup) as caught:
        await informer.run()
    assert caught.group_contains(RuntimeError, match="bug")


@pytest.mark.row("M-049", "M-054")
@pytest.mark.looptime
async def test_the_store_is_ahead_of_handlers_and_a_late_handler_hears_of_everything() -> None:
    api = Api([[snapshot(5, document("a", 1))]])
    informer = SharedInformer(cast("Client", api), PODS, clock=LoopClock())
    seen: list[bool] = []
    informer.add_handler(on_add=lambda pod: seen.append(informer.store.get(pod.metadata.key) is pod))
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    late = Heard()
    informer.add_handler(on_add=late.add)
    assert seen == [True]
    assert late.log == ["+a@1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("M-031", "M-043")
@pytest.mark.looptime
async def test_resync_repeats_what_is_stored() -> None:
    informer = SharedInformer(
        cast("Client", Api([[snapshot(5, document("a", 1))]])), PODS, resync_period=3600, clock=LoopClock()
    )
    heard = Heard()
    informer.add_handler(on_update=heard.update)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(7201)
    assert heard.log == ["a@1>1", "a@1>1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("M-001")
@pytest.mark.looptime
async def test_each_watch_has_a_time_limit_of_its_own() -> None:
    api = Api([[snapshot(5), 2.0]])
    api.watches += [[bookmark(number)] for number in range(6, 40)]
    async with informing(api):
        pass
    assert all(300 <= limit <= 600 for limit in api.limits)
    assert len(set(api.limits)) > 10


@pytest.mark.row("M-009")
@pytest.mark.looptime
async def test_a_stream_that_ends_before_its_closing_bookmark_starts_over_from_nothing() -> None:
    api = Api([[event("ADDED", document("gone", 1)), 2.0], [snapshot(6, document("a", 2)), 2.0]])
    async with informing(api) as (informer, heard):
        assert heard == ["+a@2"]
        assert [pod.metadata.name for pod in informer.store] == ["a"]
    assert all("sendInitialEvents" in request for request in api.requests[:2])


@pytest.mark.row("M-005", "M-023", "M-029")
@pytest.mark.looptime
@pytest.mark.parametrize(("code", "reason", "loud"), [(500, "InternalError", True), (410, "Expired", False)])
async def test_a_refusal_inside_a_stream_ends_the_round(code: int, reason: str, *, loud: bool) -> None:
    error = event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": reason})
    api = Api([[snapshot(5), 2.0, error], [snapshot(6), 2.0]])
    started = asyncio.get_running_loop().time()
    with capture() as records:
        async with informing(api):
            assert 2.0 + 0.8 <= asyncio.get_running_loop().time() - started - 2.0 <= 2.0 + 1.6
    assert "sendInitialEvents" in api.requests[1]
    assert [record.message for record in records if record.level == "error"] == (["Failed to watch"] if loud else [])


class Told:
    """What an informer told of itself."""

    def __init__(self) -> None:
        self.snapshots: list[str] = []
        self.changes = 0

    def started(self, *, store_version: Callable[[], str], silence: Callable[[], float]) -> None:
        self.store_version, self.silence = store_version, silence

    def snapshot(self, reason: str) -> None:
        self.snapshots.append(reason)

    def processed(self, seconds: float) -> None:
        assert seconds >= 0
        self.changes += 1


@pytest.mark.row("M-106")
@pytest.mark.looptime
async def test_an_informer_tells_why_it_lists_and_how_long_it_heard_nothing() -> None:
    gone = event("ERROR", {"code": 410, "reason": "Expired"})
    failed = event("ERROR", {"code": 500, "reason": "InternalError"})
    broken = TransportError("no route")
    api = Api(
        [
            [snapshot(5), event("ADDED", document("a", 6)), gone],
            [snapshot(7), failed],
            [snapshot(8), b"nonsense\n"],
            [snapshot(9), 2.0], [],
            [snapshot(10), 2.0], [broken],
            [snapshot(11), 7.0],
        ]
    )  # fmt: skip
    told = Told()
    async with informing(api, told):
        assert told.snapshots == ["start", "expired", "refused", "malformed", "short watch", "connection"]
        assert told.changes == 1
        assert told.store_version() == "11"
        assert told.silence() == 7.0


@pytest.mark.row("M-030")
@pytest.mark.looptime
async def test_a_filled_cache_is_told_once_at_verbosity_2() -> None:
    api = Api(
        [[snapshot(5), 2.0], [bookmark(6)], [event("ERROR", {"code": 410, "reason": "Expired"})], [snapshot(7), 2.0]]
    )
    with capture(verbosity=2) as records:
        async with informing(api):
            pass
    assert [record.message for record in records if record.message == "Caches populated"] == ["Caches populated"]
