"""Waiting for other processes, which tell nobody when they are done: by looking again and again."""

import asyncio
from collections.abc import Awaitable, Callable

# Ten times what the slowest of these waits takes on two quiet cores: a killed member's session (8
# s), a rebalance and a start of the interpreter. Seven test processes may share them with others.
DEADLINE_S = 200.0
# A look at a broker is two requests, and several processes look at once: what does not come soon is
# looked for more seldom.
LOOK_S, SELDOM_S = 0.05, 0.15
SOON_LOOKS = 20


async def until(
    condition: Callable[[], Awaitable[bool]], what: Callable[[], str], within_s: float = DEADLINE_S
) -> None:
    """Returns when the condition holds; fails with `what` was awaited if it never does."""
    try:
        async with asyncio.timeout(within_s):
            looks = 0
            while not await condition():
                looks += 1
                await asyncio.sleep(LOOK_S if looks < SOON_LOOKS else SELDOM_S)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what()}") from None
