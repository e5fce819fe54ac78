"""The callbacks by which librdkafka assigns and revokes this member's partitions.

Rule: librdkafka calls from inside a read, on its thread, and waits. So the callback keeps the
thread while the event loop suspends or begins lanes, and makes the commits of this time.

With the protocol `classic` the group takes all partitions and gives some back: all are suspended,
then those that do not come back revoked. With `consumer` it takes only those that move; they are
suspended and revoked at once, so that no member waits for a drain.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.reads import Reads, places, places_at, where_of
from penstock.adapters.kafka.assigned_partitions import Starts
from penstock.ports import Commit, Rebalance, Where

T = TypeVar("T")


class Rebalances:
    """`changes`: a counter that grows with every assignment and revocation. `joining_since_s`: when
    the present join began; None while this worker is a member. `begins_at`: a function that asks
    for the positions of assigned partitions. `failed`: a function that is called with the exception
    of a failed rebalance, because librdkafka loses the exceptions of its callbacks.
    """

    def __init__(
        self,
        rebalance: Rebalance,
        handle: Handle,
        reads: Reads,
        begins_at: Callable[[Collection[Where]], Awaitable[Starts]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.changes = 0
        self.joining_since_s: float | None = None
        self._rebalance = rebalance
        self._handle = handle
        self._reads = reads
        self._begins_at = begins_at
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._suspended: set[Where] = set()
        self._is_over = False
        self._changing: asyncio.Task[Any] | None = None

    @property
    def is_changing(self) -> bool:
        """True during a rebalance. All that time the thread is inside a read, so another read would
        have to wait until the rebalance has ended.
        """
        return self._changing is not None

    def now_joining(self) -> None:
        """Call this when a join begins. With the protocol `consumer` the time of the join is not
        measured: a worker is a member at once, and if the group has no partition for the worker, no
        callback tells that the join has ended.
        """
        self._reads.forget(self._reads.ours.all())
        self._reads.errors.clear()
        self.changes += 1
        self.joining_since_s = None if self._handle.is_incremental else self._loop.time()

    def nothing_to_join(self) -> None:
        """Call this while no topic matches the pattern. The time that a join may take begins
        later.
        """
        if self.joining_since_s is not None:
            self.joining_since_s = self._loop.time()

    async def end(self) -> None:
        """Hand nothing to the pipeline from now on."""
        self._is_over = True
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.wait([self._changing])

    # The following methods run on the thread of the reads.

    def on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._handle.note_member()
        ours = list(map(where_of, partitions))
        starts, paused = self._in_loop(self._assigned(ours)) or ({}, set())
        assign = consumer.incremental_assign if self._handle.is_incremental else consumer.assign
        assign(places_at(starts))
        consumer.resume(places(starts.keys() - paused))
        consumer.pause(places(paused))

    def on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._in_loop(self._revoked(list(map(where_of, partitions))))
        if self._handle.is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Let the event loop do this work, and return its result. Returns None if the source stops
        or the work has failed.
        """
        if self._is_over:
            work.close()
            return None
        try:
            return self._handle.in_loop(self._as_change(work), self._loop)
        except BaseException as error:  # the task that polls raises it
            self._failed(error)
            return None

    # The following methods run in the event loop.

    async def _as_change(self, work: Coroutine[Any, Any, T]) -> T | None:
        if self._is_over:  # the source was stopped after the thread had called
            work.close()
            return None
        self._changing = asyncio.current_task()
        self._reads.keep_early()
        self._reads.wake()
        try:
            return await work
        finally:
            self._changing = None

    async def _assigned(
        self, partitions: Collection[Where]
    ) -> tuple[Mapping[Where, Commit], set[Where]]:
        """Returns two things: the positions at which the partitions begin; and the partitions that
        stay paused for now.
        """
        if (held := self._reads.ours.all()) and not self._handle.is_incremental:
            # If the topics change while an assignment is made, librdkafka does not call `on_revoke`
            # before the next assignment. So the former partitions are revoked here.
            await self._revoked(held)
        suspended, self._suspended = self._suspended, set()
        if lost := suspended.difference(partitions):
            await self._rebalance.revoked(lost)
        commits, made_again = await self._begins_at(partitions)
        if former := suspended.intersection(made_again):
            await self._rebalance.revoked(former)
        starts = dict(commits)
        kept = await self._rebalance.assigned(starts)
        starts |= {where: Commit(offset) for where, offset in kept.items()}
        paused = self._reads.begin(starts)
        self.changes += 1
        self.joining_since_s = None
        return starts, paused

    async def _revoked(self, partitions: Collection[Where]) -> None:
        try:
            await self._rebalance.suspended(partitions)
            if self._handle.is_incremental:
                await self._rebalance.revoked(partitions)
            else:
                self._suspended.update(partitions)
        finally:
            if self._handle.is_incremental:
                self._reads.forget(partitions)
                self.changes += 1
            else:
                self.now_joining()
