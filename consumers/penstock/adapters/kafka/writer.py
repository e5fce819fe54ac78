"""Writes records to several topics, by key or to a given partition, and returns their offsets.

Rule: records of one partition keep their order, through retries too, and each record keeps the time
given with it. If a record cannot be delivered, the process ends, because later records would get
its offset. Owner: `penstock scenes`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

from penstock import config
from penstock.adapters.kafka.client import CLOSE_S, close, start, within
from penstock.adapters.kafka.inside.giving_up import give_up
from penstock.adapters.kafka.inside.sending import BATCH_BYTES
from penstock.adapters.kafka.metadata import count_partitions, max_batch_bytes
from penstock.adapters.kafka.partitioner import hashed
from penstock.adapters.kafka.producers import producer_of
from penstock.errors import EXIT_USAGE, Fatal, Transient
from penstock.ports import Clock

# Topic, key, value, partition (None: by the key), epoch milliseconds (None: now).
Out = tuple[str, bytes, bytes | None, int | None, int | None]


class _Run:
    """The records for one partition, in order, in as few batches as possible."""

    def __init__(self, topic: str, partition: int, batch_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self._batch_bytes = batch_bytes
        self.batches = [self._new()]
        self.indices: list[list[int]] = [[]]

    def add(self, index: int, key: bytes, value: bytes | None, at_ms: int) -> None:
        if self.batches[-1].append(timestamp=at_ms, key=key, value=value) is None:
            self.batches.append(self._new())
            self.indices.append([])
            if self.batches[-1].append(timestamp=at_ms, key=key, value=value) is None:
                raise Fatal(
                    f"a record of {len(value or b'')} bytes is more than {self.topic} takes"
                )
        self.indices[-1].append(index)

    def _new(self) -> BatchBuilder:
        return BatchBuilder(self._batch_bytes, 0, is_transactional=False)


class KafkaWriter:
    """`start` needs all topics that will be written."""

    def __init__(self, settings: config.Kafka, clock: Clock) -> None:
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1000
        self._clock = clock
        self._partition_of: dict[str, Callable[[str], int]] = {}
        self._batch_bytes: dict[str, int] = {}
        self._producer = producer_of(settings, enable_idempotence=True, max_batch_size=BATCH_BYTES)

    async def start(self, topics: Iterable[str]) -> None:
        await start(self._producer, self._settings, "the start of the producer")
        client = self._producer.client
        for topic in topics:
            async with within(f"a question about topic {topic}", self._timeout_s):
                count = await count_partitions(client, topic)
                if not count:
                    raise Fatal(f"there is no topic {topic}", exit_code=EXIT_USAGE)
                await client.add_topic(topic)
                most = await max_batch_bytes(client, topic)
            self._partition_of[topic] = hashed(count)
            self._batch_bytes[topic] = min(BATCH_BYTES, most or BATCH_BYTES)

    async def __call__(self, records: Sequence[Out]) -> Awaitable[Sequence[int]]:
        """Hand over the records. The awaitable is done when the brokers have all of them and gives
        their offsets, -1 where the broker did not say.
        """
        now_ms = self._clock.wall_ms()
        runs: dict[tuple[str, int], _Run] = {}
        for index, (topic, key, value, chosen, at_ms) in enumerate(records):
            partition = self._partition_of[topic](key.decode()) if chosen is None else chosen
            run = runs.get((topic, partition))
            if run is None:
                run = runs[topic, partition] = _Run(topic, partition, self._batch_bytes[topic])
            run.add(index, key, value, now_ms if at_ms is None else at_ms)
        sent = [
            (await self._send(run, batch), indices)
            for run in runs.values()
            for batch, indices in zip(run.batches, run.indices, strict=True)
        ]
        return self._delivered(sent, len(records))

    async def stop(self) -> None:
        await close(self._producer, CLOSE_S, "the end of the producer")

    async def abandon(self) -> None:
        """Drop the records that are not sent yet."""
        await give_up(self._producer)

    async def _send(self, run: _Run, batch: BatchBuilder) -> asyncio.Future[Any]:
        batch.close()
        try:
            async with within(f"a batch for {run.topic}", self._timeout_s):
                future: asyncio.Future[Any] = await self._producer.send_batch(
                    batch, run.topic, partition=run.partition
                )
                return future
        except Transient as error:
            raise _undelivered(run.topic, error) from error

    async def _delivered(
        self, sent: list[tuple[asyncio.Future[Any], list[int]]], count: int
    ) -> Sequence[int]:
        offsets = [-1] * count
        try:
            async with within("the delivery of a batch", self._timeout_s):
                for future, indices in sent:
                    base = (await future).offset
                    for place, index in enumerate(indices):
                        offsets[index] = -1 if base < 0 else base + place
        except Transient as error:
            raise _undelivered("a topic", error) from error
        return offsets


def _undelivered(topic: str, error: Transient) -> Fatal:
    return Fatal(f"Kafka did not take a batch of {topic}: {error}")
