"""/metrics and /metrics/slis. Follows component-base metrics/prometheus/slis/routes.go."""

from collections.abc import Callable

from aiohttp import web
from aiohttp.web import ContentCoding

from kcm.serving.responses import text_response

#: Prometheus' text format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Below this many bytes packing does not pay.
_WORTH_PACKING = 1400


class MetricsPage:
    """Answers with metrics, packed if asked for; DELETE forgets them where they can be."""

    def __init__(self, render: Callable[[], bytes], reset: Callable[[], None] | None = None) -> None:
        self._render = render
        self._reset = reset

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """The answer."""
        if request.method == "DELETE" and self._reset is not None:
            self._reset()
            return text_response(200, "metrics reset\n")
        if request.method not in {"GET", "HEAD"}:
            return text_response(405, "Method Not Allowed\n", Allow="GET, HEAD")
        response = web.Response(body=self._render(), headers={"Content-Type": CONTENT_TYPE})
        if "gzip" in request.headers.get("Accept-Encoding", "") and len(response.body or b"") > _WORTH_PACKING:  # type: ignore[arg-type]
            response.enable_compression(ContentCoding.gzip)
        return response
