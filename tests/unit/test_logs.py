"""Log lines as an operator's tools read them, and what a caller may rely on."""

import io
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from kcm import logs

log = logs.get_logger("kcm.controllers.deployment.rolling")

HEADER = re.compile(r"([IWE])(\d{4} \d\d:\d\d:\d\d\.\d{6}) ([ \d]{7}) (\S+):(\d+)\] (.*)", re.DOTALL)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logs.configure()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(stream=stream)
    return stream


@pytest.fixture
def json_stream() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(format="json", verbosity=2, stream=stream)
    return stream


def text_after_header(stream: io.StringIO) -> str:
    match = HEADER.fullmatch(stream.getvalue().removesuffix("\n"))
    assert match
    return match[6]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.row("C-120")
def test_text_lines_begin_with_klogs_header(stream: io.StringIO) -> None:
    before = datetime.now()
    log.info("Hello")
    log.warning("Hello")
    log.error("Hello")
    for letter, call, line in zip("IWE", ("info", "warning", "error"), stream.getvalue().splitlines(), strict=True):
        match = HEADER.fullmatch(line)
        assert match
        assert match[1] == letter
        stamp = datetime.strptime(f"{before.year}{match[2]}", "%Y%m%d %H:%M:%S.%f")
        assert 0 <= (stamp - before.replace(microsecond=0)).total_seconds() < 60
        assert match[3] == str(os.getpid()).rjust(7)
        assert match[4] == "test_logs.py"
        assert f'log.{call}("Hello")' in Path(__file__).read_text().splitlines()[int(match[5]) - 1]
        assert match[6] == '"Hello"'


@pytest.mark.row("C-121")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("default/web", '"default/web"'),
        ('say "hi"\t\\', r'"say \"hi\"\t\\"'),
        ("naïve ✓", '"naïve ✓"'),
        ("\x00\u200b\udcff", r'"\x00\u200b\xff"'),
        ("", '""'),
        (3, "3"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        (["a", 1], '["a",1]'),
        ({"a": Unprintable()}, '{"a":"<panic: no text>"}'),
        (Path("/etc/x"), '"/etc/x"'),
        (ValueError("bad"), '"bad"'),
        ("two\nlines", "<\n\ttwo\n\tlines\n >"),
        ("ends\n", "<\n\tends\n >"),
        (Unprintable(), '"<panic: no text>"'),
    ],
)
def test_text_values_are_written_as_klog_writes_them(stream: io.StringIO, value: object, text: str) -> None:
    log.info("Syncing", key=value)
    assert text_after_header(stream) == f'"Syncing" key={text}'


@pytest.mark.row("C-121")
def test_text_shows_the_error_first_then_bound_pairs_then_those_of_the_call(stream: io.StringIO) -> None:
    log.bind(logger="deployment-controller", deployment="ns/web").error("Sync failed", err="boom", event="ADDED")
    assert text_after_header(stream) == (
        '"Sync failed" err="boom" logger="deployment-controller" deployment="ns/web" event="ADDED"'
    )


@pytest.mark.row("C-122")
@pytest.mark.parametrize("form", ["text", "json"])
def test_everything_goes_to_standard_error(form: logs.Format, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(format=form)
    log.info("one")
    log.warning("two")
    log.error("three")
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 3


@pytest.mark.row("C-123")
def test_json_lines_have_zaps_fields_in_zaps_order(json_stream: io.StringIO) -> None:
    before = time.time() * 1000
    log.bind(logger="deployment-controller", deployment="ns/web").info("Scaled", v=2, replicas=3, ts="mine")
    log.error("Failed", err=OSError("broken"), pod="ns/p")
    scaled, failed = (json.loads(line) for line in json_stream.getvalue().splitlines())
    assert list(scaled) == ["ts", "logger", "caller", "msg", "deployment", "v", "replicas", "ts_"]
    assert before <= scaled["ts"] < before + 60_000
    assert isinstance(scaled["ts"], float)
    assert re.fullmatch(r"unit/test_logs\.py:\d+", scaled["caller"])
    assert (scaled["logger"], scaled["msg"], scaled["v"], scaled["replicas"]) == (
        "deployment-controller",
        "Scaled",
        2,
        3,
    )
    assert list(failed) == ["ts", "caller", "msg", "pod", "err"]
    assert failed["err"] == "broken"


@pytest.mark.row("C-124")
def test_json_warnings_are_info_lines_of_verbosity_0(json_stream: io.StringIO) -> None:
    log.warning("Careful")
    line = json.loads(json_stream.getvalue())
    assert (line["msg"], line["v"]) == ("Careful", 0)
    assert "level" not in line


@pytest.mark.row("C-125")
def test_verbosity_lets_its_level_and_those_below_through_and_never_hides_errors(stream: io.StringIO) -> None:
    bound = log.bind(x=1)
    logs.set_verbosity(2)
    for v in (1, 2, 3):
        log.info("log", v=v, level=v)
        bound.info("bound", v=v, level=v)
    logs.set_verbosity(0)
    log.info("late", v=1)
    log.warning("warned")
    log.error("failed")
    shown = re.findall(r'\] "(\w+)".*?(\d?)$', stream.getvalue(), re.MULTILINE)
    assert shown == [("log", "1"), ("bound", "1"), ("log", "2"), ("bound", "2"), ("warned", ""), ("failed", "")]
    assert (log.enabled(0), log.enabled(1)) == (True, False)


@pytest.mark.row("C-125")
@pytest.mark.parametrize(
    ("vmodule", "expected"),
    [
        ([("rolling", 4)], 4),
        ([("roll*", 4)], 4),
        ([("r?lling", 4)], 4),
        ([("deployment", 4)], 1),
        ([("kcm.controllers.*", 4)], 4),
        ([("rolling", 3), ("*", 5)], 3),
        ([("rolling", 0)], 1),
    ],
)
def test_vmodule_raises_single_modules(vmodule: list[tuple[str, int]], expected: int) -> None:
    logs.configure(verbosity=1, vmodule=vmodule)
    assert log.enabled(expected)
    assert not log.enabled(expected + 1)
    assert logs.get_logger("kcm.controllers.deployment.rolling").enabled(expected)


@pytest.mark.row("C-126")
def test_every_line_is_handed_over_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", buffering=1 << 16) as target:
        logs.configure(stream=target)
        log.info("Hello")
        assert "Hello" in (tmp_path / "log").read_text()
        logs.configure()


def test_a_disabled_record_touches_none_of_its_values(stream: io.StringIO) -> None:
    text = Mock(return_value="text")
    value = Mock(__str__=text)
    log.info("Details", v=5, value=value)
    text.assert_not_called()
    log.info("Details", v=0, value=value)
    text.assert_called_once_with()
    assert text_after_header(stream) == '"Details" value="text"'


def test_a_plain_line_is_not_quoted(stream: io.StringIO) -> None:
    log.plain('FLAG: --v="1"')
    log.plain("hidden", v=1)
    assert text_after_header(stream) == 'FLAG: --v="1"'


@pytest.mark.parametrize(
    ("err", "text"),
    [
        (TimeoutError(), "TimeoutError"),
        (KeyError("uid"), "KeyError: 'uid'"),
        (ExceptionGroup("group", [OSError("a"), ValueError("b")]), "a; b"),
    ],
)
def test_errors_without_a_telling_text_are_named(stream: io.StringIO, err: Exception, text: str) -> None:
    log.error("Failed", err=err)
    assert text_after_header(stream) == f'"Failed" err="{text}"'


def test_a_traceback_comes_along_when_asked_for(stream: io.StringIO) -> None:
    try:
        int("x1")
    except ValueError as error:
        log.error("Crashed", err=error, traceback=True)
    text = text_after_header(stream)
    assert text.startswith('"Crashed" err="invalid literal for int()')
    assert " stacktrace=<\n\tTraceback (most recent call last):\n" in text
    assert text.endswith("\n\tValueError: invalid literal for int() with base 10: 'x1'\n >")


def test_a_broken_stream_does_not_reach_the_caller() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    stream.close()
    log.error("Nobody reads this", err="x")
    logs.flush()


def test_a_value_that_no_format_can_show_leaves_the_message(json_stream: io.StringIO) -> None:
    circle: list[object] = []
    circle.append(circle)
    log.info("Round", value=circle)
    assert json_stream.getvalue().startswith("Round (pairs left out: ValueError")


def test_lines_of_two_threads_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as target:
        logs.configure(format="json", stream=target)

        def write(n: int) -> None:
            for i in range(300):
                log.info("Line", n=n, i=i, pad="x" * 500)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        logs.configure()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for n in range(2):
        assert [line["i"] for line in lines if line["n"] == n] == list(range(300))


def test_libraries_that_use_the_standard_module_log_in_the_same_shape(json_stream: io.StringIO) -> None:
    library = logging.getLogger("aiohttp.client")
    library.info("chatter")
    library.warning("odd %s", "thing")
    library.error("lost", exc_info=OSError("gone"))
    odd, lost = (json.loads(line) for line in json_stream.getvalue().splitlines())
    assert (odd["logger"], odd["msg"], odd["v"]) == ("aiohttp.client", "odd thing", 0)
    assert (lost["msg"], lost["err"]) == ("lost", "gone")
    assert lost["stacktrace"] == "OSError: gone"
    logs.set_verbosity(4)
    library.info("chatter")
    assert json.loads(json_stream.getvalue().splitlines()[-1])["v"] == 4


def test_captured_records_are_not_written(stream: io.StringIO) -> None:
    with logs.capture() as records:
        log.bind(pod="ns/a").info("Deleting pod", v=2, event="x")
        log.error("Failed", err="why")
    assert records == [
        logs.Record("info", "Deleting pod", 2, {"pod": "ns/a", "event": "x"}),
        logs.Record("error", "Failed", None, {"err": "why"}),
    ]
    assert stream.getvalue() == ""
    log.info("Back")
    assert "Back" in stream.getvalue()
