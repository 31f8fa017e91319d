"""Trying again after conflicts."""

from typing import Any

import pytest

from kcm.api.errors import AggregateError
from kcm.controllers.retry import DEFAULT_BACKOFF, DEFAULT_RETRY, Retries, retry_on_conflict
from tests.unit.fakes import refusal

pytestmark = pytest.mark.looptime

CONFLICT = refusal(409, "Conflict", "changed")


class Action:
    """Raises these errors, one at each call, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.mark.row("S-145")
@pytest.mark.parametrize(("retries", "tries", "shortest"), [(DEFAULT_BACKOFF, 4, 0.31), (DEFAULT_RETRY, 5, 0.04)])
async def test_conflicts_are_retried_for_a_while(retries: Retries, tries: int, shortest: float, looptime: Any) -> None:
    action = Action(*[CONFLICT] * 9)
    with pytest.raises(type(CONFLICT)) as caught:
        await retry_on_conflict(retries, action)
    assert caught.value is CONFLICT
    assert action.calls == tries
    assert shortest <= looptime <= shortest * 1.11


@pytest.mark.row("S-145")
async def test_what_succeeds_or_fails_otherwise_ends_it() -> None:
    assert await retry_on_conflict(DEFAULT_BACKOFF, Action(CONFLICT, CONFLICT)) == "done"
    action = Action(CONFLICT, ValueError("other"), CONFLICT)
    with pytest.raises(ValueError, match="other"):
        await retry_on_conflict(DEFAULT_BACKOFF, action)
    assert action.calls == 2


async def test_an_error_because_of_a_conflict_is_one_and_an_aggregate_is_none() -> None:
    wrapped = ValueError("could not")
    wrapped.__cause__ = CONFLICT
    assert await retry_on_conflict(DEFAULT_BACKOFF, Action(wrapped)) == "done"
    with pytest.raises(AggregateError):
        await retry_on_conflict(DEFAULT_BACKOFF, Action(AggregateError([CONFLICT])))
