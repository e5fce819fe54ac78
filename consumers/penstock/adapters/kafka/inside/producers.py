"""Makes producers, fills their batches, mends what a broker refuses, and ends them.

Rule: aiokafka sends, but the caller decides how long a batch waits, and how large it is. A batch
that we fill has the bytes that aiokafka's `append` would make (a test compares), for 0.12 µs a
record instead of 0.27.

A refusal costs no other record. A batch that the brokers may take later is sent again as it is. A
time that the topic does not take is moved into the span that the broker names. A batch with a
refused record is cut until the record is alone; then it is replaced (`Outgoing.instead`). What is
sent instead gets the sequence numbers of the refused batch, of which the broker took nothing, and
the batches behind it, never sent, those that follow: the order stays, and nothing is published
twice. aiokafka would fail the batch, and the producer with it. Private parts of aiokafka 0.14's
producer, sender, batch and accumulator.
"""

import asyncio
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, pairwise, repeat
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import for_code
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.producer.sender import SendProduceReqHandler
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v8
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import RecordMetadata

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.error_codes import BROKER, CODES, INVALID_TIMESTAMP, RECORD, about
from penstock.ports import HEADERS_BYTES, Headers, Outgoing

log = logging.getLogger(__name__)

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
# Kafka's own words, since version 2.4: which times a topic takes now, by the broker's clock. An
# older broker takes the present.
_SPAN: Final = re.compile(r"should be within \[(-?\d+), (-?\d+)\]")
# The span moves on with the broker's clock. A mended time stands this far within it, or a quarter
# of it.
MARGIN_MS: Final = 60_000
# A batch whose times are refused so often although they were moved is given up.
MOST_MENDS: Final = 3
# Far above the size of any batch: a batch that is made again is not cut by its size.
_NO_LIMIT: Final = 1 << 30

# For each topic, how many records got another time, because the topic did not take theirs.
times_mended: Counter[str] = Counter()


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


class _Record(NamedTuple):
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Any]


class Origin(NamedTuple):
    """Where the records of a batch come from: `outgoing`, from the index `first` on."""

    outgoing: Outgoing
    first: int

    def from_index(self, index: int) -> "Origin":
        return self._replace(first=self.first + index)


def mend_refusals(producer: AIOKafkaProducer) -> None:
    """Call this before the producer starts."""
    sender = producer._sender

    async def send(node: int, batches: dict[TopicPartition, MessageBatch]) -> None:
        await _Delivery(sender, batches).do(node)
        sender._in_flight.remove(node)
        sender._muted_partitions.difference_update(batches)

    sender._send_produce_req = send


class _Delivery(SendProduceReqHandler):  # type: ignore[misc]
    def __init__(self, sender: Any, batches: dict[TopicPartition, MessageBatch]) -> None:
        super().__init__(sender, dict(batches))

    def create_request(self) -> ProduceRequest:
        """Only the answer of version 8 has the broker's words. aiokafka has this version, but does
        not offer it.
        """
        request = super().create_request()
        request._CLASSES = (*ProduceRequest._CLASSES, ProduceRequest_v8)
        return request

    def _can_retry(self, error: Any, batch: MessageBatch) -> bool:
        code = getattr(error, "errno", None)
        is_passing = code is not None and about(code) is BROKER
        return is_passing or bool(super()._can_retry(error, batch))

    def handle_response(self, response: Any) -> None:
        for topic, partitions in response.topics:
            for partition, code, *rest in partitions:
                where = TopicPartition(topic, partition)
                if code and about(code) is RECORD and where in self._batches:
                    self._refused(self._batches.pop(where), code, RefusedIndices.of(code, rest))
        super().handle_response(response)

    def _refused(self, batch: MessageBatch, code: int, refused: "RefusedIndices") -> None:
        data = bytes(batch.get_data_buffer())
        made = mended(batch.tp.topic, batch._builder, data, code, refused)
        if made is None:
            batch.failure(for_code(code)(refused.words))
            return
        sequence = MemoryRecords(data).next_batch().base_sequence
        self._sender._txn_manager._sequence_numbers[batch.tp] = sequence
        parts = [MessageBatch(batch.tp, each, batch._ttl, 0) for each in made]
        for part in parts:
            # As aiokafka leaves a batch that is to be sent again, but with sequence numbers to get.
            part.drain_ready()
            part._retry_count = 0
            self._sender._message_accumulator._pending_batches.add(part)
        _join(batch, parts)
        # aiokafka puts each of them before all others, so the last one comes first.
        self._to_reenqueue.extend(reversed(parts))


class RefusedIndices(NamedTuple):
    """A broker's words, and the indices of the records that it refused, if it names them."""

    words: str
    indices: list[int]

    @classmethod
    def of(cls, code: int, rest: Sequence[Any]) -> "RefusedIndices":
        """`rest`: the fields of the answer after its error code. The words are the last two since
        version 8 of the answer.
        """
        errors, whole = rest[-2:] if len(rest) > 4 else ((), None)
        words = [text for text in (whole, *(text for _, text in errors or ())) if text]
        return cls(": ".join([CODES[code].name, *words[:2]]), [at for at, _ in errors or ()])


def mended(
    topic: str, batch: BatchBuilder, data: bytes, code: int, refused: RefusedIndices
) -> list[BatchBuilder] | None:
    """The batches to send instead of `batch`, which was built as `data`. None: nothing can be
    mended.
    """
    head: DefaultRecordBatch = MemoryRecords(data).next_batch()
    records = [
        _Record(earlier.timestamp, earlier.key, earlier.value, earlier.headers) for earlier in head
    ]
    origin: Origin | None = getattr(batch, "origin", None)
    make = partial(_made, head)
    if code == INVALID_TIMESTAMP:
        mends = getattr(batch, "mends", 0) + 1
        if mends > MOST_MENDS:
            return None
        now_ms = int(time.time() * 1000)
        span = (
            map(int, match.groups()) if (match := _SPAN.search(refused.words)) else (now_ms, now_ms)
        )
        made = make(_in_span(topic, records, *span), origin)
        made.mends = mends
        return [made]
    if len(records) > 1:
        return [
            make(records[start:end], origin and origin.from_index(start))
            for start, end in _cuts(len(records), refused.indices)
        ]
    if origin is None or origin.outgoing.instead is None:
        return None
    (record,) = records
    values = origin.outgoing.instead(origin.first, record.value or b"", refused.words)
    if values is None or list(values) == [record.value]:
        return None
    return [make([record._replace(value=value)], origin) for value in values]


def _in_span(topic: str, records: list[_Record], first_ms: int, last_ms: int) -> list[_Record]:
    margin_ms = min(MARGIN_MS, max(0, last_ms - first_ms) // 4)
    least_ms, most_ms = first_ms + margin_ms, last_ms - margin_ms
    mended = [
        record._replace(time_ms=min(max(record.time_ms, least_ms), most_ms)) for record in records
    ]
    count = sum(a.time_ms != b.time_ms for a, b in zip(records, mended, strict=True))
    if topic not in times_mended:
        log.warning(
            "%s takes no record of %d ms (epoch); such records get the nearest time that it takes, "
            "from %d to %d now, by the clock of its broker. Set message.timestamp.before.max.ms "
            "and message.timestamp.after.max.ms of %s to those of the topic from which its "
            "records come; if times are right there, this machine's clock is wrong",
            *(topic, _farthest_ms(records, first_ms, last_ms), first_ms, last_ms, topic),
            extra={"topic": topic},
        )
    times_mended[topic] += count
    return mended


def _farthest_ms(records: list[_Record], first_ms: int, last_ms: int) -> int:
    return max(
        (record.time_ms for record in records), key=lambda ms: max(first_ms - ms, ms - last_ms)
    )


def _cuts(count: int, refused: Sequence[int]) -> list[tuple[int, int]]:
    """Cut before and after the first refused record, or in the middle if the broker does not say
    which one it refused.
    """
    at = min((index for index in refused if 0 <= index < count), default=None)
    cuts = (0, count // 2, count) if at is None else (0, at, at + 1, count)
    return [(start, end) for start, end in pairwise(cuts) if start < end]


def _made(head: DefaultRecordBatch, records: list[_Record], origin: Origin | None) -> BatchBuilder:
    """A batch of some records of the refused one."""
    made = BatchBuilder(_NO_LIMIT, head.compression_type, is_transactional=head.is_transactional)
    for time_ms, key, value, headers in records:
        made.append(timestamp=time_ms, key=key, value=value, headers=headers)
    if origin is not None:
        made.origin = origin
    made.close()
    return made


def _join(batch: MessageBatch, parts: Sequence[MessageBatch]) -> None:
    """The refused batch is delivered when all its parts are. If another producer has written
    between two of them, its first offset says nothing about the others, so it gets none.
    """
    left = len(parts)
    # aiokafka counts the offsets of single messages from here on: none of them may look like one.
    untold = -batch.record_count
    if not parts:
        batch.done(untold, -1)

    def one_ended(part: MessageBatch) -> Callable[[Any], None]:
        def ended(future: Any) -> None:
            nonlocal left
            left -= 1
            if future.cancelled() or future.exception() is not None:
                batch.failure(future.exception())
            elif not left and not batch.future.done():
                acknowledged: list[RecordMetadata] = [each.future.result() for each in parts]
                first, nexts = acknowledged[0], acknowledged[0].offset
                is_run = True
                for each, metadata in zip(parts, acknowledged, strict=True):
                    is_run = is_run and metadata.offset == nexts
                    nexts += each.record_count
                batch.done(first.offset if is_run else untold, -1, first.log_start_offset)

        return ended

    for part in parts:
        part.future.add_done_callback(one_ended(part))
