"""Doing the same thing many times, carefully at first. Follows replica_set.go:slowStartBatch."""

import asyncio
from collections.abc import Awaitable, Callable

INITIAL_BATCH = 1


async def slow_start_batch(count: int, action: Callable[[], Awaitable[object]]) -> tuple[int, Exception | None]:
    """Run an action up to `count` times in batches of 1, 2, 4, … until one fails.

    The calls of a batch run at once, and all of them end before anything else happens, also on cancellation.

    Returns:
        How often it succeeded, and one error of the batch that had any.
    """
    successes = 0
    size = min(count, INITIAL_BATCH)
    while size > 0:
        errors = await run_all([action] * size)
        successes += size - len(errors)
        if errors:
            return successes, errors[0]
        size = min(2 * size, count - successes)
    return successes, None


async def run_all(actions: list[Callable[[], Awaitable[object]]]) -> list[Exception]:
    """Run actions at once, await all of them, and give the errors in the order in which they came."""
    errors: list[Exception] = []

    async def run(action: Callable[[], Awaitable[object]]) -> None:
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - the caller looks at it once all have ended
            errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        for action in actions:
            tasks.create_task(run(action))
    return errors
