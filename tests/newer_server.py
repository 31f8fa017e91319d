"""An API server of a release to come: each pod template that it serves has fields, with defaults, that nobody knows today.

It stands in front of a real one, to which it speaks as the user of a kubeconfig. What it adds to answers and watches it takes
out of what is written, and notes when a PUT has dropped it: on a real server the field of who had set it would be gone.
"""

import base64
import json
import re
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from tests.managers import Document

_WITH_TEMPLATES = re.compile(r"/(deployments|replicasets|statefulsets|replicationcontrollers)(/|$)")
_FIELD, _DEFAULT = "fieldOfTomorrow", {"mode": "Default", "items": [{"name": "a"}]}
_DROPPED = {"Content-Length", "Transfer-Encoding", "Host", "Connection"}


class NewerServer:
    """Listens on loopback, in plain HTTP, while it is entered.

    Args:
        kubeconfig: The real server, and as whom to speak to it.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._path = kubeconfig
        document = yaml.safe_load(kubeconfig.read_text())
        self._cluster = document["clusters"][0]["cluster"]
        self._user = document["users"][0]["user"]
        #: What PUTs lacked that they had been given.
        self.dropped: list[str] = []
        #: How many PUTs of objects with a pod template there were.
        self.puts = 0
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=0)
        self._session = aiohttp.ClientSession(
            self._cluster["server"], connector=connector, skip_auto_headers=("Accept-Encoding",), trust_env=False
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        assert self._runner is not None
        await self._session.close()
        await self._runner.cleanup()

    def kubeconfig(self) -> Path:
        """How to reach it; who speaks is settled already."""
        assert self._runner is not None
        cluster = {"server": f"http://127.0.0.1:{self._runner.addresses[0][1]}"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
        }
        path = self._path.with_suffix(".newer")
        path.write_text(yaml.safe_dump(document))
        return path

    def _tls(self) -> ssl.SSLContext:
        tls = ssl.create_default_context(cadata=base64.b64decode(self._cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-key-data", "client-certificate-data"):
                pair.write(base64.b64decode(self._user[part]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        return tls

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        templates = _WITH_TEMPLATES.search(request.path) is not None
        body = await request.read()
        if templates and body and request.method in {"PUT", "POST"}:
            body = self._taken_out(request, body)
        headers = {name: value for name, value in request.headers.items() if name not in _DROPPED}
        async with self._session.request(
            request.method, request.raw_path, data=body or None, headers=headers, timeout=aiohttp.ClientTimeout()
        ) as upstream:
            answer = {name: value for name, value in upstream.headers.items() if name not in _DROPPED}
            if "watch" not in request.query:
                data = await upstream.read()
                if templates and upstream.status < 300:
                    data = json.dumps(_put_in(json.loads(data))).encode()
                return web.Response(status=upstream.status, body=data, headers=answer)
            response = web.StreamResponse(status=upstream.status, headers=answer)
            await response.prepare(request)
            rest = b""
            async for chunk in upstream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = line
                    if templates:
                        document = json.loads(line)
                        event = json.dumps({**document, "object": _put_in(document["object"])}).encode()
                    await response.write(event + b"\n")
            return response

    def _taken_out(self, request: web.Request, body: bytes) -> bytes:
        document = json.loads(body)
        for place in _places(document):
            if request.method == "PUT":
                self.puts += 1
                if place.get(_FIELD) != _DEFAULT:
                    self.dropped.append(f"{request.method} {request.path}")
            place.pop(_FIELD, None)
        return json.dumps(document).encode()


def _put_in(document: Document) -> Document:
    for item in document.get("items", [document]):
        for place in _places(item):
            place.setdefault(_FIELD, _DEFAULT)
    return document


def _places(document: Document) -> list[dict[str, Any]]:
    """Where the new fields are: in the template, its spec, and each of its containers."""
    template = (document.get("spec") or {}).get("template")
    return [template, template["spec"], *(template["spec"].get("containers") or ())] if template else []
