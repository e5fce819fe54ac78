"""A line reads a topic, hands its records over in batches, and commits a batch when its results are
delivered.

Rule: batches are handed over and committed in order. Records of an assignment that is over are
dropped; the next assignment reads them again. Owner: the engine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.order.time_order import Merge
from penstock.errors import Transient
from penstock.ports import Commit, Followed, Record

log = logging.getLogger(__name__)

POLL_MS = 200
# A crash repeats at most the records of this time. Repeats are recognised by their ids.
COMMIT_S = 0.5
# How many batches may be handed over before the results of the first one are delivered, so that the
# next batches are read meanwhile.
UNDER_WAY = 8
# The records of all partitions are merged by time. If the next records of a partition are not read
# yet, the records of the other partitions wait for them, at most this long. A broker that answers
# at all sends the next records much sooner.
PATIENCE_S = 1.0

Work = Callable[[Sequence[Record]], Awaitable[Awaitable[object]]]
Change = Callable[[Collection[int]], Awaitable[None]]


class Source(Followed, Protocol):
    """The methods of the Kafka source that a line needs."""

    async def commit(self, commits: Mapping[int, Commit]) -> None: ...


class Line:
    """`work` takes a batch and returns an awaitable, which ends when the batch may be committed.
    The line calls `taken` with new partitions, before their first record. At each rebalance the
    line calls `given` with all its partitions, after their last record, and then `taken` again with
    the partitions that stay.
    """

    def __init__(self, source: Source, work: Work, taken: Change, given: Change) -> None:
        self._source = source
        self._work = work
        self._taken = taken
        self._given = given
        self._ours: frozenset[int] = frozenset()
        self._life = 0
        self._busy = asyncio.Lock()
        self._under_way: asyncio.Queue[tuple[Mapping[int, Commit], Awaitable[object]]]
        self._under_way = asyncio.Queue(UNDER_WAY)
        self._safe: dict[int, Commit] = {}
        self._merge: Merge[Record] = Merge(PATIENCE_S)

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        self._ours = frozenset(starts)  # records may come before `taken` returns
        await self._taken(starts)
        return {}

    async def revoked(self, partitions: Collection[int]) -> None:
        if self._ours.intersection(partitions):
            await self.suspended(partitions)

    async def suspended(self, partitions: Collection[int]) -> None:
        """A rebalance begins: finish the batches in progress, which are short, and give up all
        partitions.
        """
        self._ours = frozenset()
        self._life += 1
        self._merge.clear()
        async with self._busy:
            await self._under_way.join()
        await self._given(partitions)
        await self._commit()
        self._safe.clear()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`; then finish and commit the batches in progress, and leave the group."""
        await self._source.start(self)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._settle()), tasks.create_task(self._commit_often())]
            while not stop.is_set():
                read = await self._source.poll(self._merge.room(self._ours), POLL_MS)
                # The records belong to the assignment that is current after the poll. If this
                # assignment ends while we wait for `_busy`, the records are dropped, and the next
                # assignment reads them again.
                life = self._life
                ours = [record for record in read if record.partition in self._ours]
                async with self._busy:
                    if life == self._life:
                        await self._pass_on(ours)
            await self.suspended(self._ours)
            for task in beside:
                task.cancel()
        await self._source.stop()

    async def _pass_on(self, read: Sequence[Record]) -> None:
        self._merge.add(read)
        now_s = asyncio.get_running_loop().time()
        records = self._merge.take(self._source.reached(), self._source.known_ends(), now_s)
        if not records:
            return
        ends = {record.partition: Commit(record.offset + 1) for record in records}
        await self._under_way.put((ends, await self._work(records)))

    async def _settle(self) -> None:
        while True:
            ends, safe = await self._under_way.get()
            await safe
            self._safe.update(ends)
            self._under_way.task_done()

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit()

    async def _commit(self) -> None:
        commits, self._safe = self._safe, {}
        if not commits:
            return
        try:
            await self._source.commit(commits)
        except Transient as error:
            log.warning("the commit failed and is tried again: %s", error)
            self._safe = commits | self._safe
