"""The output topics by aiokafka: an idempotent producer fed with batches of our own making.

Rule: records of one partition leave in the order of the calls; every batch's delivery is awaited by
the caller. Any failure of a delivery is fatal, because the producer's sequence numbers have a gap
from then on. Owner: the publish tasks, one per partition.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

from consumers import config
from consumers.adapters.kafka_batches import BATCH_BYTES, batches
from consumers.adapters.kafka_client import connection, translated
from consumers.errors import EXIT_UNREACHABLE, Fatal, Transient
from consumers.ports import Clock, Outgoing

# What a record takes besides key and value, at most: varints, offsets, header count.
RECORD_OVERHEAD_BYTES = 64
# Idempotent batches never expire in aiokafka: past this the broker counts as unreachable.
DELIVERY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0


class KafkaSink:
    def __init__(self, settings: config.Kafka, clock: Clock, *, compression: str = "none") -> None:
        self._clock = clock
        self._producer = AIOKafkaProducer(
            **connection(settings),
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            compression_type=None if compression == "none" else compression,
        )

    async def start(self) -> None:
        with translated("starting the producer"):
            await self._producer.start()

    async def partitions(self, topic: str) -> int:
        with translated(f"asking for topic {topic}"):
            cluster = self._producer.client
            await cluster.add_topic(topic)
            await cluster.force_metadata_update()
            return len(cluster.cluster.partitions_for_topic(topic) or ())

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        now_ms = self._clock.wall_ms()
        sent = [
            await self._send(batch, outgoing) for batch in batches(self._producer, outgoing, now_ms)
        ]
        return self._delivered(sent, outgoing.topic)

    def fits(self, key: bytes | None, value: bytes) -> bool:
        return len(value) + len(key or b"") + RECORD_OVERHEAD_BYTES < BATCH_BYTES

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                with translated("closing the producer"):
                    await self._producer.stop()
        except TimeoutError:
            raise _unreachable("Kafka did not let the producer close", STOP_TIMEOUT_S) from None

    async def _send(self, batch: Any, outgoing: Outgoing) -> asyncio.Future[Any]:
        while True:
            try:
                with translated(f"a send to {outgoing.topic}"):
                    future: asyncio.Future[Any] = await self._producer.send_batch(
                        batch, outgoing.topic, partition=outgoing.partition
                    )
                    return future
            except Transient:
                continue  # the partition's queue is full; the delivery deadline watches the broker

    @staticmethod
    async def _delivered(sent: list[asyncio.Future[Any]], topic: str) -> None:
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                for future in sent:
                    await future
        except TimeoutError:
            raise _unreachable(
                f"Kafka did not acknowledge a batch of {topic}", DELIVERY_TIMEOUT_S
            ) from None
        except kafka_errors.KafkaError as error:
            raise Fatal(f"Kafka did not take a batch of {topic}: {error!r}") from error


def _unreachable(what: str, after_s: float) -> Fatal:
    return Fatal(f"{what} within {after_s:.0f} s. Is the broker up?", exit_code=EXIT_UNREACHABLE)
