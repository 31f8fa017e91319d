"""The client against a scripted server on loopback."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web

from kcm.api import transport
from kcm.api.client import Client, Fence
from kcm.api.errors import (
    FencedError,
    StatusError,
    TransportError,
    is_conflict,
    is_namespace_terminating,
    is_not_found,
)
from kcm.api.resources import PODS
from kcm.api.transport import Endpoint, Transport
from kcm.api.types.core import Pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POD = {"metadata": {"name": "p", "namespace": "ns"}}


class Anonymous:
    async def authorization(self) -> str | None:
        return None

    async def tls(self) -> ssl.SSLContext | None:
        return None

    async def rejected(self, authorization: str | None) -> None:
        raise AssertionError("nobody was rejected")

    async def close(self) -> None:
        pass


class Metrics:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.sizes: list[tuple[int | None, int | None]] = []

    def request(
        self, *, verb: str, host: str, code: str, seconds: float, sent: int | None = None, received: int | None = None
    ) -> None:
        assert host.startswith("127.0.0.1:")
        assert seconds >= 0
        self.seen.append((verb, code))
        self.sizes.append((sent, received))

    def throttled(self, *, verb: str, host: str, seconds: float) -> None:
        pass

    def retried(self, *, verb: str, host: str, code: str) -> None:
        self.seen.append(("retry", code))


@asynccontextmanager
async def serving(
    handler: Handler, *, fence: Fence | None = None, metrics: Metrics | None = None, timeout: float = 70
) -> AsyncIterator[Client]:
    runner = web.AppRunner(_app(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        async with Transport(Endpoint(server=f"http://{host}:{port}/prefix"), Anonymous()) as transport:
            yield Client(transport, user_agent="test/1", qps=-1, fence=fence, metrics=metrics, timeout=timeout)
    finally:
        await runner.cleanup()


def _app(handler: Handler) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return app


async def nobody(pod: Pod) -> None:
    raise AssertionError(f"there is {pod.metadata.name}")


def script(*answers: web.Response) -> tuple[Handler, list[web.Request]]:
    """A server that gives these answers in turn and keeps the requests."""
    requests: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        await request.read()
        requests.append(request)
        return answers[len(requests) - 1]

    return handler, requests


async def test_requests_are_what_the_server_expects() -> None:
    handler, requests = script(*(web.json_response(POD) for _ in range(5)), web.json_response({}))
    async with serving(handler) as client:
        assert (await client.get(PODS, "ns", "p")).metadata.name == "p"
        await client.create(PODS, "ns", b'{"a":1}')
        await client.update(PODS, "ns", "p", {"b": 2}, subresource="status")
        await client.patch(PODS, "ns", "p", b"{}")
        await client.delete(PODS, "ns", "p")
        await client.list(PODS, params={"limit": "1"}, take=nobody)
    assert [(r.method, r.path_qs) for r in requests] == [
        ("GET", "/prefix/api/v1/namespaces/ns/pods/p"),
        ("POST", "/prefix/api/v1/namespaces/ns/pods"),
        ("PUT", "/prefix/api/v1/namespaces/ns/pods/p/status"),
        ("PATCH", "/prefix/api/v1/namespaces/ns/pods/p"),
        ("DELETE", "/prefix/api/v1/namespaces/ns/pods/p"),
        ("GET", "/prefix/api/v1/pods?limit=1"),
    ]
    assert {r.headers["User-Agent"] for r in requests} == {"test/1"}
    assert requests[1].headers["Content-Type"] == "application/json"
    assert requests[3].headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert "Accept-Encoding" not in requests[0].headers


@pytest.mark.row("R-153", "R-154")
async def test_refusals_keep_what_the_server_said() -> None:
    status = {
        "kind": "Status",
        "message": "namespace is going",
        "reason": "Forbidden",
        "code": 403,
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]},
    }
    handler, _ = script(
        web.json_response(status, status=403),
        web.Response(status=404, text="no such page"),
        web.Response(status=409, body=b"\xff"),
    )
    async with serving(handler) as client:
        with pytest.raises(StatusError, match=r"^namespace is going$") as caught:
            await client.create(PODS, "ns", b"{}")
        assert is_namespace_terminating(caught.value)
        assert not is_not_found(caught.value)
        with pytest.raises(StatusError, match=r"404 to GET /api/v1/namespaces/ns/pods/p: no such page") as caught:
            await client.get(PODS, "ns", "p")
        assert is_not_found(caught.value)
        with pytest.raises(StatusError) as caught:
            await client.update(PODS, "ns", "p", b"{}")
        assert is_conflict(caught.value)


@pytest.mark.row("M-100", "M-102", "M-105")
async def test_an_answer_is_retried_only_when_it_says_when() -> None:
    metrics = Metrics()
    handler, requests = script(
        web.Response(status=429, headers={"Retry-After": "0"}),
        web.Response(status=503, headers={"Retry-After": "0"}),
        web.json_response(POD, status=201),
        web.Response(status=429),
        web.Response(status=404, headers={"Retry-After": "0"}),
        web.Response(status=500, headers={"Retry-After": "soon"}),
    )
    async with serving(handler, metrics=metrics) as client:
        await client.create(PODS, "ns", b"{}")
        for code in (429, 404, 500):
            with pytest.raises(StatusError) as caught:
                await client.create(PODS, "ns", b"{}")
            assert caught.value.code == code
    assert len(requests) == 6
    assert metrics.seen[:5] == [
        ("POST", "429"),
        ("retry", "429"),
        ("POST", "503"),
        ("retry", "503"),
        ("POST", "201"),
    ]
    assert metrics.sizes[2] == (2, len(json.dumps(POD)))


@pytest.mark.row("M-101", "M-104")
async def test_retries_end_after_ten_and_the_error_tells_of_the_one_before() -> None:
    busy = [web.Response(status=429, headers={"Retry-After": "0"}, text=f"no {number}") for number in range(11)]
    handler, requests = script(*busy)
    async with serving(handler) as client:
        with pytest.raises(StatusError) as caught:
            await client.get(PODS, "ns", "p")
    assert len(requests) == 11
    assert "no 10" in str(caught.value)
    assert "no 9" in caught.value.__notes__[0]


@pytest.mark.row("M-103")
async def test_only_reads_are_repeated_after_a_lost_connection() -> None:
    calls: list[str] = []

    async def hang_up(request: web.Request) -> web.Response:
        calls.append(request.method)
        if len(calls) in {1, 3}:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(POD)

    metrics = Metrics()
    async with serving(hang_up, metrics=metrics) as client:
        await client.get(PODS, "ns", "p")
        with pytest.raises(TransportError) as caught:
            await client.create(PODS, "ns", b"{}")
    assert caught.value.connection_lost
    assert calls == ["GET", "GET", "POST"]
    assert metrics.seen[:3] == [("GET", "<error>"), ("retry", "<error>"), ("GET", "200")]


async def test_nobody_at_the_address_is_told_apart() -> None:
    async with Transport(Endpoint(server="http://127.0.0.1:1"), Anonymous()) as transport:
        with pytest.raises(TransportError, match=r"^cannot connect to 127.0.0.1:1: Connection refused$") as caught:
            await Client(transport, user_agent="x").get(PODS, "ns", "p")
    assert caught.value.connection_refused


async def test_a_silent_server_is_given_up_and_the_connection_freed() -> None:
    release = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await release.wait()
        return web.json_response(POD)

    async with serving(silent, timeout=0.05) as client:
        with pytest.raises(TransportError):
            await client.create(PODS, "ns", b"{}")
        task = asyncio.create_task(client.get(PODS, "ns", "p"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        assert (await client.get(PODS, "ns", "p")).metadata.name == "p"


async def test_the_fence_keeps_writes_back_and_lets_reads_pass() -> None:
    handler, requests = script(web.json_response(POD))

    def closed() -> None:
        raise FencedError("lost")

    async with serving(handler, fence=closed) as client:
        for write in (client.create(PODS, "ns", b"{}"), client.delete(PODS, "ns", "p")):
            with pytest.raises(FencedError):
                await write
        await client.get(PODS, "ns", "p")
    assert [request.method for request in requests] == ["GET"]


async def test_the_fence_is_asked_again_when_the_body_is_about_to_be_sent() -> None:
    asked = 0

    def closes() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise FencedError("lost while connecting")

    handler, requests = script(web.json_response(POD))
    async with serving(handler, fence=closes) as client:
        with pytest.raises(FencedError, match="while connecting"):
            await client.create(PODS, "ns", b"{}")
    assert asked == 2
    assert requests == []


async def test_a_stream_is_passed_on_as_it_comes_and_its_silence_ends_it() -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        if request.query.get("then") == "end":
            return response
        await asyncio.Event().wait()
        return response

    async with serving(trickle) as client:
        async with client.watch(PODS, params={"then": "end"}) as chunks:
            assert [chunk async for chunk in chunks] == [b"one\n"]
        async with client.watch(PODS, params={}, silence=0.05) as chunks:
            assert await anext(chunks) == b"one\n"
            with pytest.raises(TransportError) as caught:
                await anext(chunks)
    assert caught.value.answered


@pytest.mark.row("M-108")
async def test_opening_a_watch_is_repeated_as_other_requests_are() -> None:
    calls = 0

    async def busy(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if calls == 1:
            return web.Response(status=503, headers={"Retry-After": "0"})
        if calls == 2:
            assert request.transport is not None
            request.transport.close()
        return web.Response(body=b"one\n")

    metrics = Metrics()
    async with serving(busy, metrics=metrics) as client, client.watch(PODS, params={}) as chunks:
        assert [chunk async for chunk in chunks] == [b"one\n"]
    assert metrics.seen == [("GET", "503"), ("retry", "503"), ("GET", "<error>"), ("retry", "<error>"), ("GET", "200")]


def pod_list(count: int, **metadata: str) -> bytes:
    """A list as the API server writes it."""
    pods = [{"metadata": {"name": f"p{number}", "annotations": {"odd": '},{"metadata"]}'}}} for number in range(count)]
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", **metadata}, "items": pods}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


async def test_the_objects_of_a_list_are_handed_over_before_its_end_is_there() -> None:
    body = pod_list(1000, **{"continue": "more"})
    first_taken = asyncio.Event()
    names: list[str] = []

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        await first_taken.wait()
        await response.write(body[len(body) // 2 :])
        return response

    async def take(pod: Pod) -> None:
        names.append(pod.metadata.name)
        first_taken.set()

    async with serving(slowly) as client:
        listed = await client.list(PODS, take=take)
    assert names == [f"p{number}" for number in range(1000)]
    assert (listed.resource_version, listed.continue_) == ("7", "more")


async def test_a_list_that_breaks_off_is_an_error_and_not_asked_for_again() -> None:
    calls = 0

    async def breaks_off(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(pod_list(10)[:300])
        assert request.transport is not None
        request.transport.abort()
        return response

    async def take(_: Pod) -> None:
        pass

    async with serving(breaks_off) as client:
        with pytest.raises(TransportError):
            await client.list(PODS, take=take)
    assert calls == 1


async def test_a_list_that_stands_still_is_given_up() -> None:
    async def stands_still(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(pod_list(1)[:30])
        await asyncio.Event().wait()
        return response

    async with serving(stands_still, timeout=0.1) as client:
        with pytest.raises(TransportError):
            await client.list(PODS, take=nobody)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this kernel cannot be asked to")
async def test_a_dead_peer_is_found_within_45_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    def keep(address: aiohttp.AddrInfoType) -> socket.socket:
        made.append(watched(address))
        return made[-1]

    handler, _ = script(web.json_response(POD))
    watched = transport._watched_socket
    monkeypatch.setattr(transport, "_watched_socket", keep)
    async with serving(handler) as client:
        await client.get(PODS, "ns", "p")
        (used,) = made
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = [
            used.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        ]
    idle, interval, count, unanswered = tcp
    assert idle + interval * count == 45
    assert unanswered == 45_000


async def test_a_refused_watch_is_an_error() -> None:
    gone = {"kind": "Status", "message": "too old", "reason": "Expired", "code": 410}
    handler, requests = script(web.json_response(gone, status=410))
    async with serving(handler) as client:
        with pytest.raises(StatusError, match="too old"):
            async with client.watch(PODS, params={"resourceVersion": "1"}):
                pass
    assert requests[0].query == {"resourceVersion": "1", "watch": "1"}


def test_one_pod_decodes_to_what_is_read_of_it() -> None:
    pod = PODS.decode(
        msgspec.json.encode(
            {
                "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [{}]},
                "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
                },
            }
        )
    )
    assert (pod.spec.node_name, pod.status.phase, pod.status.conditions[0].status) == ("n", "Running", "True")
