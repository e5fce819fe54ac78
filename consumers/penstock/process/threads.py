"""Runs work in a thread without keeping the result alive longer than needed.

Rule: the futures between a thread and the event loop refer to each other until the garbage
collector runs. If they held the work's result, megabytes would stay in memory until then. Owner:
the caller.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but for large results (see the rule above)."""
    box: list[T] = []
    await asyncio.to_thread(lambda: box.append(work()))
    return box.pop()
