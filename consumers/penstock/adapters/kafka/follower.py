"""Reads topics from given offsets and goes on while they grow, without a consumer group.

Rule: it disturbs no worker. One read takes more records than a source's, because a delay here
delays only what is shown.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.ports import Where

FETCH_MAX_WAIT_MS = 100
FETCH_BYTES = 4 << 20
# The most records of one read. The event loop handles this many records in a few ms, and then turns
# to the network again.
MAX_RECORDS = 4_000
NO_BEGINS: Final[Mapping[Where, int]] = {}


class Bite(NamedTuple):
    """The next records of one partition. They follow the records of the partition's former bite."""

    topic: str
    partition: int
    records: Sequence[Any]


class Follower:
    """Reads on in the partitions of some topics. Get one from `following`."""

    def __init__(self, consumer: Any, parts: Sequence[TopicPartition], timeout_s: float) -> None:
        self._consumer = consumer
        self._parts = parts
        self._timeout_s = timeout_s
        self.partitions = tuple(part.partition for part in parts)

    async def more(self, wait_ms: int) -> list[Bite]:
        """Returns the records since the last call. If there are none, waits up to `wait_ms` for
        some.
        """
        async with within("a read of topics", wait_ms / 1000 + self._timeout_s):
            batches = await self._consumer.getmany(timeout_ms=wait_ms, max_records=MAX_RECORDS)
        return [Bite(part.topic, part.partition, records) for part, records in batches.items()]

    async def ends(self) -> Mapping[TopicPartition, int]:
        """For each partition: the offset after the record that is its last one now."""
        async with within("a question about the ends of topics", self._timeout_s):
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(self._parts)
        return ends

    async def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        async with within("a question about positions", self._timeout_s):
            return all([await self._consumer.position(part) >= end for part, end in ends.items()])


@asynccontextmanager
async def following(
    settings: config.Kafka,
    isolation: str,
    topics: Mapping[str, int],
    begins: Mapping[Where, int] = NO_BEGINS,
) -> AsyncIterator[Follower]:
    """`topics`: a mapping from a topic's name to the number of its partitions. `begins`: a mapping
    from a partition to the first offset to read. Partitions that are not in `begins` are read from
    offset 0.
    """
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
            consumer.seek(part, begins.get(Where(part.topic, part.partition), 0))
        yield Follower(consumer, parts, settings.timeout_ms / 1000)
