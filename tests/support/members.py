"""Bare members of a group in this process, which read and answer nothing.

Rule: a member is gone when its block is left. Owner: the tests.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.adapters.kafka.group.membership import MemberSource
from penstock.ports import Commit, Where
from tests.support.waiting import until


class Member:
    """`begun` counts its assignments; `taken`: the partitions that were taken from it."""

    def __init__(self, source: MemberSource) -> None:
        self.source = source
        self.begun = 0
        self.taken: list[Where] = []
        self.ours: set[Where] = set()

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.begun += 1
        self.ours |= set(starts)
        return {}

    async def suspended(self, partitions: Collection[Where]) -> None:
        await self.revoked(partitions)

    async def revoked(self, partitions: Collection[Where]) -> None:
        gone = self.ours.intersection(partitions)
        self.taken += sorted(gone)
        self.ours -= gone

    async def read_forever(self) -> None:
        await self.source.start(self)
        while True:
            await self.source.poll(list(self.ours), 50)

    async def until_it_has(self, count: int) -> None:
        async def has() -> bool:
            return len(self.ours) == count

        await until(has, lambda: f"{count} partitions; it has {self.ours}")


@asynccontextmanager
async def member(kafka: config.Kafka, *, leaves: bool = False) -> AsyncIterator[Member]:
    one = Member(open_source(kafka, drain_ms=2_000, leaves=leaves))
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(one.read_forever())
        try:
            yield one
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await one.source.stop()
