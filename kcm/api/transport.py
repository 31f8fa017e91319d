"""The connections of one identity. Follows client-go rest/transport.go and transport/cache.go.

Requests share one pool; watches, which hold their connection, have another, so that neither can wait for the other.
aiohttp's exceptions end here.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from kcm.api.errors import FencedError, TransportError

#: Connections for requests; measured, more make no difference.
REQUEST_CONNECTIONS = 32
#: An unused connection is dropped after this many seconds, before the API server drops it (after 90).
IDLE_TIMEOUT = 60.0
#: Seconds without a sign of life from the peer after which a connection is given up, as in the reference (30 s until a
#: question, 15 s for the answer).
DEAD_PEER_TIMEOUT = 45
_KEEPALIVE_IDLE, _KEEPALIVE_INTERVAL = 30, 5
#: A new connection must be made within this many seconds.
CONNECT_TIMEOUT = 30.0


class Credentials(Protocol):
    """Who a transport speaks as; everything may change while it runs."""

    async def authorization(self) -> str | None:
        """The Authorization header to send, if any."""
        ...

    async def tls(self) -> ssl.SSLContext | None:
        """How to make TLS connections; None for a plain HTTP server."""
        ...

    async def rejected(self, authorization: str | None) -> None:
        """The server answered 401 to this header."""
        ...

    async def close(self) -> None:
        """Nothing more is asked; end what runs."""
        ...


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the API server is."""

    server: str
    tls_server_name: str | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    retry_after: float | None


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after = _retry_after(response)

    async def read(self) -> bytes:
        """The rest of the answer."""
        return await self._response.read()

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The answer's bytes as they arrive; ends when the server closes it properly.

        Raises:
            TransportError: the connection broke, or was silent for too long.
        """
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _fail(error, answered=True)


class Transport:
    """Sends requests as one identity, whose credentials it closes. An async context manager, for one event loop."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials) -> None:
        self._base = URL(endpoint.server)
        self._endpoint = endpoint
        self._credentials = credentials
        self._requests: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None

    @property
    def host(self) -> str:
        """Host and port of the server."""
        return f"{self._base.host_subcomponent}:{self._base.port}"

    async def __aenter__(self) -> Self:
        self._requests = _session(REQUEST_CONNECTIONS)
        self._streams = _session(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in (self._requests, self._streams):
            if session is not None:
                await session.close()
        self._requests = self._streams = None
        await self._credentials.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float,
        fence: Callable[[], None] | None,
    ) -> Answer:
        """Send a request and read its whole answer.

        Args:
            method: HTTP method.
            path: URL path below the server.
            params: Query parameters.
            headers: Headers besides Authorization.
            body: Request body.
            timeout: Seconds for everything, connecting and reading included.
            fence: Called right before the body is written; what it raises stops the request.

        Raises:
            TransportError: no whole answer.
            FencedError: the fence forbade it.
        """
        if fence is not None:
            fence()
        payload = None if body is None else _Payload(body, fence)
        try:
            async with asyncio.timeout(timeout):
                async with self._open(
                    self._requests, method, path, params=params, headers=headers, payload=payload
                ) as response:
                    return Answer(response.status, await response.read(), _retry_after(response))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _fail(error)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], silence: float | None
    ) -> AsyncIterator[Stream]:
        """GET an answer that is read as it comes; `silence` is the most seconds without a byte.

        Raises:
            TransportError: no answer.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        opened = False
        try:
            async with self._open(
                self._streams, "GET", path, params=params, headers=headers, timeout=timeout
            ) as response:
                opened = True
                yield Stream(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _fail(error, answered=opened)

    @asynccontextmanager
    async def _open(
        self,
        session: aiohttp.ClientSession | None,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        payload: "_Payload | None" = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if session is None:
            raise RuntimeError("the transport is not open")
        authorization = await self._credentials.authorization()
        url = self._base.with_path(self._base.path.rstrip("/") + path).with_query(params)
        async with session.request(
            method,
            url,
            headers=headers if authorization is None else {**headers, "Authorization": authorization},
            data=payload,
            ssl=await self._credentials.tls() or False,
            server_hostname=self._endpoint.tls_server_name,
            proxy=self._endpoint.proxy,
            allow_redirects=False,
            timeout=timeout or _NO_TIMEOUT,
        ) as response:
            if response.status == 401:
                await self._credentials.rejected(authorization)
            yield response


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)


class _FenceClosedError(Exception):
    """Carries a FencedError through aiohttp, whose writer only expects an Exception."""


class _Payload(aiohttp.Payload):
    """A body that asks the fence once more, after the connection was found and before a byte of it is sent."""

    _value: bytes

    def __init__(self, value: bytes, fence: Callable[[], None] | None) -> None:
        super().__init__(value)
        self._size = len(value)
        self._fence = fence

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self._fence is not None:
            try:
                self._fence()
            except FencedError as error:
                raise _FenceClosedError from error
        await writer.write(self._value)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose kernel finds out when the peer is gone, whether data is on its way or not, where it can."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", (DEAD_PEER_TIMEOUT - _KEEPALIVE_IDLE) // _KEEPALIVE_INTERVAL),
        ("TCP_USER_TIMEOUT", DEAD_PEER_TIMEOUT * 1000),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _session(connections: int) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=IDLE_TIMEOUT, ttl_dns_cache=30, socket_factory=_watched_socket
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        # As in the reference's client, a compressed answer would cost the server more than it saves here.
        skip_auto_headers=("Accept-Encoding",),
        auto_decompress=False,
        read_bufsize=2**20,
    )
    # Left on, PUT and DELETE would be sent again after a lost connection; what is repeated is the client's to decide.
    session._retry_connection = False
    return session


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _describe(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # aiohttp's own text prints the TLS context as an object.
        cause = error.os_error
        named = cause.errno is not None and not isinstance(cause, ssl.SSLError)
        reason = os.strerror(cause.errno or 0) if named else str(cause) or type(cause).__name__
        return f"cannot connect to {error.host}:{error.port}: {reason}"
    return str(error) or type(error).__name__


def _fail(error: Exception, *, answered: bool = False) -> NoReturn:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FencedError):
            raise cause
        cause = cause.__cause__
    refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
    raise TransportError(
        _describe(error),
        connection_refused=refused,
        connection_lost=isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError),
        answered=answered,
    ) from error
