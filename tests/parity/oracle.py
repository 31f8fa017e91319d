"""Asks the reference's own Go functions, through the program in oracle/.

The program is built with the pins of controlplane/kubernetes, so that the functions are those of the servers that the other
tests run against, and lies beside them in the cache. Its name there has a digest of its sources.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from kcm.testing.binaries import cache_directory, go_command, go_environment, modules_directory

SOURCE = Path(__file__).parent / "oracle"
#: Seconds that a build may take when Go has compiled nothing yet; half a minute is usual after the control plane's build.
BUILD_TIMEOUT = 900
#: Seconds that the answers to one batch may take.
ASK_TIMEOUT = 120
#: Requests that one process gets.
BATCH = 5000


class OracleError(RuntimeError):
    """The program cannot be built, or failed to answer."""


class Answer(msgspec.Struct, frozen=True):
    """What a function returned: a value, or an error's text."""

    out: Any = None
    err: str = ""
    panic: str = ""


def build() -> Path:
    """The program's file, built if it is not there yet; of several processes one builds.

    Raises:
        BinariesError: There is no Go that is new enough.
        OracleError: It does not compile.
        subprocess.TimeoutExpired: Compiling takes too long.
    """
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / f"oracle-{_digest()}"
    with (directory / ".oracle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _compile(program)
    return program


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _compile(program: Path) -> None:
    unfinished = program.with_name(f".{program.name}")
    pins = modules_directory() / "kubernetes" / "go.mod"
    run = subprocess.run(
        [go_command(), "build", f"-modfile={pins}", "-mod=readonly", "-ldflags=-s -w", "-o", unfinished, "."],
        cwd=SOURCE,
        env=go_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT,
    )
    if run.returncode:
        raise OracleError(f"go build in {SOURCE} ended with status {run.returncode}:\n{run.stderr}")
    unfinished.rename(program)


@dataclass(frozen=True)
class Oracle:
    """Runs the program, once for each batch of requests; nothing of it is left behind."""

    program: Path

    def ask(self, function: str, inputs: Sequence[Any]) -> list[Answer]:
        """What a function of the program makes of each input, in the same order.

        Raises:
            OracleError: It broke down, or a function panicked.
        """
        return [answer for batch in _batches(inputs) for answer in self._ask(function, batch)]

    def _ask(self, function: str, inputs: Sequence[Any]) -> list[Answer]:
        requests = [{"f": function, "in": given} for given in inputs]
        run = subprocess.run(
            [self.program],
            input=msgspec.json.Encoder().encode_lines(requests),
            capture_output=True,
            check=False,
            timeout=ASK_TIMEOUT,
        )
        if run.returncode:
            raise OracleError(f"the oracle ended with status {run.returncode}: {run.stderr.decode(errors='replace')}")
        answers = msgspec.json.Decoder(Answer).decode_lines(run.stdout)
        if len(answers) != len(inputs):
            raise OracleError(f"{len(answers)} answers of {function} to {len(inputs)} inputs")
        for given, answer in zip(inputs, answers, strict=True):
            if answer.panic:
                text = msgspec.json.encode(given).decode()
                raise OracleError(f"{function} panicked: {answer.panic}\nasked: {text}")
        return answers


def _batches(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(inputs)
    while batch := list(islice(rest, BATCH)):
        yield batch
