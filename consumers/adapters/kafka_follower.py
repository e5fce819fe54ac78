"""Reads topics while they grow: without a group, from their beginning on.

Rule: nothing is committed and nobody is disturbed. It waits for more records at a time than a
source does: a delay here delays the view and no answer. Owner: the task that looks on.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from consumers import config
from consumers.adapters.kafka_client import connection, opened, within

FETCH_MAX_WAIT_MS = 100
FETCH_BYTES = 4 << 20
# A few ms of work between two looks at the network.
MAX_RECORDS = 4_000


class Bite(NamedTuple):
    """Records of one partition that follow those of its last bite."""

    topic: str
    partition: int
    records: Sequence[Any]


class Follower:
    """Get one from `following`."""

    def __init__(self, consumer: Any, parts: Sequence[TopicPartition], timeout_s: float) -> None:
        self._consumer = consumer
        self._parts = parts
        self._timeout_s = timeout_s
        self.partitions = tuple(part.partition for part in parts)

    async def more(self, wait_ms: int) -> list[Bite]:
        """What came since, or comes within `wait_ms`."""
        async with within("a read of topics", wait_ms / 1000 + self._timeout_s):
            found = await self._consumer.getmany(timeout_ms=wait_ms, max_records=MAX_RECORDS)
        return [Bite(part.topic, part.partition, records) for part, records in found.items()]

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Behind the last offset of each partition, as of now."""
        async with within("a question about the ends of topics", self._timeout_s):
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(self._parts)
        return ends

    async def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        async with within("a question about positions", self._timeout_s):
            return all([await self._consumer.position(part) >= end for part, end in ends.items()])


@asynccontextmanager
async def following(
    settings: config.Kafka, isolation: str, topics: Mapping[str, int]
) -> AsyncIterator[Follower]:
    """`topics` with their numbers of partitions."""
    consumer = AIOKafkaConsumer(
        **connection(settings),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    parts = [TopicPartition(name, number) for name in topics for number in range(topics[name])]
    async with opened(consumer, settings, "the reading of topics"):
        consumer.assign(parts)
        for part in parts:
            consumer.seek(part, 0)
        yield Follower(consumer, parts, settings.timeout_ms / 1000)
