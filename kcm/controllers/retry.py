"""Trying again after a conflict. Follows client-go util/retry/util.go."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kcm.api.errors import is_conflict

T = TypeVar("T")

_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Retries:
    """How often something is tried, and how long the pauses are: seconds of the first, and by what each next one grows."""

    tries: int
    pause: float
    factor: float


#: For writers that compete with few others.
DEFAULT_RETRY = Retries(tries=5, pause=0.01, factor=1.0)
#: For writers that compete with others that may be busy.
DEFAULT_BACKOFF = Retries(tries=4, pause=0.01, factor=5.0)


async def retry_on_conflict(retries: Retries, action: Callable[[], Awaitable[T]]) -> T:
    """Run an action until it meets no conflict, and give what it gave.

    An error that was raised from a conflict counts as one.

    Raises:
        Exception: what the last try raised, or the first one that met something else than a conflict.
    """
    pause = retries.pause
    for left in reversed(range(retries.tries)):
        try:
            return await action()
        except Exception as error:
            if left == 0 or not (is_conflict(error) or is_conflict(error.__cause__)):
                raise
        await asyncio.sleep(pause * random.uniform(1, 1 + _JITTER))
        pause *= retries.factor
    raise AssertionError("unreachable")
