"""The partitions of this member, and how they come and go.

Rule: librdkafka calls us back from inside a read and waits for our return. So its thread waits in
the callback while the event loop suspends or begins lanes, and makes the commits of that time.

By `classic` the group takes all partitions and gives some of them back, so they are suspended, and
those that do not come back are revoked. By `consumer` it takes only what moves: that is suspended,
so that nobody waits for a drain, and revoked at once. Owner: the source.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from penstock.adapters.confluent.handle import Handle
from penstock.adapters.confluent.partition_names import PartitionNames
from penstock.adapters.confluent.reads import Reads
from penstock.ports import Commit, Rebalance

T = TypeVar("T")


class Rebalances:
    """`changes` grows with every assignment and revocation. `joining_since_s`: None for a member.
    `begins_at`: asks where partitions that come begin. `failed` gets what a rebalance raised, as it
    has no other caller.
    """

    def __init__(
        self,
        rebalance: Rebalance,
        handle: Handle,
        names: PartitionNames,
        reads: Reads,
        begins_at: Callable[[Collection[int]], Awaitable[Mapping[int, Commit]]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.changes = 0
        self.joining_since_s: float | None = None
        self._rebalance = rebalance
        self._handle = handle
        self._names = names
        self._reads = reads
        self._begins_at = begins_at
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._suspended: set[int] = set()
        self._is_over = False
        self._changing: asyncio.Task[Any] | None = None

    @property
    def is_changing(self) -> bool:
        """The thread is inside a read now: another call would wait for the end of the rebalance."""
        return self._changing is not None

    def now_joining(self) -> None:
        """By the protocol `consumer` a worker is a member at once. If the group has no partition
        for it, no callback follows, so there is no join to time.
        """
        self._reads.forget(self._reads.ours.all())
        self._reads.errors.clear()
        self.changes += 1
        self.joining_since_s = None if self._handle.is_incremental else self._loop.time()

    def nothing_to_join(self) -> None:
        """The time that a join may take has not begun."""
        if self.joining_since_s is not None:
            self.joining_since_s = self._loop.time()

    async def end(self) -> None:
        """From now on nothing is handed to the pipeline."""
        self._is_over = True
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.wait([self._changing])

    # On the thread.

    def on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._handle.note_member()
        numbers = list(map(self._names.number, partitions))
        starts, paused = self._in_loop(self._assigned(numbers)) or ({}, set())
        places = self._names.starts(starts)
        (consumer.incremental_assign if self._handle.is_incremental else consumer.assign)(places)
        consumer.resume(self._names.places(starts.keys() - paused))
        consumer.pause(self._names.places(paused))

    def on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._in_loop(self._revoked(list(map(self._names.number, partitions))))
        if self._handle.is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """None if we are stopping or it failed."""
        if self._is_over:
            work.close()
            return None
        try:
            return self._handle.in_loop(self._as_change(work), self._loop)
        except BaseException as error:  # the task that polls raises it
            self._failed(error)
            return None

    # In the event loop.

    async def _as_change(self, work: Coroutine[Any, Any, T]) -> T | None:
        if self._is_over:  # since the thread has called
            work.close()
            return None
        self._changing = asyncio.current_task()
        self._reads.keep_early()
        self._reads.wake()
        try:
            return await work
        finally:
            self._changing = None

    async def _assigned(self, numbers: Collection[int]) -> tuple[Mapping[int, Commit], set[int]]:
        """Where they begin, and those of them that are not read yet."""
        if (held := self._reads.ours.all()) and not self._handle.is_incremental:
            # librdkafka leaves out the revoke if its topics change while an assignment is made.
            await self._revoked(held)
        lost = self._suspended.difference(numbers)
        self._suspended.clear()
        if lost:
            await self._rebalance.revoked(lost)
        starts = dict(await self._begins_at(numbers))
        kept = await self._rebalance.assigned(starts)
        starts |= {number: Commit(offset) for number, offset in kept.items()}
        paused = self._reads.begin(starts)
        self.changes += 1
        self.joining_since_s = None
        return starts, paused

    async def _revoked(self, numbers: Collection[int]) -> None:
        try:
            await self._rebalance.suspended(numbers)
            if self._handle.is_incremental:
                await self._rebalance.revoked(numbers)
            else:
                self._suspended.update(numbers)
        finally:
            if self._handle.is_incremental:
                self._reads.forget(numbers)
                self.changes += 1
            else:
                self.now_joining()
