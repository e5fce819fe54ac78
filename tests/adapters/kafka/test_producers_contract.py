"""The contract of transactional producers, in memory."""

import pytest

from penstock.adapters.memory import MemorySink
from penstock.ports import Commit, Headers, Where
from tests.adapters.kafka.producers_contract import Ground, ProducersContract
from tests.support.memory import MemoryProducers, MemorySource
from tests.support.partitions import where


class MemoryGround:
    def __init__(self) -> None:
        self.source = MemorySource(partitions=2)
        self.sink = MemorySink()
        self.producers = MemoryProducers(self.source, self.sink)

    def topic(self, name: str) -> str:
        return name

    def place(self, partition: int) -> Where:
        return where(partition)

    def expel(self) -> None:
        self.producers.expelled = True

    async def values(self, name: str) -> list[bytes]:
        return [value for _, value in self.sink.topics[name][0]]

    async def headers(self, name: str) -> list[Headers]:
        return self.sink.headers[name][0]

    async def position(self, partition: int = 0) -> Commit | None:
        return self.source.committed.get(partition)


class TestMemoryProducers(ProducersContract):
    @pytest.fixture
    async def ground(self) -> Ground:
        return MemoryGround()
