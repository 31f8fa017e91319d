"""Structured logs in klog's text shape or as JSON lines, always on standard error.

Follows k8s.io/klog/v2 (text) and component-base logs/json (JSON); structlog carries the bound pairs and runs the
processors. Messages are constants and everything that varies is a key, so that lines can be searched in either format:

    log = get_logger(__name__)
    log.info("Too few replicas", v=2, replicaSet="default/web", need=3, creating=1)

    I1201 16:44:00.123456    1234 replica_set.py:271] "Too few replicas" replicaSet="default/web" need=3 creating=1

Guarantees: a call never raises, not even on a closed stream or a value whose `str` fails; a record above the verbosity costs
one comparison; lines of two threads are never mixed; a change of the verbosity holds at once for every existing logger.
Not guaranteed: a writer that never blocks. A stalled standard error stalls the caller, as with klog.

Before `configure` the module logs text at verbosity 0, so a library user or a test sees warnings and errors.
"""

import fnmatch
import json
import logging
import os
import sys
import threading
import time
import traceback as tracebacks
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Literal, NamedTuple, Self, TextIO

from structlog import BoundLoggerBase, DropEvent
from structlog.processors import JSONRenderer
from structlog.typing import Processor, WrappedLogger

from kcm.gotext import quote

Format = Literal["text", "json"]
Level = Literal["info", "warning", "error"]

# Keys of an event dict that are not pairs. `_v` stands where zap writes it: after bound pairs, before those of the call.
_MESSAGE, _CALLER, _VERBOSITY, _PLAIN = "_message", "_caller", "_v", "_plain"
_NO_PAIRS = frozenset({_MESSAGE, _CALLER, _VERBOSITY, _PLAIN})
_JSON_HEADER = frozenset({"ts", "logger", "caller", "msg"})


class _Threshold:
    """The highest verbosity that one logger's name lets through; shared by all loggers of that name."""

    __slots__ = ("v",)

    def __init__(self, v: int) -> None:
        self.v = v


class _Stream:
    """Where finished lines go: whole lines only, one writer at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entered when a finalizer logs inside a write
        self.target: TextIO | None = None  # None: sys.stderr at the time of each write
        self.split = False

    def write(self, line: str, level: Level = "error") -> None:
        target = self.target or (sys.stdout if self.split and level != "error" else sys.stderr)
        with self._lock:
            target.write(line + "\n")
            target.flush()

    def flush(self) -> None:
        with self._lock:
            for target in [self.target] if self.target else [sys.stdout, sys.stderr]:
                target.flush()


class Logger(BoundLoggerBase):
    """A logger with some pairs bound to it. Made by `get_logger`; immutable; methods never raise."""

    def __init__(
        self,
        logger: WrappedLogger,
        processors: Sequence[Processor],
        context: dict[str, object],
        threshold: _Threshold | None = None,
    ) -> None:
        super().__init__(logger, processors, context)
        self._threshold = threshold or _Threshold(0)

    def bind(self, **new_values: object) -> Self:
        """A logger that adds these pairs to every record; `logger="…"` names it as klog's WithName does."""
        return type(self)(self._logger, _processors, {**self._context, **new_values}, self._threshold)

    def enabled(self, v: int) -> bool:
        """Whether an info record of this verbosity would be written. Guard costly arguments with it."""
        return v <= self._threshold.v

    def info(self, message: str, /, *, v: int = 0, **keys: object) -> None:
        """Writes an info record if klog's verbosity `v` is enabled."""
        if v <= self._threshold.v:
            self._emit("info", message, sys._getframe(1), {_VERBOSITY: v, **keys})

    def warning(self, message: str, /, **keys: object) -> None:
        """Writes a warning. JSON has no level for it: there it is an info record of verbosity 0."""
        self._emit("warning", message, sys._getframe(1), {_VERBOSITY: 0, **keys})

    def error(
        self, message: str, /, *, err: BaseException | str | None = None, traceback: bool = False, **keys: object
    ) -> None:
        """Writes an error, whatever the verbosity; `traceback` adds that of `err` under the key stacktrace."""
        if traceback and isinstance(err, BaseException):
            keys["stacktrace"] = "".join(tracebacks.format_exception(err)).rstrip("\n")
        if err is not None:
            keys["err"] = err
        self._emit("error", message, sys._getframe(1), keys)

    def plain(self, message: str, /, *, v: int = 0) -> None:
        """Writes a line without quotes and pairs, for the few texts that the reference prints with klog.Infof."""
        if v <= self._threshold.v:
            self._emit("info", message, sys._getframe(1), {_VERBOSITY: v, _PLAIN: True})

    def _emit(self, level: Level, message: str, caller: FrameType, keys: Mapping[str, object]) -> None:
        self._write(level, message, (caller.f_code.co_filename, caller.f_lineno), keys)

    def _write(self, level: Level, message: str, caller: tuple[str, int], keys: Mapping[str, object]) -> None:
        try:
            (line,), _ = self._process_event(level, None, {_MESSAGE: message, _CALLER: caller, **keys})
            self._logger.write(line, level)
        except DropEvent:
            pass
        except Exception as failure:  # noqa: BLE001 - a full disk or a bad value must not stop a controller
            with suppress(Exception):
                self._logger.write(f"{message} (pairs left out: {failure!r})")


class _Bridge(logging.Handler):
    """Records of libraries that use the standard logging module, in the same shape as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log = get_logger(record.name).bind(logger=record.name)
        keys: dict[str, object] = {}
        if record.exc_info and record.exc_info[1] is not None:
            keys["stacktrace"] = "".join(tracebacks.format_exception(record.exc_info[1])).rstrip("\n")
            keys["err"] = record.exc_info[1]
        if record.levelno < logging.ERROR:
            keys = {_VERBOSITY: _BRIDGED.get(record.levelno, 0), **keys}
        level: Level = "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= 30 else "info"
        log._write(level, record.getMessage(), (record.pathname, record.lineno), keys)


# Chatter of libraries is shown from where klog users expect to see requests and their contents.
_BRIDGED = {logging.INFO: 4, logging.DEBUG: 8}


def describe(err: BaseException) -> str:
    """One line about an exception for people: its text, or its type where the text alone says nothing."""
    if isinstance(err, BaseExceptionGroup):
        return "; ".join(describe(part) for part in err.exceptions)
    text = str(err)
    return f"{type(err).__name__}: {text}" if text and isinstance(err, LookupError) else text or type(err).__name__


def _to_json(value: object) -> object:
    """What JSON has no type for. A value whose `str` fails is shown as klog shows one that panics."""
    try:
        return describe(value) if isinstance(value, BaseException) else str(value)
    except Exception as failure:  # noqa: BLE001 - str() of foreign objects may raise anything
        return f"<panic: {failure}>"


_json_value = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_to_json).encode
_json_line = JSONRenderer(json.dumps, ensure_ascii=False, separators=(",", ":"), default=_to_json)


def _text_value(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | list | tuple | dict):
        return _json_value(value)
    text = value if isinstance(value, str) else str(_to_json(value))
    if "\n" in text:
        return "<\n\t" + text.removesuffix("\n").replace("\n", "\n\t") + "\n >"
    return quote(text)


def render_text(_logger: WrappedLogger, level: str, record: MutableMapping[str, Any]) -> str:
    """A structlog processor that ends the chain with klog's text line, without the line break."""
    path, line = record[_CALLER]
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(seconds))
    header = f"{level[0].upper()}{stamp}.{nanoseconds // 1000:06d} {os.getpid():7d} {os.path.basename(path)}:{line}] "  # noqa: PTH119
    if _PLAIN in record:
        return header + str(record[_MESSAGE])
    parts = [header + quote(record[_MESSAGE])]
    if "err" in record and level == "error":
        parts.append(f"err={_text_value(record.pop('err'))}")
    parts += [f"{key}={_text_value(value)}" for key, value in record.items() if key not in _NO_PAIRS]
    return " ".join(parts)


def render_json(logger: WrappedLogger, level: str, record: MutableMapping[str, Any]) -> str:
    """A structlog processor that ends the chain with one JSON object in the order that zap writes its fields."""
    path, line = record.pop(_CALLER)
    fields: dict[str, object] = {"ts": time.time_ns() / 1e6}
    if "logger" in record:
        fields["logger"] = record.pop("logger")
    fields["caller"] = "/".join(path.split("/")[-2:]) + f":{line}"
    fields["msg"] = record.pop(_MESSAGE)
    record.pop(_PLAIN, None)
    for key, value in record.items():
        if key == _VERBOSITY:
            fields["v"] = value
        else:
            fields[key + "_" if key in _JSON_HEADER else key] = value
    return str(_json_line(logger, level, fields))


_stream = _Stream()
_processors: list[Processor] = [render_text]
_thresholds: dict[str, _Threshold] = {}
_state_lock = threading.Lock()
_verbosity = 0
_vmodule: tuple[tuple[str, int], ...] = ()


def get_logger(name: str) -> Logger:
    """The logger of a module; pass `__name__`, whose last part --vmodule patterns are matched with."""
    with _state_lock:
        threshold = _thresholds.get(name)
        if threshold is None:
            threshold = _thresholds[name] = _Threshold(_threshold_of(name))
    return Logger(_stream, _processors, {}, threshold)


def _threshold_of(name: str) -> int:
    for pattern, level in _vmodule:
        if fnmatch.fnmatchcase(name if "." in pattern else name.rpartition(".")[2], pattern):
            return max(level, _verbosity)
    return _verbosity


def set_verbosity(verbosity: int) -> None:
    """Shows records of this verbosity and below from now on, in all loggers; --vmodule may still raise single ones."""
    global _verbosity  # noqa: PLW0603 - one process, one verbosity
    with _state_lock:
        _verbosity = verbosity
        for name, threshold in _thresholds.items():
            threshold.v = _threshold_of(name)
    level = logging.DEBUG if verbosity >= 8 else logging.INFO if verbosity >= 4 else logging.WARNING
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Bridge):
            logging.getLogger().setLevel(level)


def configure(
    *,
    format: Format = "text",  # noqa: A002 - the flag's own name
    verbosity: int = 0,
    vmodule: Sequence[tuple[str, int]] = (),
    stream: TextIO | None = None,
    split: bool = False,
) -> None:
    """Sets up logging for the process, including what libraries log through the standard module.

    Args:
        format: klog's text lines or JSON lines.
        verbosity: The highest verbosity of info records to write; see `set_verbosity`.
        vmodule: Patterns (`*`, `?`) of module names with the verbosity that they raise it to; the first match counts. A pattern
            with a dot is matched with the full dotted name, another with its last part.
        stream: Where lines go; None stands for standard error, looked up at each write.
        split: Without a stream, whether only errors go to standard error and the rest to standard output.
    """
    global _vmodule  # noqa: PLW0603 - as above
    _vmodule = tuple(vmodule)
    _stream.target, _stream.split = stream, split
    _processors[:] = [render_json if format == "json" else render_text]
    root = logging.getLogger()
    if not any(isinstance(handler, _Bridge) for handler in root.handlers):
        root.addHandler(_Bridge())
    set_verbosity(verbosity)


def flush() -> None:
    """Hands everything written so far to the operating system. Never raises."""
    with suppress(OSError, ValueError):
        _stream.flush()


class Record(NamedTuple):
    """One captured log call."""

    level: Level
    message: str
    v: int | None
    pairs: dict[str, object]


@contextmanager
def capture(*, verbosity: int = 10) -> Iterator[list[Record]]:
    """Collects records of all loggers instead of writing them, for tests. The list grows as calls are made."""
    records: list[Record] = []

    def collect(_logger: WrappedLogger, level: str, record: MutableMapping[str, Any]) -> str:
        pairs = {key: value for key, value in record.items() if key not in _NO_PAIRS}
        records.append(Record(level, record[_MESSAGE], record.get(_VERBOSITY), pairs))  # type: ignore[arg-type] # one of ours
        raise DropEvent

    before, verbosity_before = list(_processors), _verbosity
    _processors[:] = [collect]
    set_verbosity(verbosity)
    try:
        yield records
    finally:
        _processors[:] = before
        set_verbosity(verbosity_before)
