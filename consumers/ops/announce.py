"""Sends messages to the input topic and waits for their acknowledgement.

Rule: what is on its way is bounded, and so is the wait for it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from consumers import config
from consumers.adapters.kafka_client import connection, translated
from consumers.errors import Unreachable

# Bounds what a slow broker makes us hold: about 10 MB of references.
MAX_PENDING = 10_000
# Idempotent batches never expire in aiokafka: past this the broker counts as unreachable.
DELIVERY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0


class Announcer:
    """Get one from `announcing`."""

    def __init__(self, producer: Any, topic: str) -> None:
        self.acknowledged = 0
        self._producer = producer
        self._topic = topic
        self._pending: deque[Awaitable[Any]] = deque()

    async def send(self, value: bytes, key: bytes, partition: int | None = None) -> None:
        """In the order of the calls. Without a partition the key decides."""
        with translated(f"a send to {self._topic}"):
            self._pending.append(
                await self._producer.send(self._topic, value, key=key, partition=partition)
            )
        if len(self._pending) > MAX_PENDING:
            await self._next_acknowledged()

    async def settle(self) -> None:
        """Until all are acknowledged."""
        while self._pending:
            await self._next_acknowledged()

    async def partitions(self) -> int:
        return len(await self._producer.partitions_for(self._topic))

    async def _next_acknowledged(self) -> None:
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                with translated(f"a send to {self._topic}"):
                    await self._pending.popleft()
        except TimeoutError:
            raise Unreachable(
                f"Kafka did not acknowledge a message to {self._topic} within "
                f"{DELIVERY_TIMEOUT_S:.0f} s. Is the broker up?"
            ) from None
        self.acknowledged += 1


@asynccontextmanager
async def announcing(settings: config.Kafka) -> AsyncIterator[Announcer]:
    """All is acknowledged when the block is left without a failure."""
    producer = AIOKafkaProducer(**connection(settings), enable_idempotence=True, linger_ms=5)
    try:
        with translated("connecting to announce objects"):
            await producer.start()
        announcer = Announcer(producer, settings.input_topic)
        yield announcer
        await announcer.settle()
    finally:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await producer.stop()
