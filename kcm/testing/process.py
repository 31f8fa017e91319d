"""One server as a child process: started, watched until it is ready, stopped by its own process id.

Nothing here belongs to an event loop: a server started from one loop can be stopped from another.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

_POLL_SECONDS = 0.02
_STOP_SECONDS = 10.0
_LOG_LINES = 25
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class StartError(RuntimeError):
    """A server did not become ready; the message has the end of its log."""


class Server:
    """A running server. Its output is appended to `log`, so that a second start does not hide the first.

    On Linux it is killed when the *thread* that started it ends, by whatever cause: start servers from the main thread or
    from one that outlives them. A Ctrl-C on the terminal does not reach it, so that stopping stays in order.
    """

    def __init__(self, name: str, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one system call, in a function that was loaded before
            )

    @property
    def pid(self) -> int:
        """The process id; of no meaning once `stop` has returned."""
        return self._process.pid

    async def wait_ready(self, is_ready: Callable[[], Awaitable[bool]], *, timeout: float) -> None:
        """Asks `is_ready` until it holds.

        Raises:
            StartError: The server has ended, or `timeout` seconds have passed.
        """
        deadline = time.monotonic() + timeout
        while True:
            status = self._process.poll()
            if status is not None:
                raise StartError(self._story(f"ended with status {status} while it started"))
            if await is_ready():
                return
            if time.monotonic() > deadline:
                raise StartError(self._story(f"was not ready after {timeout:.0f} s"))
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, *, timeout: float = _STOP_SECONDS) -> None:
        """Asks the server to end and kills it when it takes longer than `timeout` seconds. Harmless when it has ended."""
        try:
            self._process.terminate()
            deadline = time.monotonic() + timeout
            while self._process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - of no one event loop
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the server at once and waits until it is gone. Harmless when it has ended."""
        self._process.kill()
        self._process.wait()

    def _story(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        end = "\n".join(f"    {line}" for line in lines) or "    (empty)"
        return f"{self.name} {what}; the end of its log:\n{end}"


def die_with_parent() -> Callable[[], None]:
    """For Popen's `preexec_fn`: the child is killed when the thread that starts it ends. Does nothing but on Linux."""
    parent = os.getpid()

    def in_child() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the call
                os._exit(1)

    return in_child


def reserve_port() -> socket.socket:
    """A free TCP port on 127.0.0.1, held by a bound socket that never listens.

    A server that is told to share its port (SO_REUSEPORT) can listen there, and listen there again after a restart; no other
    process can get the port in between. While no server listens, connections are refused as on any closed port.
    """
    reservation = socket.socket()
    try:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
    except BaseException:
        reservation.close()
        raise
    return reservation
