"""Writes to the output topics by aiokafka's idempotent producer, whose batches we fill.

Rule: records of one partition leave in the order of the calls. A failed delivery is fatal, because
it leaves a gap in the producer's sequence numbers. Only `kafka.timeout_ms` ends the wait for a
batch, never aiokafka.

One caller at a time hands a partition's batches over; what others have queued meanwhile leaves in
the same batch. A batch wakes those whose records it has and nobody else: to pass a lock on would
cost each a turn of the event loop. A caller cancelled before its records were handed over takes
them back.
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, islice
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

from penstock import config
from penstock.adapters.kafka.client import (
    CLOSE_S,
    close,
    start,
    translated,
    unanswered,
    within,
)
from penstock.adapters.kafka.inside.producers import (
    BATCH_BYTES,
    RECORD_OVERHEAD_BYTES,
    batches,
    give_up,
    has_room,
    producer_of,
    room_for,
)
from penstock.adapters.kafka.topics import (
    count_partitions,
    know,
    max_batch_bytes,
    no_topic,
    retention_s,
)
from penstock.errors import EXIT_UNREACHABLE, Fatal, PenstockError, Transient
from penstock.ports import Clock, Outgoing

# What a record takes in a batch beside key, value and headers: its length, attributes, time, offset
# and the lengths of its parts, each a varint of at most 10 bytes (Kafka's protocol, "Record").
RECORD_BYTES = 40
# What a batch takes beside its records ("Record Batch").
HEAD_BYTES = 61

Deliveries = list[asyncio.Future[Any]]
Patiently = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class Producer(Protocol):
    async def room(self, topic: str, partition: int) -> None:
        """Returns when the partition's next batch can be handed over at once."""
        ...

    async def hand_over(self, outgoing: Outgoing) -> Deliveries:
        """Hand over the records as batches. If they fit into one batch and there is room, this does
        not wait.
        """
        ...


class OutputQueue:
    def __init__(self) -> None:
        # `_leader` hands over batches; it is the first that waits. None: nobody waits.
        self._leader: _WaitingBatch | None = None
        self._waiting: deque[_WaitingBatch] = deque()

    async def send(
        self, outgoing: Outgoing, most_bytes: int, producer: Producer, patiently: Patiently
    ) -> Deliveries:
        """Returns when the records are handed over, with the deliveries of their batches. These may
        be others' deliveries, too. `most_bytes`: of a batch. `patiently` tries again what fails for
        a while.
        """
        ours = _WaitingBatch(outgoing)
        self._waiting.append(ours)
        try:
            if self._leader is None:
                self._leader = ours
            else:
                await ours.woken()
            if ours.deliveries is None:
                await patiently(partial(self._hand_over, most_bytes, producer))
        finally:
            if ours.deliveries is None:
                self._waiting.remove(ours)
            if self._leader is ours:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.wake()
        assert ours.deliveries is not None
        return ours.deliveries

    async def _hand_over(self, most_bytes: int, producer: Producer) -> None:
        """Hand over the first records that wait: those of this call, and what fits with them into
        one batch. Nothing is awaited between the choice and the hand-over of several callers'
        records, because any of them may be cancelled meanwhile.
        """
        first = self._waiting[0].outgoing
        await producer.room(first.topic, first.partition)
        together = self._fitting(most_bytes)
        deliveries = await producer.hand_over(joined([each.outgoing for each in together]))
        for each in together:
            each.deliveries = deliveries
            self._waiting.popleft()
            each.wake()

    def _fitting(self, most_bytes: int) -> "list[_WaitingBatch]":
        first = self._waiting[0]
        together, nbytes = [first], HEAD_BYTES + size_of(first.outgoing)
        for each in islice(self._waiting, 1, None):
            nbytes += size_of(each.outgoing)
            is_timed = each.outgoing.times_ms is not None
            if nbytes > most_bytes or is_timed != (first.outgoing.times_ms is not None):
                break
            together.append(each)
        return together


class _WaitingBatch:
    """`deliveries`: None until the records are handed over."""

    __slots__ = ("_woken", "deliveries", "outgoing")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.deliveries: Deliveries | None = None
        self._woken: asyncio.Future[None] | None = None

    async def woken(self) -> None:
        """Returns when the records are handed over, or when it is our turn to do so."""
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def size_of(outgoing: Outgoing) -> int:
    """At least as many bytes as the records take in a batch."""
    headers = 0
    if outgoing.headers is not None:
        headers = sum(
            len(name) + len(value) + RECORD_BYTES
            for of_record in outgoing.headers
            for name, value in of_record
        )
    records = sum(map(len, outgoing.values)) + sum(map(len, filter(None, outgoing.keys)))
    return records + headers + RECORD_BYTES * len(outgoing.values)


def joined(parts: Sequence[Outgoing]) -> Outgoing:
    """The records of all parts as one. What is sent in the place of a refused record is asked of
    the record's own part, which also keeps its own `then`.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    whole = Outgoing(first.topic, first.partition, [], [])
    for part in parts:
        whole.keys += part.keys
        whole.values += part.values
    if any(part.headers is not None for part in parts):
        whole.headers = [
            of_record for part in parts for of_record in (part.headers or [[]] * len(part.values))
        ]
    if any(part.instead is not None for part in parts):
        ends = list(accumulate(len(part.values) for part in parts))

        def instead(index: int, value: bytes, reason: str) -> Sequence[bytes] | None:
            at = bisect_right(ends, index)
            replace = parts[at].instead
            return (
                None
                if replace is None
                else replace(index - (ends[at - 1] if at else 0), value, reason)
            )

        whole.instead = instead
    if first.times_ms is not None:
        whole.times_ms = [time_ms for part in parts for time_ms in part.times_ms or ()]
    return whole


T = TypeVar("T")

RETRY_PAUSE_S = 0.1
# If a batch cannot be delivered, we ask for this long whether its topic still exists. A broker that
# is up answers at once.
GONE_S = 2.0


class KafkaSink:
    def __init__(self, settings: config.Kafka, clock: Clock, *, compression: str = "none") -> None:
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1000
        self._clock = clock
        self._compression = None if compression == "none" else compression
        # A mapping from a topic to the most bytes of a batch. `partitions` fills this mapping; the
        # sink and the transactional producers read it.
        self.batch_bytes: dict[str, int] = {}
        self._producer = self._make()
        self._queues: defaultdict[tuple[str, int], OutputQueue] = defaultdict(OutputQueue)
        self._is_anew = False
        self._starting = asyncio.Lock()

    def _make(self) -> AIOKafkaProducer:
        return producer_of(
            self._settings,
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            compression_type=self._compression,
        )

    async def start(self) -> None:
        await start(self._producer, self._settings, "the start of the producer")

    async def partitions(self, topic: str) -> int:
        if self._is_anew:
            await self._start_anew()
        return await self._patiently(
            f"a question about topic {topic}", partial(self._look_at, topic)
        )

    async def retention_s(self, topic: str) -> float | None:
        """How long the topic keeps a record. None: for ever, or the broker does not tell us."""
        ask = partial(retention_s, self._producer.client, topic)
        return await self._patiently(f"a question about topic {topic}", ask)

    async def _patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat the call until it succeeds, up to `kafka.timeout_ms`. aiokafka itself gives up
        earlier: if its queue is full, it raises an error after 40 s.
        """
        async with within(what, self._timeout_s):
            while True:
                try:
                    with translated(what):
                        return await call()
                except Transient:
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def forget(self) -> None:
        """Drop all unsent batches and replace the producer; the next call starts the new producer.
        The former producer cannot be used any more, because the broker refuses every batch after a
        missing one.
        """
        former, self._producer = self._producer, self._make()
        self._is_anew = True
        async with within("the end of the producer", CLOSE_S):
            await give_up(former)

    async def _start_anew(self) -> None:
        async with self._starting:
            if self._is_anew:
                # If this start is cancelled, the next call starts the producer once more. That is
                # safe, because aiokafka begins none of its tasks twice.
                await self.start()
                self._is_anew = False

    async def _look_at(self, topic: str) -> int:
        client = self._producer.client
        count = await count_partitions(client, topic)
        if count:
            # aiokafka asks for the topic's leaders now, so that the first batch does not wait for
            # them.
            await client.add_topic(topic)
            await know(client, topic, count)
        most = await max_batch_bytes(client, topic) if count else None
        self.batch_bytes[topic] = min(BATCH_BYTES, most or BATCH_BYTES)
        return count

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        if self._is_anew:
            await self._start_anew()
        topic = outgoing.topic
        queue = self._queues[topic, outgoing.partition]
        try:
            sent = await queue.send(
                outgoing, self._most(topic), self, partial(self._handed_over, outgoing)
            )
        except Fatal as error:
            raise await self._undelivered(topic, error) from error
        return self._delivered(sent, outgoing)

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return value_bytes + len(key or b"") + RECORD_OVERHEAD_BYTES < self._most(topic)

    async def stop(self) -> None:
        await close(self._producer, CLOSE_S, "the end of the producer")

    async def room(self, topic: str, partition: int) -> None:
        await room_for(self._producer, topic, partition)

    async def _handed_over(self, outgoing: Outgoing, call: Callable[[], Awaitable[T]]) -> T:
        what = f"a batch for {outgoing.topic}"
        # If there is room, the hand-over does not wait, so it needs no deadline.
        if has_room(self._producer, outgoing.topic, outgoing.partition):
            with suppress(Transient), translated(what):
                return await call()
        return await self._patiently(what, call)

    async def hand_over(self, outgoing: Outgoing) -> Deliveries:
        most = self._most(outgoing.topic)
        made = batches(self._producer, outgoing, self._clock.wall_ms(), most)
        first = [await self._put(batch, outgoing) for batch in islice(made, 1)]
        patiently = partial(self._patiently, f"a batch for {outgoing.topic}")
        return first + [await patiently(partial(self._put, batch, outgoing)) for batch in made]

    def _most(self, topic: str) -> int:
        return self.batch_bytes.get(topic, BATCH_BYTES)

    async def _put(self, batch: Any, outgoing: Outgoing) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = await self._producer.send_batch(
            batch, outgoing.topic, partition=outgoing.partition
        )
        return future

    async def _delivered(self, sent: Deliveries, outgoing: Outgoing) -> None:
        topic = outgoing.topic
        what = f"the delivery of a batch to {topic}"
        # Others may wait for these, too: `wait` does not cancel them if it is cancelled itself.
        ended, missing = await asyncio.wait(
            sent, timeout=self._timeout_s, return_when=asyncio.FIRST_EXCEPTION
        )
        try:
            with translated(what):
                for future in ended:
                    future.result()
            if missing:
                raise Fatal(unanswered(what, self._timeout_s), exit_code=EXIT_UNREACHABLE)
        except (Transient, Fatal) as error:
            raise await self._undelivered(topic, error) from error
        for more in outgoing.then:
            await (await self.send(more))

    async def _undelivered(self, topic: str, error: PenstockError) -> PenstockError:
        """The error to raise for a batch that was not taken. If a topic was deleted, Kafka's
        clients only say that the topic has no leader. So the broker is asked whether the topic
        exists.
        """
        with suppress(PenstockError, TimeoutError, kafka_errors.KafkaError):
            async with asyncio.timeout(GONE_S):
                if not await count_partitions(self._producer.client, topic):
                    return no_topic(topic, self._settings)
        if isinstance(error, Fatal):
            return error
        return Fatal(f"Kafka did not take a batch of {topic}: {error}")
