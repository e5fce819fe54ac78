"""The tasks that publish: one for each partition, until it is handed back.

Rule: a task that is to end is cancelled, and waited for: only then can nothing of its partition
leave any more. Owner: the assignments.
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from penstock.errors import EXIT_UNREACHABLE, Fatal

# Longer than a transaction takes to end, so that a second cancellation does not disturb it.
ASK_AGAIN_S = 10.0
ASKS = 3


class PublishingTasks:
    """`group`: where they run."""

    group: asyncio.TaskGroup

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def partitions(self) -> list[int]:
        return list(self._tasks)

    def of(self, partitions: Collection[int]) -> list[int]:
        """Those of them that have a task."""
        return [partition for partition in partitions if partition in self._tasks]

    def start(self, partition: int, work: Coroutine[Any, Any, None]) -> bool:
        """False: a task has failed, so no more are started."""
        try:
            self._tasks[partition] = self.group.create_task(work)
        except RuntimeError:
            work.close()
            return False
        return True

    def cancel(self, partition: int) -> None:
        """Begin to end its task."""
        self._tasks[partition].cancel()

    async def end(self, partitions: Collection[int]) -> None:
        """End their tasks; open transactions are aborted."""
        await _end(self._taken(partitions))

    def end_soon(self, partitions: Collection[int]) -> None:
        """The same, without waiting for it."""
        if taken := self._taken(partitions):
            work = _end(taken)
            try:
                self.group.create_task(work)
            except RuntimeError:
                work.close()  # a task has failed: all of them end

    def _taken(self, partitions: Collection[int]) -> set[asyncio.Task[None]]:
        return {self._tasks.pop(partition) for partition in self.of(partitions)}


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for _ in range(ASKS):
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        # Cancelled again: a client library that is closing may have swallowed the first one.
        _, tasks = await asyncio.wait(tasks, timeout=ASK_AGAIN_S)
    if tasks:
        raise Fatal(
            f"{len(tasks)} partitions could not be handed back: Kafka's client did not let go of a "
            f"producer within {ASKS * ASK_AGAIN_S:g} s.",
            exit_code=EXIT_UNREACHABLE,
        )
