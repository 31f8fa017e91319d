"""The proxy that tests put between kcm and its server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from tests.proxy import Proxy


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def ask(self, text: str) -> str:
        self.writer.write(f"{text}\n".encode())
        return await self.hear()

    async def hear(self) -> str:
        return (await self._reader.readline()).decode().strip()


Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """In front of a server that repeats each line with a `>`, and shows it to all who have said `watch`."""
    watchers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(b">" + line)
                for watcher in watchers:
                    watcher.write(b"seen " + line)
                if line == b"watch\n":
                    watchers.append(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, Proxy(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy


@pytest.fixture
async def connect(proxy: Proxy) -> AsyncIterator[Connect]:
    """Makes connections through the proxy that end with the test."""
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", urlsplit(proxy.url).port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.writer.close()
        with contextlib.suppress(ConnectionError):
            await client.writer.wait_closed()


async def test_what_goes_through_stays_as_it_is(connect: Connect) -> None:
    client = await connect()
    assert await client.ask("one") == ">one"
    assert await client.ask("x" * 60_000) == ">" + "x" * 60_000


async def test_watches_come_late(proxy: Proxy, connect: Connect) -> None:
    watcher, client = await connect(), await connect()
    assert await watcher.ask("watch") == ">watch"
    assert await client.ask("before") == ">before"
    assert await watcher.hear() == "seen before"

    proxy.delay_watches(0.3)
    begin = asyncio.get_running_loop().time()
    await client.ask("late")
    assert await watcher.hear() == "seen late"
    assert asyncio.get_running_loop().time() - begin >= 0.3
    assert proxy.delayed == 1


async def test_answers_do_not_come_late(proxy: Proxy, connect: Connect) -> None:
    client = await connect()
    await client.ask("before")
    proxy.delay_watches(3600)
    assert await client.ask("after") == ">after"
    assert await (await connect()).ask("another") == ">another"
    assert proxy.delayed == 0


async def test_nothing_is_passed_on_while_it_is_stalled(proxy: Proxy, connect: Connect) -> None:
    watcher, client = await connect(), await connect()
    await watcher.ask("watch")
    with proxy.stalled():
        answer = asyncio.create_task(client.ask("held"))
        assert not (await asyncio.wait({answer}, timeout=0.1))[0]
    assert await answer == ">held"
    assert await watcher.hear() == "seen held"


async def test_connections_break_off_and_can_be_made_again(proxy: Proxy, connect: Connect) -> None:
    before = await connect()
    await before.ask("before")
    with proxy.broken():
        for broken in (before, await connect()):
            with contextlib.suppress(ConnectionError):
                assert await broken.ask("lost") == ""
    assert await (await connect()).ask("after") == ">after"
