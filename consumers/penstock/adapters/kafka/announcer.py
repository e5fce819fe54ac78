"""Announces objects on the input topic, for commands.

Rule: the caller learns when the brokers have a message. Every wait has a deadline.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from penstock import config
from penstock.adapters.kafka.client import opened, within
from penstock.adapters.kafka.inside.producers import producer_of

# An announcer waits while more messages than this are not acknowledged. While a broker is slow,
# these messages stay in our memory: about 10 MB of references.
MAX_PENDING = 10_000


def announced_on(settings: config.Kafka) -> str:
    """The topic on which objects are announced: the first input topic of the settings. To announce
    on another topic, use a configuration that names only that topic.
    """
    return (settings.inputs or [settings.input_topic])[0]


class Announcer:
    """Sends messages to an input topic. At most `MAX_PENDING` messages wait for their
    acknowledgement. Get one from `announcing`.
    """

    def __init__(self, producer: Any, settings: config.Kafka) -> None:
        self.acknowledged = 0
        self._producer = producer
        self._topic = announced_on(settings)
        self._timeout_s = settings.timeout_ms / 1000
        self._pending: deque[Awaitable[Any]] = deque()

    async def send(
        self, value: bytes, key: bytes, partition: int | None = None, *, topic: str | None = None
    ) -> None:
        """Messages leave in the order of the calls. Without `partition`, the key decides the
        partition.
        """
        topic = topic or self._topic
        async with within(f"a message to {topic}", self._timeout_s):
            self._pending.append(
                await self._producer.send(topic, value, key=key, partition=partition)
            )
        if len(self._pending) > MAX_PENDING:
            await self._next_acknowledged()

    async def settle(self) -> None:
        """Wait until every message is acknowledged."""
        while self._pending:
            await self._next_acknowledged()

    async def partitions(self, topic: str) -> int:
        async with within(f"a question about topic {topic}", self._timeout_s):
            return len(await self._producer.partitions_for(topic))

    async def _next_acknowledged(self) -> None:
        async with within(f"the delivery of a message to {self._topic}", self._timeout_s):
            await self._pending.popleft()
        self.acknowledged += 1


@asynccontextmanager
async def announcing(settings: config.Kafka) -> AsyncIterator[Announcer]:
    """Give the block an announcer. If the block ends without a failure, every message that it sent
    has been acknowledged.
    """
    producer = producer_of(settings, enable_idempotence=True, linger_ms=5)
    async with opened(producer, settings, "the announcement of objects"):
        announcer = Announcer(producer, settings)
        yield announcer
        await announcer.settle()
