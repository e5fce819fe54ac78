"""Writes records to several topics, by key or to a given partition, and returns their offsets.

Rule: records of one partition keep their order even when they are sent again, and each record keeps
the time given with it. If a record cannot be delivered, the process ends, because later records
would get the offset of the missing one. Owner: `penstock scenes`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

from penstock import config
from penstock.adapters.kafka.client import CLOSE_S, close, start, within
from penstock.adapters.kafka.inside.giving_up import give_up
from penstock.adapters.kafka.inside.sending import BATCH_BYTES, batches, producer_of
from penstock.adapters.kafka.partition_of_key import hashed
from penstock.adapters.kafka.topic_metadata import count_partitions, max_batch_bytes
from penstock.errors import Fatal, Transient, usage
from penstock.ports import Clock, Outgoing

# Topic, key, value, partition (None: chosen by the key), epoch milliseconds (None: now).
Out = tuple[str, bytes, bytes | None, int | None, int | None]


class KeyedWriter:
    """Writes only to the topics that `start` is given."""

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
                    raise usage(f"there is no topic {topic}")
                await client.add_topic(topic)
                most = await max_batch_bytes(client, topic)
            self._partition_of[topic] = hashed(count)
            self._batch_bytes[topic] = min(BATCH_BYTES, most or BATCH_BYTES)

    async def __call__(self, records: Sequence[Out]) -> Awaitable[Sequence[int]]:
        """Hand over the records. The awaitable is done when the brokers have all of them. Its
        result is the offset of each record, or -1 if the broker did not tell the offset.
        """
        now_ms = self._clock.wall_ms()
        parts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, (topic, key, _, chosen, _) in enumerate(records):
            partition = self._partition_of[topic](key.decode()) if chosen is None else chosen
            parts[topic, partition].append(index)
        sent: list[tuple[asyncio.Future[Any], list[int]]] = []
        for (topic, partition), indices in parts.items():
            mine = [records[index] for index in indices]
            values: list[Any] = [value for _, _, value, _, _ in mine]  # None: a tombstone
            times_ms = [now_ms if at_ms is None else at_ms for *_, at_ms in mine]
            out = Outgoing(topic, partition, [key for _, key, *_ in mine], values, None, times_ms)
            for batch in batches(self._producer, out, now_ms, self._batch_bytes[topic]):
                count = batch.record_count()
                sent.append((await self._send(out, batch), indices[:count]))
                del indices[:count]
        return self._delivered(sent, len(records))

    async def stop(self) -> None:
        await close(self._producer, CLOSE_S, "the end of the producer")

    async def abandon(self) -> None:
        """Drop the records that are not sent yet."""
        await give_up(self._producer)

    async def _send(self, out: Outgoing, batch: BatchBuilder) -> asyncio.Future[Any]:
        try:
            async with within(f"a batch for {out.topic}", self._timeout_s):
                future: asyncio.Future[Any] = await self._producer.send_batch(
                    batch, out.topic, partition=out.partition
                )
                return future
        except Transient as error:
            raise _undelivered(out.topic, error) from error

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
