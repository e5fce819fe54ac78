"""The contract of exactly-once outlets, in memory."""

import pytest

from consumers.adapters.memory_kafka import MemorySink, MemorySource
from consumers.adapters.memory_transactions import MemoryOutlets
from consumers.ports import Commit
from tests.adapters.outlets_contract import Ground, OutletsContract


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
