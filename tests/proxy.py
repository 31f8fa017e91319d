"""A TCP proxy in front of a server: what it passes on can come late, wait for a while, or break off.

TLS goes through as bytes; `kubeconfig_through` says what to expect in the server's certificate. The proxy cannot read what it
passes on, but it can tell a watch from other requests: with HTTP/1.1 a client that watches has sent all that it will ever send
on that connection.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml

_CHUNK = 2**16


class Proxy:
    """Listens on loopback while it is entered; for one event loop.

    Args:
        server: URL of the server behind it.
    """

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server)
        self._listener: asyncio.Server | None = None
        self._connections: list[_Connection] = []
        self._flows = asyncio.Event()
        self._flows.set()
        self._broken = False

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        tasks = [connection.task for connection in self._connections]
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await self._listener.wait_closed()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    @property
    def url(self) -> str:
        """Where it listens, for those who would ask the server by HTTPS."""
        assert self._listener is not None
        return f"https://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    @property
    def delayed(self) -> int:
        """How many pieces of watches have come late so far."""
        return sum(connection.delayed for connection in self._connections)

    def delay_watches(self, seconds: float) -> None:
        """From now on, pass on late, and in order, what the server sends in the watches that are open.

        Those are the connections whose clients stay silent: one that sends another request gets its answer at once. Watches
        that are opened later are not delayed.
        """
        for connection in self._connections:
            connection.delay = seconds

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Until the end, keep what arrives, and pass on nothing."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Break all connections off and, until the end, new ones as well."""
        self._broken = True
        for connection in self._connections:
            connection.task.cancel()
        try:
            yield
        finally:
            self._broken = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._broken:
            writer.transport.abort()
        else:
            self._connections.append(_Connection(reader, writer, self._server.hostname, self._server.port, self._flows))


class _Connection:
    """One client's connection and the one to the server; breaks both off when either ends or its task is cancelled."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str | None,
        port: int | None,
        flows: asyncio.Event,
    ) -> None:
        self.delay = 0.0
        self.delayed = 0
        self._reader, self._writer = reader, writer
        self._flows = flows
        #: What the server sent, and when it is to be passed on.
        self._answers: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self.task = asyncio.create_task(self._run(host, port), name="connection through a proxy")

    async def _run(self, host: str | None, port: int | None) -> None:
        writers = [self._writer]
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_requests(writer))
                tasks.create_task(self._take_answers(reader))
                tasks.create_task(self._pass_answers())
        except* (OSError, EOFError):
            pass  # a connection that ends
        finally:
            for open_writer in writers:
                open_writer.transport.abort()

    async def _pass_requests(self, to: asyncio.StreamWriter) -> None:
        while data := await self._reader.read(_CHUNK):
            self.delay = 0.0  # no watch
            await self._flows.wait()
            to.write(data)
            await to.drain()
        raise EOFError

    async def _take_answers(self, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        data = b" "
        while data:
            data = await reader.read(_CHUNK)
            self.delayed += self.delay > 0
            self._answers.put_nowait((loop.time() + self.delay, data))

    async def _pass_answers(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._answers.get()
            await asyncio.sleep(due - loop.time())
            await self._flows.wait()
            if not data:
                raise EOFError
            self._writer.write(data)
            await self._writer.drain()


def kubeconfig_through(proxy: Proxy, kubeconfig: Path) -> Path:
    """The same identity and cluster, reached through the proxy and known by the name in its certificate."""
    document = yaml.safe_load(kubeconfig.read_text())
    for entry in document["clusters"]:
        entry["cluster"] |= {"server": proxy.url, "tls-server-name": "kubernetes"}
    path = kubeconfig.with_suffix(".proxied")
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path
