"""The server on --secure-port. Follows controller-manager app/serve.go and apiserver pkg/server/secure_serving.go.

/metrics is served without authentication for now: whoever reaches the port can read it. Nothing secret is in it; where even
load and versions are nobody's business, bind to 127.0.0.1. The health paths are open in the reference as well. Everything
else is not found, and only GET and HEAD are allowed.

A connection on which no request comes is closed, so that strangers cannot use up the process's file descriptors.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from typing import Self

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from kcm.clock import REAL, Clock
from kcm.logs import get_logger
from kcm.metrics import CONTENT_TYPE
from kcm.options import SecureServingOptions
from kcm.serving.certificates import ServingError
from kcm.serving.healthz import Check, HealthChecks
from kcm.serving.tls import ServerTLS

log = get_logger(__name__)

#: Seconds that a connection may live without a first request.
REQUEST_TIMEOUT = 32.0
#: Seconds that an idle connection is kept after a request.
IDLE_TIMEOUT = 90.0
#: Seconds that requests under way may take when the server stops.
SHUTDOWN_TIMEOUT = 1.0

_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kcm"}
_TEXT_HEADERS = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


class SecureServer:
    """Serves from entering to leaving the context, on the loop that enters it; with port 0 it serves nothing."""

    def __init__(
        self, options: SecureServingOptions, *, render_metrics: Callable[[], bytes], clock: Clock = REAL
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            options: Where, and with which certificate.
            render_metrics: Gives the body of /metrics.
            clock: Dates a self-signed certificate.
        """
        self._options = options
        self._render_metrics = render_metrics
        self._clock = clock
        self._health = {f"/{name}": HealthChecks(name) for name in ("healthz", "livez", "readyz")}
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
        tls = ServerTLS(self._options, clock=self._clock)
        listener = listen(self._options.bind_address, self._options.secure_port)
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
        log.info("Anybody who reaches the port may read /metrics: it is served without authentication", url=self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.port = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _respond(self, request: web.BaseRequest) -> web.Response:
        checks = self._health.get(request.path)
        if checks is None and request.path != "/metrics":
            return _text(404, "404 page not found\n")
        if request.method not in {"GET", "HEAD"}:
            return _text(405, "Method Not Allowed\n", Allow="GET, HEAD")
        if checks is None:
            return web.Response(body=self._render_metrics(), headers={**_HEADERS, "Content-Type": CONTENT_TYPE})
        excluded = frozenset(request.query.getall("exclude", ()))
        return _text(*checks.report(verbose="verbose" in request.query, excluded=excluded))


class _Server(web.Server):
    """aiohttp's server, which by itself waits for a first request for ever."""

    def __init__(self, respond: Callable[[web.BaseRequest], web.Response]) -> None:
        super().__init__(self._answer, access_log=None, keepalive_timeout=IDLE_TIMEOUT)
        self._respond = respond
        self._silent: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._silent[handler] = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT, handler.force_close)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._stop_timer(handler)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self._stop_timer(request.protocol)
        return self._respond(request)

    def _stop_timer(self, handler: RequestHandler) -> None:
        if timer := self._silent.pop(handler, None):
            timer.cancel()


def _text(status: int, text: str, **headers: str) -> web.Response:
    return web.Response(status=status, body=text.encode(), headers={**_HEADERS, **_TEXT_HEADERS, **headers})


def listen(address: str, port: int) -> socket.socket:
    """Bind a port; an unspecified address stands for all interfaces and both address families.

    Raises:
        ServingError: the port is taken, or the address is not one of this machine.
    """
    parsed = ipaddress.ip_address(address or "::")
    try:
        if parsed.is_unspecified and socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
        return socket.create_server((str(parsed), port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ServingError(
            f"failed to create listener: failed to listen on {_join(address, port)}: {reason}"
        ) from error


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
