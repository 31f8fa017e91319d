"""Named checks behind one path.

Follows apiserver pkg/server/healthz/healthz.go and controller-manager pkg/healthz/handler.go.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from kcm.gotext import quote
from kcm.logs import get_logger

log = get_logger(__name__)

#: Says what is wrong, or None. Called on the server's loop, so it must return at once.
Check = Callable[[], str | None]


class Report(NamedTuple):
    """What to answer."""

    status: int
    text: str


def _ping() -> str | None:
    return None


class HealthMetrics(Protocol):
    """Gets the results of checks."""

    def checked(self, *, name: str, type: str, ok: bool) -> None:  # noqa: A002 - the label's name
        """A check was made."""


class HealthChecks:
    """The checks of one path, in the order in which they were added; without any there is one that always passes."""

    def __init__(self, name: str, metrics: HealthMetrics | None = None) -> None:
        self.name = name
        self._metrics = metrics
        self._checks: dict[str, Check] = {}
        self._lock = threading.Lock()

    def add(self, checks: Mapping[str, Check]) -> None:
        """Add checks in one step; allowed in any thread.

        Raises:
            ValueError: there is a check of that name already.
        """
        with self._lock:
            if taken := self._checks.keys() & checks.keys():
                raise ValueError(f"{self.name} already has checks named {', '.join(sorted(taken))}")
            self._checks = {**self._checks, **checks}

    def report(self, *, verbose: bool = False, excluded: Collection[str] = ()) -> Report:
        """Ask all checks that are not excluded (healthz.go:handleRootHealth).

        The answer lists each check if one failed or `verbose` asks for it. Reasons are withheld, since anybody may read it;
        they are logged.
        """
        checks = self._checks or {"ping": _ping}
        lines: list[str] = []
        failures: dict[str, str] = {}
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
                continue
            problem = check()
            if self._metrics is not None:
                self._metrics.checked(name=name, type=self.name, ok=problem is None)
            if problem is None:
                lines.append(f"[+]{name} ok\n")
            else:
                lines.append(f"[-]{name} failed: reason withheld\n")
                failures[name] = problem
        if unknown := sorted(set(excluded) - checks.keys()):
            names = ",".join(quote(name) for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if failures:
            log.info("Health check failed", v=2, path=f"/{self.name}", failures=failures)
            return Report(500, f"{''.join(lines)}{self.name} check failed\n")
        return Report(200, f"{''.join(lines)}{self.name} check passed\n" if verbose else "ok")
