"""Writing to a topic and reading all of it, for every run.

Rule: a message that could not be sent in time is sent late, never left out. Owner: the run.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka import AIOKafkaProducer

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.reader import open_reader


@asynccontextmanager
async def producing(kafka: config.Kafka) -> AsyncIterator[AIOKafkaProducer]:
    """A producer for the block. At the end of the block everything is delivered. The producer is
    idempotent, so that a message that is sent again after a restart of Kafka is on the topic only
    once.
    """
    producer = AIOKafkaProducer(**connection(kafka), enable_idempotence=True)
    await producer.start()
    try:
        yield producer
        await producer.flush()
    finally:
        await producer.stop()


class Stamped(NamedTuple):
    """A record, with the broker's stamp."""

    partition: int
    offset: int
    at_ms: int
    value: bytes


async def stamped(kafka: config.Kafka, topic: str) -> list[Stamped]:
    """Everything that the topic holds."""
    async with open_reader(kafka, "read_committed") as reader:
        spans = await reader.spans(topic)
        return [
            Stamped(one.partition, one.offset, one.timestamp, one.value)
            async for one in reader.records(topic, spans)
        ]
