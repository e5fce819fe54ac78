"""What the runs have in common: the options and settings of scenes, the load, and what came of it.

Rule: the load is open: a record that could not be sent in time is sent late, never left out. Owner:
the run.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaProducer

from chaos_run.instants import Shape
from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.reader import open_reader


def add_options(parser: argparse.ArgumentParser, *, seconds: int) -> None:
    parser.add_argument("--seconds", type=int, default=seconds, help=f"default {seconds}")
    parser.add_argument("--sites", type=int, default=8, help="default 8")
    parser.add_argument("--members", type=int, default=8, help="of a site; default 8")
    parser.add_argument("--hz", type=int, default=20, help="default 20")
    parser.add_argument("--engine", choices=["penstock", "faust"], default="penstock")


def settings_of(options: argparse.Namespace, shape: Shape) -> dict[str, str]:
    """The settings of a scenes worker, as `SECTION__KEY`."""
    return {
        "SCENES__ENGINE": options.engine,
        "SCENES__PERIOD_MS": str(shape.period_ms),
        "SCENES__TOLERANCE_MS": str(shape.period_ms // 2),
        "SCENES__MEMBERS": orjson.dumps(shape.members_of()).decode(),
        "HTTP__PORT": "0",
    }


@asynccontextmanager
async def producing(kafka: config.Kafka) -> AsyncIterator[AIOKafkaProducer]:
    """A producer for the block; at its end everything is delivered. Idempotent, so that a message
    which is sent again after a restart of Kafka stays one.
    """
    producer = AIOKafkaProducer(**connection(kafka), enable_idempotence=True)
    await producer.start()
    try:
        yield producer
        await producer.flush()
    finally:
        await producer.stop()


def instants(shape: Shape, seconds: int) -> Iterator[tuple[int, int]]:
    """From now on, the number of each instant and its time in epoch milliseconds."""
    began_ms = int(time.time() * 1000) // shape.period_ms * shape.period_ms
    for instant in range(seconds * shape.hz):
        yield instant, began_ms + instant * shape.period_ms


async def until(due_ms: float) -> None:
    await asyncio.sleep(due_ms / 1000 - time.time())


class Stamped(NamedTuple):
    """A record, when the broker had it."""

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
