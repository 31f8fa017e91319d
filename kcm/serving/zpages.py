"""/flagz and /statusz. Follows apiserver pkg/server/flagz and statusz."""

import platform
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import yaml
from aiohttp import web

from kcm.clock import REAL, Clock
from kcm.serving.responses import status_response, text_response

_GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only."
)


class _Wanted(NamedTuple):
    """What an Accept header asks for: a media type, and for an object its version."""

    media_type: str
    version: str = ""


def negotiate(accept: str, kind: str) -> _Wanted | None:
    """The first form in an Accept header that there is; None if there is none in it."""
    for item in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in item.split(";"))
        if media_type in {"*/*", "text/*", "text/plain"}:
            return _Wanted("text/plain")
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        is_ours = (values.get("g"), values.get("as")) == (_GROUP, kind) and values.get("v") in _VERSIONS
        if media_type in {"application/json", "application/yaml"} and is_ours:
            return _Wanted(media_type, values["v"])
    return None


def _answer(
    request: web.BaseRequest, component: str, kind: str, fields: Mapping[str, Any], lines: Sequence[str]
) -> web.Response:
    wanted = negotiate(request.headers.get("Accept", ""), kind)
    if wanted is None:
        return status_response(
            406,
            "only the following media types are accepted: application/json, application/yaml, text/plain",
            "NotAcceptable",
        )
    if not wanted.version:
        return text_response(200, "\n".join(["", f"{component} {kind.lower()}", _WARNING, *lines, ""]))
    body = {
        "kind": kind,
        "apiVersion": f"{_GROUP}/{wanted.version}",
        "metadata": {"name": component},
        **fields,
    }
    is_json = wanted.media_type == "application/json"
    data = msgspec.json.encode(body) + b"\n" if is_json else yaml.safe_dump(body).encode()
    content_type = f"{wanted.media_type};g={_GROUP};v={wanted.version};as={kind}"
    return web.Response(body=data, headers={"Content-Type": content_type})


class Flagz:
    """Answers with the value of every flag."""

    def __init__(self, component: str, values: Mapping[str, str]) -> None:
        self._component = component
        self._values = dict(sorted(values.items()))

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """The answer."""
        lines = [f"{name} {value}" for name, value in self._values.items()]
        return _answer(request, self._component, "Flagz", {"flags": self._values}, lines)


class Statusz:
    """Answers with what runs since when."""

    def __init__(
        self, component: str, *, version: str, emulated: str, paths: Sequence[str], clock: Clock = REAL
    ) -> None:
        """Counts from now on.

        Args:
            component: What runs.
            version: Its release.
            emulated: The release that it acts as.
            paths: What else can be read.
            clock: Says how late it is.
        """
        self._component = component
        self._version, self._emulated = version.removeprefix("v"), emulated
        self._paths = sorted(paths)
        self._clock = clock
        self._started: datetime = clock.now()
        self._begin = clock.monotonic()

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """The answer."""
        up = int(self._clock.monotonic() - self._begin)
        language = f"Python {platform.python_version()}"
        fields = {
            "startTime": self._started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "uptimeSeconds": up,
            "goVersion": language,
            "binaryVersion": self._version,
            "emulationVersion": self._emulated,
            "paths": self._paths,
        }
        started = time.strftime("%a %b %e %H:%M:%S UTC %Y", self._started.timetuple())
        lines = [
            "",
            f"Started  {started}",
            f"Up  {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
            f"Go version  {language}",
            f"Binary version  {self._version}",
            f"Emulation version  {self._emulated}",
            f"Paths  {' '.join(self._paths)}",
        ]
        return _answer(request, self._component, "Statusz", fields, lines)
