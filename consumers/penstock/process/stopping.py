"""Stops something at the end of a block without hiding why the block failed.

Rule: if the block failed, its own error is raised and one of the stop is dropped. If the block went
well, an error of the stop is raised. Owner: the caller.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from penstock.errors import PenstockError


@asynccontextmanager
async def stopped_after(stop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Calls `stop` when the block is left."""
    try:
        yield
    except BaseException:
        with suppress(PenstockError):
            await stop()
        raise
    await stop()
