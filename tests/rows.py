"""Which behaviour rows the tests show: `@pytest.mark.row("R-041")` claims a row of docs/behaviour.

A row counts as shown when every test that claims it ran and passed. `pytest --rows` prints the table after the tests;
`make rows` does so for the whole suite.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

BEHAVIOUR = Path(__file__).parent.parent / "docs" / "behaviour"
WAIVERS = Path(__file__).parent.parent / "docs" / "rows.md"
MOST_ROWS_A_TEST = 5
_ROW = re.compile(r"^- (?:\*\*)?([A-Z]-\d{3})\b", re.MULTILINE)
_WAIVED = re.compile(r"^\| ([A-Z]-\d{3}) \|", re.MULTILINE)


def rows_of(text: str) -> list[str]:
    """The identifiers of the rows in a behaviour file."""
    return _ROW.findall(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", action="store_true", help="print which behaviour rows the tests showed")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RowReport(config), "kcm-row-report")


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    known = {row for file in BEHAVIOUR.glob("*.md") for row in rows_of(file.read_text())}
    for item in items:
        rows = [row for mark in item.iter_markers("row") for row in mark.args]
        if len(rows) > MOST_ROWS_A_TEST:
            raise pytest.UsageError(f"{item.nodeid} claims {len(rows)} rows; at most {MOST_ROWS_A_TEST} a test")
        if unknown := set(rows) - known:
            raise pytest.UsageError(f"{item.nodeid} claims rows that docs/behaviour does not have: {sorted(unknown)}")
        item.user_properties.extend(("row", row) for row in rows)


class RowReport:
    """Collects outcomes on the process that hears of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._claims: Counter[str] = Counter()
        self._passes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = [str(value) for name, value in report.user_properties if name == "row"]
        if report.when == "setup":
            self._claims.update(rows)
        elif report.when == "call" and report.passed:
            self._passes.update(rows)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._config.getoption("--rows"):
            return
        waived = set(_WAIVED.findall(WAIVERS.read_text())) if WAIVERS.exists() else set()
        shown = {row for row, claims in self._claims.items() if claims and self._passes[row] == claims}
        open_rows: dict[str, list[str]] = defaultdict(list)
        terminalreporter.section("behaviour rows")
        for file in sorted(BEHAVIOUR.glob("*.md")):
            rows = rows_of(file.read_text())
            counts = (len(shown & set(rows)), len(waived & set(rows)), len(rows))
            terminalreporter.write_line(f"{file.stem:12} {counts[0]:4} shown  {counts[1]:3} waived  of {counts[2]:4}")
            open_rows[file.stem] = [row for row in rows if row not in shown | waived]
        for name, rows in open_rows.items():
            terminalreporter.write_line(f"\n{name}, not shown yet: {' '.join(rows) or 'none'}")
