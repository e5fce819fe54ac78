"""What begins and ends with a block: work beside it, and the stop of what it used.

Rule: of a block that failed its own error is raised, and one of the stop is dropped. If the block
went well, an error of the stop is raised; if work beside it fails, so does the block. Owner: the
caller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.errors import PenstockError


@asynccontextmanager
async def stopped_after(stop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        with suppress(PenstockError):
            await stop()
        raise
    await stop()


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs these until the block is left."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
