"""Work in a thread, without leaving its result behind.

Rule: the futures between a thread and the event loop refer to each other until the collector
comes by, so what the work returns must not be theirs to keep: megabytes would wait with them.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """`asyncio.to_thread` for results that are large."""
    box: list[T] = []
    await asyncio.to_thread(lambda: box.append(work()))
    return box.pop()
