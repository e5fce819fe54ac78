"""Two context managers: one stops a service after its block, one runs work beside its block.

Rule: if the block fails, its own error is raised and an error of the stop is dropped. If the block
goes well, an error of the stop is raised. If work beside a block fails, the block fails with it.
Owner: the caller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.errors import PenstockError


@asynccontextmanager
async def stopped_after(stop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `stop` when the block is left, however it is left."""
    try:
        yield
    except BaseException:
        with suppress(PenstockError):
            await stop()
        raise
    await stop()


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these works until the block is left, then cancel them."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
