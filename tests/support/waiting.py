"""Waiting for other processes, which tell nobody when they are done: by looking again and again."""

import asyncio
from collections.abc import Awaitable, Callable

# Four times what the slowest of these waits takes on two quiet cores, which five test processes
# share: a killed member's session (8 s), a rebalance and a start of the interpreter.
DEADLINE_S = 80.0
# A look at a broker is three requests, and several processes look at once.
LOOK_S = 0.05


async def until(
    condition: Callable[[], Awaitable[bool]], what: Callable[[], str], within_s: float = DEADLINE_S
) -> None:
    """Returns when the condition holds; fails with `what` was awaited if it never does."""
    try:
        async with asyncio.timeout(within_s):
            while not await condition():  # noqa: ASYNC110  (another process has no Event)
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what()}") from None
