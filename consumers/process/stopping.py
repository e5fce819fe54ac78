"""What must be stopped at the end of a block, without hiding why the block ended.

Rule: if the block failed, its own failure is raised; if it went well, that of the stop.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from consumers.errors import PenstockError


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
