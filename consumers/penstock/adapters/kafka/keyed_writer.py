"""The partition of a key; writes records to the partitions that their keys decide, and tells their
offsets.

Rule: a partition is chosen as Java's default partitioner chooses it (murmur2). Records of one
partition keep their order even when they are sent again, and each record keeps the time given with
it. Every wait has a deadline.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from penstock import config
from penstock.adapters.kafka.client import CLOSE_S, close, start, within
from penstock.adapters.kafka.inside.producers import BATCH_BYTES, batches, give_up, producer_of
from penstock.adapters.kafka.topics import count_partitions, max_batch_bytes
from penstock.errors import Fatal, Transient, usage
from penstock.ports import Clock, Outgoing

# The partitions of at most this many keys are remembered, because murmur2 in Python takes 3-7 µs a
# key.
REMEMBERED_KEYS = 100_000


def hashed(partitions: int) -> Callable[[bytes], int]:
    """A function from a key to its partition in a topic with this many partitions."""

    @lru_cache(maxsize=REMEMBERED_KEYS)
    def partition_of(key: bytes) -> int:
        return int((murmur2(key) & 0x7FFFFFFF) % partitions)

    return partition_of


# What is to be written if the topic refuses a record by its content: a function that gets the
# broker's words. None: the refusal is an error.
Instead = Callable[[str], "Sequence[Out]"] | None
# A record to send: topic, key, value, partition (None: the key decides), time in epoch milliseconds
# (None: now), and what is to be written if it is refused.
Out = tuple[str, bytes, bytes | None, int | None, int | None, Instead]


class KeyedWriter:
    """Writes records to the topics that `start` is given, and returns their offsets. If a record
    cannot be delivered, the process ends, because later records would get the offset of the missing
    one. Only a record that its topic refuses by its content is left out, if something else is to be
    written then.
    """

    def __init__(self, settings: config.Kafka, clock: Clock) -> None:
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1000
        self._clock = clock
        self._partition_of: dict[str, Callable[[bytes], int]] = {}
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
        """Hand over the records. Returns an awaitable that is done when the brokers have all
        records, and those that are written in place of refused ones. Its result is the offset of
        each record, or -1 if the broker did not tell the offset.
        """
        now_ms = self._clock.wall_ms()
        parts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, (topic, key, _, chosen, *_) in enumerate(records):
            partition = self._partition_of[topic](key) if chosen is None else chosen
            parts[topic, partition].append(index)
        sent: list[tuple[asyncio.Future[Any], list[int]]] = []
        then: list[Out] = []
        for (topic, partition), indices in parts.items():
            mine = [records[index] for index in indices]
            values: list[Any] = [value for _, _, value, *_ in mine]  # None: a tombstone
            times_ms = [now_ms if at_ms is None else at_ms for *_, at_ms, _ in mine]
            out = Outgoing(topic, partition, [key for _, key, *_ in mine], values, None, times_ms)
            out.instead = partial(_left_out, mine, then)
            for batch in batches(self._producer, out, now_ms, self._batch_bytes[topic]):
                count = batch.record_count()
                sent.append((await self._send(out, batch), indices[:count]))
                del indices[:count]
        return self._delivered(sent, len(records), then)

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
        self, sent: list[tuple[asyncio.Future[Any], list[int]]], count: int, then: list[Out]
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
        if then:
            await (await self(then))
        return offsets


def _left_out(
    records: Sequence[Out], then: list[Out], index: int, _: bytes, reason: str
) -> Sequence[bytes] | None:
    instead = records[index][-1]
    if instead is None:
        return None
    then += instead(reason)
    return ()


def _undelivered(topic: str, error: Transient) -> Fatal:
    return Fatal(f"Kafka did not take a batch of {topic}: {error}")
