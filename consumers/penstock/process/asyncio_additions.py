"""What our code needs beside asyncio: a stop after a block, work beside a block, work in a thread.

Rule: if a block fails, its own error is raised and an error of the stop is dropped. If the block
goes well, an error of the stop is raised. If work beside a block fails, the block fails with it.
Owner: the caller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

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


T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but does not keep a large result alive: the futures between the
    thread and the event loop refer to each other until the garbage collector runs. If they held the
    result, megabytes would stay in memory until then.
    """
    box: list[T] = []
    await asyncio.to_thread(lambda: box.append(work()))
    return box.pop()
