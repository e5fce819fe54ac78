"""Makes producers, fills their batches, sets the pauses between their questions, and ends them.

Rule: aiokafka sends, but the caller decides how long a batch waits, and how large it is. A batch
that we fill has the bytes that aiokafka's `append` would make (a test compares), for 0.12 µs a
record instead of 0.27. Private parts of aiokafka 0.14's producer, batch and accumulator.
"""

import asyncio
import math
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.inside.refusals import Origin, mend_refusals
from penstock.ports import HEADERS_BYTES, Headers, Outgoing

# This is below the broker's default message.max.bytes of 1,048,588, and leaves room for the batch
# header.
BATCH_BYTES = 1_000_000
# The most bytes that a record takes besides key and value: its headers, and 176 for the header of
# its batch (61 bytes), varints, offsets, and the count of headers.
RECORD_OVERHEAD_BYTES = 176 + HEADERS_BYTES
_NO_HEADERS: Headers = []
# The pause between two questions for a leader: about the time of an election. Without a pause the
# broker would be asked 500 times a second.
STALE_S = 0.05


def producer_of(settings: config.Kafka, **options: Any) -> AIOKafkaProducer:
    """Returns a producer that is not started yet. Its batches do not expire: it keeps them until
    its owner gives it up.
    """
    producer = AIOKafkaProducer(**connection(settings), **options)
    mend_refusals(producer)
    keep_batches(producer)
    ask_for_leaders_with_pauses(producer)
    return producer


def batches(
    producer: AIOKafkaProducer, outgoing: Outgoing, now_ms: int, batch_bytes: int
) -> Iterator[BatchBuilder]:
    """All records of `outgoing` as batches of the producer, but of at most `batch_bytes`."""
    codec = producer._message_accumulator._compression_type
    return filled(outgoing, now_ms, batch_bytes, codec)


def filled(
    outgoing: Outgoing, now_ms: int, batch_bytes: int, codec: int, *, is_transactional: bool = False
) -> Iterator[BatchBuilder]:
    """All records of `outgoing` in order, as closed batches of at most `batch_bytes`. A larger
    record gets a batch of its own.
    """
    start = 0
    while start < len(outgoing.values):
        batch = BatchBuilder(batch_bytes, codec, is_transactional=is_transactional)
        batch.origin = Origin(outgoing, start)
        start = fill(batch, now_ms, outgoing, start)
        yield batch


def sealed(batch: BatchBuilder, id: int, epoch: int, sequence: int) -> bytes:
    """The batch as it is sent, each time the same. `id` and `epoch` are those of its producer,
    `sequence` is the number of its first record.
    """
    if batch._buffer is None:
        batch._set_producer_state(id, epoch, sequence)
    data: bytes = batch._build()
    return data


def fill(batch: BatchBuilder, timestamp_ms: int, outgoing: Outgoing, start: int) -> int:
    """Append records to the batch, from index `start` on: as many as fit, and at least one. Returns
    the index of the first record that did not fit.
    """
    first: int = batch._relative_offset
    index = first
    # `map` calls `append` for each record, because this is faster than a call in the body of the
    # loop.
    for appended in map(
        batch._builder.append,
        count(first),
        repeat(timestamp_ms) if outgoing.times_ms is None else outgoing.times_ms[start:],
        outgoing.keys[start:],
        outgoing.values[start:],
        repeat(_NO_HEADERS) if outgoing.headers is None else outgoing.headers[start:],
    ):
        if appended is None:
            break
        index += 1
    batch._relative_offset = index
    batch.close()
    return start + index - first


def has_room(producer: AIOKafkaProducer, topic: str, partition: int) -> bool:
    """True if the producer takes a batch of this partition without waiting: it knows the topic, and
    has sent all former batches.
    """
    is_known = producer.client.cluster.partitions_for_topic(topic) is not None
    queues = producer._message_accumulator._batches
    return is_known and not queues.get(TopicPartition(topic, partition))


async def room_for(producer: AIOKafkaProducer, topic: str, partition: int) -> None:
    """Returns when the producer takes a batch of this partition without waiting: it has sent all
    former ones. Raises aiokafka's errors.
    """
    queues = producer._message_accumulator._batches
    while queue := queues.get(TopicPartition(topic, partition)):
        await queue[-1].wait_drain()


def ask_for_leaders_with_pauses(producer: AIOKafkaProducer) -> None:
    """Make the producer pause between two questions for a leader. Otherwise aiokafka's loop asks
    for the leader of a waiting batch in every turn until it knows the leader.
    """
    accumulator = producer._message_accumulator
    drain = accumulator.drain_by_nodes
    asked_s = -math.inf

    def drained(**options: Any) -> Any:
        nonlocal asked_s
        batches, is_stale = drain(**options)
        if is_stale:
            loop = asyncio.get_running_loop()
            is_stale = loop.time() - asked_s >= STALE_S
            if is_stale:
                asked_s = loop.time()
            else:
                loop.call_later(STALE_S, accumulator._wakeup, accumulator.waiter())
        return batches, is_stale

    accumulator.drain_by_nodes = drained


def keep_batches(producer: AIOKafkaProducer) -> None:
    """Let no batch expire. Otherwise aiokafka fails a batch whose partition has had no leader for
    one request timeout (40 s), although `kafka.timeout_ms` may allow longer.
    """
    producer._message_accumulator._batch_ttl = math.inf


async def give_up(producer: AIOKafkaProducer) -> None:
    """End the producer. Batches that it has not sent are lost. aiokafka's own `stop` does not lose
    them: it first sends all waiting batches, however long that takes. `give_up` may be called after
    `stop`, even if `stop` has failed.
    """
    producer._closed = True
    for future in _left_behind(producer):
        future.add_done_callback(seen)
    if producer._sender is not None and producer._sender.sender_task is not None:
        # Otherwise the task retries for ever, although another producer has taken over.
        producer._sender.sender_task.cancel()
    await producer.client.close()


def _left_behind(producer: AIOKafkaProducer) -> Iterator[asyncio.Future[Any]]:
    """The futures that fail when aiokafka's task ends. Nobody awaits them any more, so asyncio
    would report each failure as never retrieved.
    """
    accumulator = producer._message_accumulator
    for queue in accumulator._batches.values():
        for batch in queue:
            yield batch.future
            yield batch._drain_waiter
    for batch in accumulator._pending_batches:
        yield batch.future


def seen(future: asyncio.Future[Any]) -> None:
    """Retrieve the failure, so that asyncio does not report it as never retrieved."""
    if not future.cancelled():
        future.exception()
