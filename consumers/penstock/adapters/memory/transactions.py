"""Exactly-once outlets in memory, over a `MemorySource` and a `MemorySink`.

Rule: the sink's topics hold what a reader of committed records sees; aborted records are only in
`aborted`. Several pipelines that share one of these fence each other as workers do. Owner: the
test.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from penstock.adapters.memory.kafka import MemorySink, MemorySource
from penstock.errors import Fenced, Transient
from penstock.ports import Commit, Outgoing


class MemoryOutlets:
    """`before_commit` may wait or raise between the records of a transaction and its commit.
    `before_open` runs while a new owner fences the former one, whose last transaction is decided
    meanwhile.
    """

    def __init__(self, source: MemorySource, sink: MemorySink) -> None:
        self.source = source
        self.sink = sink
        self.aborted: list[Outgoing] = []
        self.transactions = 0
        self.before_open: Callable[[int], Awaitable[None]] | None = None
        self.before_commit: Callable[[int], Awaitable[None]] | None = None
        self.epochs: Counter[int] = Counter()

    async def open(self, partition: int) -> "MemoryOutlet":
        self.epochs[partition] += 1
        epoch = self.epochs[partition]
        await asyncio.sleep(0)
        if self.before_open is not None:
            await self.before_open(partition)
        return MemoryOutlet(self, partition, epoch)


class MemoryOutlet:
    def __init__(self, outlets: MemoryOutlets, partition: int, epoch: int) -> None:
        self._outlets = outlets
        self._partition = partition
        self._epoch = epoch
        self._spent = False

    async def publish(self, outgoing: Sequence[Outgoing], position: Commit) -> None:
        outlets = self._outlets
        try:
            if self._spent:
                raise Transient("this outlet has failed before: another one must be opened")
            await asyncio.sleep(0)
            if outlets.before_commit is not None:
                await outlets.before_commit(self._partition)
            if outlets.epochs[self._partition] != self._epoch:
                raise Fenced("another outlet of the partition was opened")
        except BaseException:
            self._spent = True
            outlets.aborted += outgoing
            raise
        for out in outgoing:
            records = zip(out.keys, out.values, strict=True)
            outlets.sink.topics[out.topic][out.partition] += records
        outlets.source.committed[self._partition] = position
        outlets.transactions += 1

    async def close(self) -> None:
        self._spent = True
