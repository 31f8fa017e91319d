"""Child processes of the test control plane, played by shell scripts."""

import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kcm.testing.process import Server, StartError, reserve_port


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], Server]:
    def start(script: str) -> Server:
        return Server("sheller", ["/bin/sh", "-c", script], log=tmp_path / "log", env={"PATH": os.defpath})

    return start


async def never() -> bool:
    return False


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_that_ends_early_is_an_error_with_the_end_of_its_log(start: Callable[[str], Server]) -> None:
    server = start("seq 100; echo 'flag provided but not defined' >&2; exit 3")
    with pytest.raises(StartError) as failure:
        await server.wait_ready(never, timeout=10)
    lines = str(failure.value).splitlines()
    assert lines[0] == "sheller ended with status 3 while it started; the end of its log:"
    assert lines[-1].strip() == "flag provided but not defined"
    assert len(lines) == 26


async def test_a_server_that_does_not_become_ready_in_time_is_an_error(start: Callable[[str], Server]) -> None:
    server = start("exec sleep 60")
    with pytest.raises(StartError, match=r"was not ready after 0 s; the end of its log:\n +\(empty\)"):
        await server.wait_ready(never, timeout=0)
    await server.stop()


async def test_waiting_ends_when_the_server_is_ready(start: Callable[[str], Server]) -> None:
    server = start("exec sleep 60")
    answers = iter([False, False, True])

    async def is_ready() -> bool:
        return next(answers)

    await server.wait_ready(is_ready, timeout=10)
    await server.stop()
    assert next(answers, None) is None


async def test_stopping_lets_the_server_finish(start: Callable[[str], Server]) -> None:
    server = start("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")

    async def is_ready() -> bool:
        return "ready" in server.log.read_text()

    await server.wait_ready(is_ready, timeout=10)
    await server.stop()
    assert server.log.read_text() == "ready\nbye\n"
    assert not is_running(server.pid)
    await server.stop()  # a second time does no harm


async def test_a_server_that_does_not_end_is_killed(start: Callable[[str], Server]) -> None:
    server = start("trap '' TERM; echo ready; while :; do sleep 0.01; done")

    async def is_ready() -> bool:
        return "ready" in server.log.read_text()

    await server.wait_ready(is_ready, timeout=10)
    begin = time.monotonic()
    await server.stop(timeout=0.1)
    assert 0.1 <= time.monotonic() - begin < 5
    assert not is_running(server.pid)


def test_a_reserved_port_refuses_connections_until_somebody_listens_and_again_afterwards() -> None:
    with reserve_port() as reservation:
        address = reservation.getsockname()
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                server.bind(address)
                server.listen()
                socket.create_connection(address).close()


def test_a_reserved_port_cannot_be_taken_by_others() -> None:
    with reserve_port() as reservation, socket.socket() as other:
        with pytest.raises(OSError, match="in use") as failure:
            other.bind(reservation.getsockname())
        assert failure.value.errno == errno.EADDRINUSE
