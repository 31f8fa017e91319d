"""Typed requests to the API server. Follows client-go rest/{client,request,with_retry}.go.

Guarantees:
- Every request but a watch takes a token of the client's bucket; so does every retry.
- An answer is retried only if the server said when (429 or 5xx with Retry-After), a failed connection only for GET: whatever
  may have been carried out is not sent twice.
- With a fence, no mutating request leaves the process after the fence says stop; it is asked last when the body is written.
- Cancelling a request at any await frees its connection.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from kcm.api.errors import StatusError, TransportError, status_error
from kcm.api.flowcontrol import TokenBucket
from kcm.api.lists import ListMeta, ListReader
from kcm.api.resources import Resource, T
from kcm.api.transport import Answer, Stream, Transport
from kcm.logs import get_logger

log = get_logger(__name__)

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"

#: Seconds that any request but a watch may take; the server gives up after 60.
REQUEST_TIMEOUT = 70.0
MAX_RETRIES = 10

Body = bytes | Mapping[str, Any] | msgspec.Struct
Fence = Callable[[], None]


class ClientMetrics(Protocol):
    """What the client tells of its requests; `verb` is the HTTP method, `code` the status or `<error>`."""

    def request(
        self, *, verb: str, host: str, code: str, seconds: float, sent: int | None = None, received: int | None = None
    ) -> None:
        """One try was answered, or failed; with the sizes of the bodies in bytes, as far as they are known."""

    def throttled(self, *, verb: str, host: str, seconds: float) -> None:
        """The bucket made a request wait."""

    def retried(self, *, verb: str, host: str, code: str) -> None:
        """A request is sent again."""


class NoMetrics:
    """Tells nobody."""

    def request(
        self, *, verb: str, host: str, code: str, seconds: float, sent: int | None = None, received: int | None = None
    ) -> None:
        """Drop it."""

    def throttled(self, *, verb: str, host: str, seconds: float) -> None:
        """Drop it."""

    def retried(self, *, verb: str, host: str, code: str) -> None:
        """Drop it."""


R = TypeVar("R")


class Client:
    """One user of the API: a bucket, a user agent and a fence over an identity's shared connections."""

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str,
        qps: float = 20,
        burst: int = 30,
        timeout: float = REQUEST_TIMEOUT,
        fence: Fence | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        self._transport = transport
        self._headers = {"User-Agent": user_agent, "Accept": JSON}
        self._bucket = TokenBucket(qps, burst)
        self._timeout = timeout
        self._fence = fence
        self._metrics: ClientMetrics = metrics or NoMetrics()

    @property
    def host(self) -> str:
        """Host and port of the server."""
        return self._transport.host

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object from the server, past every cache.

        Raises:
            StatusError: refused, or not there.
            TransportError: no answer.
        """
        return resource.decode(await self.request("GET", resource.path(namespace, name)))

    async def list(
        self,
        resource: Resource[T],
        *,
        take: Callable[[T], Awaitable[None]],
        namespace: str = "",
        params: Mapping[str, str] | None = None,
    ) -> ListMeta:
        """Read one page of a collection and hand over each of its objects as it arrives.

        Raises:
            StatusError: refused.
            TransportError: no answer, or not the whole of it; some objects may have been handed over.
            msgspec.DecodeError: the answer is no list of this resource.
        """
        path = resource.path(namespace)

        async def attempt() -> ListMeta:
            reader = ListReader(resource.decode)
            async with (
                self._stream(path, params or {}, silence=self._timeout) as stream,
                asyncio.timeout(self._timeout),
                aclosing(stream.chunks()) as chunks,
            ):
                async for chunk in chunks:
                    for obj in reader.feed(chunk):
                        await take(obj)
            metadata, rest = reader.close()
            for obj in rest:
                await take(obj)
            return metadata

        return await self._retrying("GET", path, attempt)

    async def create(self, resource: Resource[T], namespace: str, body: Body) -> T:
        """POST a new object and return what the server made of it. Raises as `get`."""
        return resource.decode(await self.request("POST", resource.path(namespace), body=body))

    async def update(self, resource: Resource[T], namespace: str, name: str, body: Body, *, subresource: str = "") -> T:
        """PUT a whole object, guarded by the resourceVersion in it, or its subresource. Raises as `get`."""
        return resource.decode(await self.request("PUT", resource.path(namespace, name, subresource), body=body))

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, body: Body, *, content_type: str = STRATEGIC_MERGE_PATCH
    ) -> T:
        """PATCH an object. Raises as `get`."""
        path = resource.path(namespace, name)
        return resource.decode(await self.request("PATCH", path, body=body, content_type=content_type))

    async def delete(self, resource: Resource[T], namespace: str, name: str) -> None:
        """DELETE an object with default options and no precondition. Raises as `get`."""
        await self.request("DELETE", resource.path(namespace, name), body=_DELETE_OPTIONS)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer.

        Raises:
            StatusError: any other answer.
            TransportError: no answer within the time limit.
            FencedError: the fence forbade a mutating request.
        """
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}

        async def attempt() -> bytes:
            answer = await self._send(method, path, params, headers, data)
            if answer.status >= 300:
                raise status_error(answer.status, answer.body, verb=method, path=path, retry_after=answer.retry_after)
            return answer.body

        return await self._retrying(method, path, attempt)

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], *, params: Mapping[str, str], silence: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield the stream of its bytes, cut as they arrive; takes no token.

        Args:
            resource: What to watch, in all namespaces.
            params: Query parameters; `watch=1` is added.
            silence: Seconds without a byte after which the stream fails with a TransportError.

        Raises:
            StatusError: refused at opening; a refusal inside the stream is an event for the caller.
            TransportError: no answer, or the connection broke.
        """
        path = resource.path()
        async with AsyncExitStack() as stack:

            async def attempt() -> Stream:
                return await stack.enter_async_context(self._stream(path, {**params, "watch": "1"}, silence=silence))

            stream = await self._retrying("GET", path, attempt, throttled=False)
            yield await stack.enter_async_context(aclosing(stream.chunks()))

    async def _retrying(
        self, method: str, path: str, attempt: Callable[[], Awaitable[R]], *, throttled: bool = True
    ) -> R:
        """Repeat a request for as long as that can do no harm and promises something."""
        failure: StatusError | TransportError | None = None
        for number in range(MAX_RETRIES + 1):
            if throttled or number:
                await self._throttle(method)
            try:
                return await attempt()
            except TransportError as error:
                if method != "GET" or number == MAX_RETRIES or error.answered or not error.connection_lost:
                    _give_up(error, failure)
                failure, delay, code = error, 1.0, "<error>"
            except StatusError as refusal:
                if not _retriable(refusal) or number == MAX_RETRIES:
                    _give_up(refusal, failure)
                failure, delay, code = refusal, refusal.retry_after or 0.0, str(refusal.code)
            self._metrics.retried(verb=method, host=self.host, code=code)
            log.info("Retrying request", v=2, verb=method, path=path, delay=delay, err=str(failure))
            await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _stream(self, path: str, params: Mapping[str, str], *, silence: float | None) -> AsyncIterator[Stream]:
        """GET an answer that is read as it comes. Raises what `watch` raises."""
        started = time.monotonic()
        try:
            async with self._transport.stream(path, params=params, headers=self._headers, silence=silence) as stream:
                self._observe("GET", str(stream.status), started)
                if stream.status >= 300:
                    raise status_error(
                        stream.status, await stream.read(), verb="GET", path=path, retry_after=stream.retry_after
                    )
                yield stream
        except TransportError as error:
            if not error.answered:
                self._observe("GET", "<error>", started)
            raise

    async def _throttle(self, method: str) -> None:
        waited = await self._bucket.wait()
        self._metrics.throttled(verb=method, host=self.host, seconds=waited)
        if waited > 0.05:
            log.info(
                "Waited before sending request",
                v=2 if waited > 1 else 3,
                delay=waited,
                reason="client-side throttling, not priority and fairness",
                verb=method,
            )

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None,
    ) -> Answer:
        fence = None if method == "GET" else self._fence
        sent = len(data or b"")
        started = time.monotonic()
        try:
            answer = await self._transport.send(
                method, path, params=params, headers=headers, body=data, timeout=self._timeout, fence=fence
            )
        except TransportError:
            self._observe(method, "<error>", started, sent=sent)
            raise
        self._observe(method, str(answer.status), started, sent=sent, received=len(answer.body))
        return answer

    def _observe(
        self, method: str, code: str, started: float, *, sent: int | None = None, received: int | None = None
    ) -> None:
        self._metrics.request(
            verb=method, host=self.host, code=code, seconds=time.monotonic() - started, sent=sent, received=received
        )


_DELETE_OPTIONS = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1"})


def _retriable(refusal: StatusError) -> bool:
    return refusal.retry_after is not None and (refusal.code == 429 or refusal.code >= 500)


def _give_up(error: StatusError | TransportError, previous: StatusError | TransportError | None) -> NoReturn:
    if previous is not None and str(previous) != str(error):
        error.add_note(f"error from a previous attempt: {previous}")
    raise error
