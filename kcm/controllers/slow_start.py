"""Doing many things at once, carefully at first. Follows the slowStartBatch functions of pkg/controller."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

INITIAL_BATCH = 1

Action = Callable[[], Awaitable[object]]


async def slow_start_batch(actions: Sequence[Action], *, largest: int | None = None) -> tuple[int, list[Exception]]:
    """Run actions in their order, in batches of 1, 2, 4, … until one fails.

    The actions of a batch run at once, and all of them end before anything else happens, also on cancellation.

    Args:
        actions: What to do.
        largest: Batches grow no larger than this.

    Returns:
        How many succeeded, and the errors of the batch that had any, in the order in which they came.
    """
    done = 0
    size = min(len(actions), INITIAL_BATCH)
    while size > 0:
        errors = await run_all(actions[done : done + size])
        if errors:
            return done + size - len(errors), errors
        done += size
        size = min(2 * size, len(actions) - done)
        if largest is not None:
            size = min(size, largest)
    return done, []


async def run_all(actions: Sequence[Action]) -> list[Exception]:
    """Run actions at once, await all of them, and give the errors in the order in which they came."""
    errors: list[Exception] = []

    async def run(action: Action) -> None:
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - the caller looks at it once all have ended
            errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        for action in actions:
            tasks.create_task(run(action))
    return errors
