"""Work that goes on while a block runs.

Rule: it is cancelled when the block is left; if it fails, so does the block. Owner: the block.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
