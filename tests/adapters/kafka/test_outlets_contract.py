"""The contract of exactly-once outlets, in memory."""

import pytest

from penstock.adapters.memory.kafka import MemorySink, MemorySource
from penstock.adapters.memory.transactions import MemoryOutlets
from penstock.ports import Commit
from tests.adapters.kafka.outlets_contract import Ground, OutletsContract


class MemoryGround:
    def __init__(self) -> None:
        self.source = MemorySource(partitions=2)
        self.sink = MemorySink()
        self.outlets = MemoryOutlets(self.source, self.sink)

    def topic(self, name: str) -> str:
        return name

    async def values(self, name: str) -> list[bytes]:
        return [value for _, value in self.sink.topics[name][0]]

    async def position(self, partition: int = 0) -> Commit | None:
        return self.source.committed.get(partition)


class TestMemoryOutlets(OutletsContract):
    @pytest.fixture
    async def ground(self) -> Ground:
        return MemoryGround()
