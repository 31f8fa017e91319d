"""The server on --secure-port. Follows controller-manager app/serve.go and apiserver pkg/server/secure_serving.go.

Each request is authenticated, then authorized, then answered by the handler of its path; /healthz, /livez and /readyz are the
server's own. A connection on which no request comes is closed, so that strangers cannot use up the process's file descriptors.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, Self

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from kcm.clock import REAL, Clock
from kcm.gotext import quote
from kcm.logs import get_logger
from kcm.options import AuthorizationOptions, SecureServingOptions
from kcm.serving.authentication import AuthenticationError, Authenticator
from kcm.serving.authorization import AuthorizationError, Authorizer
from kcm.serving.certificates import ServingError
from kcm.serving.healthz import Check, HealthChecks, HealthMetrics
from kcm.serving.responses import not_found, status_response, text_response
from kcm.serving.tls import ServerTLS, peer_of

log = get_logger(__name__)

#: Seconds that a connection may live without a first request.
REQUEST_TIMEOUT = 32.0
#: Seconds that an idle connection is kept after a request.
IDLE_TIMEOUT = 90.0
#: Seconds that requests under way may take when the server stops.
SHUTDOWN_TIMEOUT = 1.0

_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kcm"}


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class RequestMetrics(Protocol):
    """Gets what became of requests; results as in apiserver pkg/endpoints/filters/metrics.go."""

    def authenticated(self, *, result: str, seconds: float, user: str | None) -> None:
        """It was looked at who asks."""

    def authorized(self, *, result: str, seconds: float) -> None:
        """It was looked at whether that is allowed."""


class Delegation(NamedTuple):
    """Who finds out who asks, and what they may read."""

    authenticator: Authenticator
    authorizer: Authorizer


#: Asks nobody: everyone is anonymous and may read the health paths.
NO_DELEGATION = Delegation(Authenticator(), Authorizer(AuthorizationOptions().always_allow_paths))


class SecureServer:
    """Serves from entering to leaving the context, on the loop that enters it; with port 0 it serves nothing."""

    def __init__(
        self,
        options: SecureServingOptions,
        *,
        handlers: Mapping[str, Handler],
        delegation: Delegation = NO_DELEGATION,
        metrics: RequestMetrics | None = None,
        health_metrics: HealthMetrics | None = None,
        clock: Clock = REAL,
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            options: Where, and with which certificate.
            handlers: Answers by path; of one that ends in a slash also for all paths below it.
            delegation: Who finds out who asks, and what they may read.
            metrics: Gets what became of requests.
            health_metrics: Gets the results of the checks of /healthz.
            clock: Dates a self-signed certificate.
        """
        self._options = options
        self._handlers = dict(handlers)
        self._authenticator, self._authorizer = delegation
        self._metrics = metrics
        self._clock = clock
        self._health = {f"/{name}": HealthChecks(name) for name in ("livez", "readyz")}
        self._health["/healthz"] = HealthChecks("healthz", health_metrics)
        self._runner: web.ServerRunner | None = None
        #: The port that is listened on; None while there is none.
        self.port: int | None = None

    @property
    def url(self) -> str | None:
        """Where this machine reaches the server; None while it does not listen."""
        if self.port is None:
            return None
        address = ipaddress.ip_address(self._options.bind_address or "::")
        if address.is_unspecified:
            return f"https://127.0.0.1:{self.port}"
        return f"https://[{address}]:{self.port}" if address.version == 6 else f"https://{address}:{self.port}"

    def add_checks(
        self,
        *,
        healthz: Mapping[str, Check] | None = None,
        livez: Mapping[str, Check] | None = None,
        readyz: Mapping[str, Check] | None = None,
    ) -> None:
        """Add named checks to paths; allowed in any thread and at any time.

        Raises:
            ValueError: a path has a check of that name already.
        """
        for path, checks in (("/healthz", healthz), ("/livez", livez), ("/readyz", readyz)):
            self._health[path].add(checks or {})

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ServingError: the address is taken or not ours, or the certificate or TLS settings cannot be used.
        """
        if self._options.secure_port == 0:
            return self
        listener = listen(
            self._options.bind_address, self._options.secure_port, share=self._options.permit_port_sharing
        )
        try:
            tls = ServerTLS(self._options, authorities=self._authenticator.authorities, clock=self._clock)
        except BaseException:
            listener.close()
            raise
        runner = web.ServerRunner(_Server(self._respond), shutdown_timeout=SHUTDOWN_TIMEOUT)
        try:
            await runner.setup()
            await web.SockSite(runner, listener, ssl_context=tls.context).start()
        except BaseException:
            await runner.cleanup()
            listener.close()
            raise
        self._runner = runner
        self.port = listener.getsockname()[1]
        log.plain(f"Serving securely on {_join(*listener.getsockname()[:2])}")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.port = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        refusal = await self._refuse(request)
        response = refusal if refusal is not None else await self._answer(request)
        response.headers.update(_HEADERS)
        return response

    async def _refuse(self, request: web.BaseRequest) -> web.Response | None:
        """The answer to somebody who may not ask this; None if they may."""
        begin = self._clock.monotonic()
        connection = request.get_extra_info("ssl_object")
        try:
            user = await self._authenticator.authenticate(request.headers, peer_of(connection) if connection else None)
        except AuthenticationError as error:
            log.info("Unable to authenticate the request", v=2, err=str(error))
            self._authenticated("error", begin, None)
            return status_response(401, "Unauthorized", "Unauthorized")
        self._authenticated("success", begin, user.name)
        begin, verb = self._clock.monotonic(), request.method.lower()
        try:
            decision = await self._authorizer.authorize(user, verb, request.path)
        except AuthorizationError as error:
            self._authorized("error", begin)
            return text_response(500, f"Internal Server Error: {quote(request.path)}: {error}\n")
        self._authorized("allowed" if decision.allowed else "no-opinion", begin)
        if decision.allowed:
            return None
        log.info("Forbidden", v=4, URI=request.path_qs, reason=decision.reason)
        message = f"forbidden: User {quote(user.name)} cannot {verb} path {quote(request.path)}"
        if decision.reason:
            message += f": {decision.reason}"
        return status_response(403, message, "Forbidden", details={})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if (checks := self._health.get(request.path)) is not None:
            if request.method not in {"GET", "HEAD"}:
                return text_response(405, "Method Not Allowed\n", Allow="GET, HEAD")
            excluded = frozenset(request.query.getall("exclude", ()))
            return text_response(*checks.report(verbose="verbose" in request.query, excluded=excluded))
        handler = self._handlers.get(request.path)
        if handler is None:
            below = (path for path in self._handlers if path.endswith("/") and request.path.startswith(path))
            handler = self._handlers.get(max(below, key=len, default=""))
        return await handler(request) if handler is not None else not_found()

    def _authenticated(self, result: str, begin: float, user: str | None) -> None:
        if self._metrics is not None:
            self._metrics.authenticated(result=result, seconds=self._clock.monotonic() - begin, user=user)

    def _authorized(self, result: str, begin: float) -> None:
        if self._metrics is not None:
            self._metrics.authorized(result=result, seconds=self._clock.monotonic() - begin)


class _Server(web.Server):
    """aiohttp's server, which by itself waits for a first request for ever."""

    def __init__(self, respond: Handler) -> None:
        super().__init__(self._answer, access_log=None, keepalive_timeout=IDLE_TIMEOUT)
        self._respond = respond
        self._silent: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._silent[handler] = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT, handler.force_close)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._stop_timer(handler)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._stop_timer(request.protocol)
        return await self._respond(request)

    def _stop_timer(self, handler: RequestHandler) -> None:
        if timer := self._silent.pop(handler, None):
            timer.cancel()


def listen(address: str, port: int, *, share: bool = False) -> socket.socket:
    """Bind a port; an unspecified address stands for all interfaces and both address families.

    Args:
        address: Of which interface.
        port: Which.
        share: Whether others that say so too may listen there.

    Raises:
        ServingError: the port is taken, or the address is not one of this machine.
    """
    parsed = ipaddress.ip_address(address or "::")
    try:
        if parsed.is_unspecified and socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=share)
        family = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
        return socket.create_server((str(parsed), port), family=family, reuse_port=share)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ServingError(
            f"failed to create listener: failed to listen on {_join(address, port)}: {reason}"
        ) from error


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
