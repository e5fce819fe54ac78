"""Transactional producers in memory, over a `MemorySource` and a `MemorySink`.

Rule: the sink's topics hold what a reader of committed records sees; aborted records are only in
`aborted`. Owner: the test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.adapters.memory.kafka import MemorySink, MemorySource
from penstock.errors import Fenced, Transient
from penstock.ports import Commit, Outgoing, Where


class MemoryProducers:
    """`before_commit` may wait or raise between the records of a transaction and its commit; it is
    called for each of its partitions. `expelled`: the group has gone on without this worker.
    """

    def __init__(self, source: MemorySource, sink: MemorySink) -> None:
        self.source = source
        self.sink = sink
        self.aborted: list[Outgoing] = []
        # The partitions of each.
        self.transactions: list[list[int]] = []
        self.begun = 0
        self.opened = 0
        self.expelled = False
        self.before_open: Callable[[int], Awaitable[None]] | None = None
        self.before_commit: Callable[[int], Awaitable[None]] | None = None

    async def take_back_left(self) -> None:
        """A reader here never waits."""

    async def open(self, number: int) -> "MemoryPassage":
        self.opened += 1
        await asyncio.sleep(0)
        if self.before_open is not None:
            await self.before_open(number)
        return MemoryPassage(self)

    def group(self, where: Where) -> str:
        return "group"


class MemoryPassage:
    def __init__(self, producers: MemoryProducers) -> None:
        self._producers = producers
        self._spent = False

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        producers = self._producers
        producers.begun += 1
        try:
            if self._spent:
                raise Transient("this producer has failed before: another one must be opened")
            await asyncio.sleep(0)
            for where in positions:
                if producers.before_commit is not None:
                    await producers.before_commit(where.partition)
            if producers.expelled:
                raise Fenced("the group has gone on without this member")
        except BaseException:
            self._spent = True
            producers.aborted += outgoing
            raise
        for out in outgoing:
            records = zip(out.keys, out.values, strict=True)
            producers.sink.topics[out.topic][out.partition] += records
        numbers = {where.partition: position for where, position in positions.items()}
        producers.source.committed.update(numbers)
        producers.transactions.append(list(numbers))

    async def close(self) -> None:
        self._spent = True
