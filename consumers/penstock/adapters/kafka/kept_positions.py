"""Positions that a command keeps in Kafka for its next start: commits of a group without members.

Rule: all are written by one request. The last writer owns them; the words in the metadata tell
who that was. Owner: the command.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.committed_positions import positions
from penstock.adapters.kafka.inside.handles import client_of
from penstock.errors import usage
from penstock.ports import Commit


class KeptPositions:
    """Get one from `open_positions`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, group: str, parts: list[TopicPartition], timeout_s: float
    ) -> None:
        self._consumer = consumer
        self._group = group
        self._parts = parts
        self._timeout_s = timeout_s

    async def read(self) -> dict[int, Commit]:
        """By partition; those without one are left out."""
        async with within(f"a question about group {self._group}", self._timeout_s):
            found = await positions(client_of(self._consumer), self._group, self._parts)
        return {part.partition: one for part, one in found.items() if one is not None}

    async def write(self, commits: Mapping[int, Commit]) -> None:
        topic = self._parts[0].topic
        said = {TopicPartition(topic, n): OffsetAndMetadata(*one) for n, one in commits.items()}
        async with within(f"the position in group {self._group}", self._timeout_s):
            try:
                await self._consumer.commit(said)
            except kafka_errors.CommitFailedError as error:
                raise usage(
                    f"group {self._group} keeps a position of penstock produce, but has members; "
                    "end them"
                ) from error

    async def spans(self) -> dict[int, tuple[int, int]]:
        """The offsets that each partition holds now."""
        async with within(f"a question about topic {self._parts[0].topic}", self._timeout_s):
            begins = await self._consumer.beginning_offsets(self._parts)
            ends = await self._consumer.end_offsets(self._parts)
        return {part.partition: (begins[part], ends[part]) for part in self._parts}


@asynccontextmanager
async def open_positions(
    settings: config.Kafka, group: str, topic: str, partitions: Collection[int]
) -> AsyncIterator[KeptPositions]:
    consumer = AIOKafkaConsumer(**connection(settings), group_id=group, enable_auto_commit=False)
    parts = [TopicPartition(topic, number) for number in partitions]
    async with opened(consumer, settings, "the position of a listing"):
        consumer.assign(parts)
        consumer.pause(*parts)  # else it would fetch what is written here
        yield KeptPositions(consumer, group, parts, settings.timeout_ms / 1000)
