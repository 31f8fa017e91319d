"""Answers in the shapes of the reference's. Follows apiserver pkg/endpoints/handlers/responsewriters."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

_TEXT_HEADERS = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


def text_response(status: int, text: str, **headers: str) -> web.Response:
    """Plain text."""
    return web.Response(status=status, body=text.encode(), headers={**_TEXT_HEADERS, **headers})


def json_response(body: Any, *, status: int = 200, content_type: str = "application/json") -> web.Response:
    """JSON, with a line break as Go's encoder writes it."""
    return web.Response(status=status, body=msgspec.json.encode(body) + b"\n", headers={"Content-Type": content_type})


def status_response(code: int, message: str, reason: str, *, details: Mapping[str, Any] | None = None) -> web.Response:
    """A failure, as a Status object."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        **({} if details is None else {"details": details}),
        "code": code,
    }
    return json_response(body, status=code)


def not_found() -> web.Response:
    """There is nothing at this path."""
    return text_response(404, "404 page not found\n")
