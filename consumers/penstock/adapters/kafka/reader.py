"""Reads topics without a group: first which offsets a topic holds, then these, and no later ones.

Rule: it disturbs no worker. Progress is measured by positions, because offsets have gaps.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.positions import positions, text_of
from penstock.adapters.kafka.topics import no_topic, topic_ids
from penstock.core.progress.cursor import Position
from penstock.errors import Unreachable
from penstock.messages.cloud_events import structured
from penstock.ports import Commit, Where

# The most records of one read. The event loop handles this many records in a few ms, and then turns
# to the network again.
MAX_RECORDS = 2_000
FETCH_BYTES = 4 << 20
# How long a read may wait for records. This is longer than the longest pause of a broker that moves
# a partition's leader.
SILENCE_MS = 30_000
# The deadline of one read: the time that the read may wait for records, and 10 s for aiokafka's own
# questions.
READ_S = SILENCE_MS / 1000 + 10.0

# The figures of a binary search. The fetches are small, because the search throws away most of what
# it reads.
PROBE_BYTES = 256 << 10
# How long a fetch at a partition's end waits for records. This time is short, because the next
# probe must wait for the fetch.
AT_THE_END_MS = 20
# How long a probe waits for records. The wait may be in vain: before the partition's end there may
# be only markers of transactions, and no record.
PROBE_SILENCE_MS = 1_000
PROBE_S = 10.0

# The pause between two questions for the group's coordinator.
COORDINATOR_S = 0.5

# For each partition: the first offset to read, and the offset after the last one to read.
Spans = Mapping[int, tuple[int, int]]

# A function that takes one record: its partition, offset, key and value.
Take = Callable[[int, int, bytes | None, bytes | None], None]

# A function that is told the progress: the number of offsets read, and the number of offsets in
# all.
OnRead = Callable[[int, int], None]


class ReadingProgress:
    """The progress of several readings together. First call `expect` with the spans of all
    readings; then each reading calls `passed`.
    """

    def __init__(self, on_read: OnRead) -> None:
        self.total = 0
        self._done = 0
        self._on_read = on_read

    def expect(self, *spans: Spans) -> None:
        self.total += sum(offsets(span.values()) for span in spans)

    def passed(self, number: int) -> None:
        self._done += number
        self._on_read(self._done, self.total)

    def end(self) -> None:
        """Call this when nobody needs the remaining offsets: they count as read."""
        self.passed(self.total - self._done)


class Reader:
    """Tells which offsets and positions topics have, and reads spans of offsets. Get one from
    `open_reader`.
    """

    def __init__(self, settings: config.Kafka, isolation: str, admin: AIOKafkaAdminClient) -> None:
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1000
        self._isolation = isolation
        self._admin = admin

    async def inputs(self) -> list[str]:
        """The input topics. If a pattern selects them: the topics that match it now."""
        pattern = self._settings.input_pattern
        if pattern is None:
            return self._settings.inputs
        async with within("a question about the topics", self._timeout_s):
            return sorted(filter(re.compile(pattern).match, await self._admin.list_topics()))

    async def topic_id(self, topic: str) -> str | None:
        async with within(f"a question about topic {topic}", self._timeout_s):
            ids = await topic_ids(client_of(self._admin), [Where(topic, 0)])
        return text_of(ids.get(topic))

    async def committed(self, topic: str, partitions: Iterable[int]) -> dict[int, Commit]:
        """The group's commit for each partition; partitions without a commit are left out. Waits
        until the group has a coordinator: the brokers create their topic of commits when they are
        first asked about a group, and until it exists, no broker coordinates a group.
        """
        parts = [Where(topic, number) for number in partitions]
        async with within("a question about the committed offsets", self._timeout_s):
            while (commits := await self._committed(parts)) is None:  # noqa: ASYNC110
                await asyncio.sleep(COORDINATOR_S)
        return {part.partition: commit for part, commit in commits.items() if commit is not None}

    async def _committed(self, parts: Sequence[Where]) -> Mapping[Where, Commit | None] | None:
        try:
            return await positions(client_of(self._admin), self._settings.group, parts)
        except GroupCoordinatorNotAvailableError:
            return None

    async def stopped(self, topic: str, partitions: Iterable[int]) -> dict[int, list[int]]:
        """For each input partition that has stopped: the offset at which it stopped. With order by
        stream: the offsets at which its streams have stopped.
        """
        return {
            partition: list(stopped_at)
            for partition, commit in (await self.committed(topic, partitions)).items()
            if (stopped_at := Position.of(commit).stopped_at)
        }

    async def spans(self, topic: str) -> Spans:
        """The offsets that a topic holds now."""
        async with within(f"a question about topic {topic}", self._timeout_s):
            (description,) = await self._admin.describe_topics([topic])
            parts = [
                TopicPartition(topic, partition["partition"])
                for partition in description["partitions"]
            ]
            if not parts:
                raise no_topic(topic, self._settings)
            async with self._consumer() as consumer:
                begins = await consumer.beginning_offsets(parts)
                ends = await consumer.end_offsets(parts)
        return {part.partition: (begins[part], ends[part]) for part in parts}

    async def spans_since(self, topic: str, at_ms: int, until_ms: int | None = None) -> Spans:
        """The offsets of a span of time, as far as the topic holds them now. The span begins with
        the first record at or after `at_ms`, and ends before the first record at or after
        `until_ms`.
        """
        spans = await self.spans(topic)
        begins = await self._first_since(topic, spans, at_ms)
        stops = await self._first_since(topic, spans, until_ms) if until_ms is not None else {}
        return {
            number: (begin := begins.get(number, end), max(begin, stops.get(number, end)))
            for number, (_, end) in spans.items()
        }

    async def _first_since(
        self, topic: str, partitions: Iterable[int], at_ms: int
    ) -> Mapping[int, int]:
        """For each partition, the offset of the first record at or after this time. Partitions
        without such a record are left out.
        """
        times = {TopicPartition(topic, number): max(0, at_ms) for number in partitions}
        what = f"a question about topic {topic}"
        async with within(what, self._timeout_s), self._consumer() as consumer:
            by_part = await consumer.offsets_for_times(times)
        return {part.partition: each.offset for part, each in by_part.items() if each is not None}

    async def read(
        self, topic: str, spans: Spans, take: Take, passed: Callable[[int], None]
    ) -> None:
        """Call `take` with every record; the records of one partition come in offset order.
        `passed` is called with the number of offsets since its last call.
        """
        async with aclosing(self.runs(topic, spans, passed)) as runs:
            async for partition, records in runs:
                for record in records:
                    value, headers = record.value, record.headers
                    if headers:
                        value = structured(value, headers)
                    take(partition, record.offset, record.key, value)

    async def runs(
        self, topic: str, spans: Spans, passed: Callable[[int], None] = lambda _: None
    ) -> AsyncGenerator[tuple[int, Sequence[Any]]]:
        """Yields pairs of a partition and its next records; the records of one partition come in
        offset order. `passed` is called with the number of offsets since its last call.
        """
        at = {
            TopicPartition(topic, number): begin
            for number, (begin, end) in spans.items()
            if begin < end
        }
        if not at:
            return
        async with self._consumer() as consumer:
            consumer.assign(list(at))
            for part, begin in at.items():
                consumer.seek(part, begin)
            while at:
                async with within(f"a read of {topic}", READ_S):
                    batches = await consumer.getmany(
                        *at, timeout_ms=SILENCE_MS, max_records=MAX_RECORDS
                    )
                for part, records in batches.items():
                    end = spans[part.partition][1]
                    yield part.partition, [record for record in records if record.offset < end]
                async with within(f"a question about the position in {topic}", self._timeout_s):
                    at = await self._advance(consumer, at, spans, bool(batches), passed)

    async def records(self, topic: str, spans: Spans) -> AsyncGenerator[Any]:
        """Yields every record; the records of one partition come in offset order."""
        async with aclosing(self.runs(topic, spans, lambda _: None)) as runs:
            async for _, records in runs:
                for record in records:
                    yield record

    @staticmethod
    async def _advance(
        consumer: Any,
        at: dict[TopicPartition, int],
        spans: Spans,
        has_found: bool,
        passed: Callable[[int], None],
    ) -> dict[TopicPartition, int]:
        """`at`: the positions before the read. Returns the positions after the read. Both leave out
        partitions whose end has been reached.
        """
        after = {part: await consumer.position(part) for part in at}
        ends = {part: spans[part.partition][1] for part in at}
        new = sum(min(after[part], ends[part]) - before for part, before in at.items())
        if not has_found and not new:
            topic = next(iter(at)).topic
            raise Unreachable(
                f"Kafka stopped sending {topic} before its end", mend="check that the brokers run"
            )
        passed(new)
        return {part: now for part, now in after.items() if now < ends[part]}

    @asynccontextmanager
    async def prober(self) -> AsyncIterator["Prober"]:
        """Opens a `Prober` for a binary search. Its consumer is kept from one read to the next."""
        async with self._consumer(PROBE_BYTES, AT_THE_END_MS) as consumer:
            # aiokafka cannot stop a consumer whose tasks have not begun. If the search reads
            # nothing, the consumer would be stopped before its tasks begin.
            await asyncio.sleep(0)
            yield Prober(consumer)

    @asynccontextmanager
    async def _consumer(
        self, fetch_bytes: int = FETCH_BYTES, fetch_wait_ms: int = 500
    ) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            **connection(self._settings),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=self._isolation,
            max_partition_fetch_bytes=fetch_bytes,
            fetch_max_wait_ms=fetch_wait_ms,
        )
        async with opened(consumer, self._settings, "the reading of topics"):
            yield consumer


class Prober:
    """Reads a few records at any offset, as often as the caller likes. Get one from
    `Reader.prober`.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def at(self, topic: str, partition: int, offset: int) -> Sequence[Any]:
        """Some records from this offset on. The offset must be before the partition's end."""
        part = TopicPartition(topic, partition)
        async with within(f"a read of {topic}", PROBE_S):
            if self._consumer.assignment() != {part}:
                self._consumer.assign([part])
            self._consumer.seek(part, offset)
            batches = await self._consumer.getmany(
                part, timeout_ms=PROBE_SILENCE_MS, max_records=MAX_RECORDS
            )
        records: Sequence[Any] = batches.get(part, ())
        return records


@asynccontextmanager
async def open_reader(settings: config.Kafka, isolation: str) -> AsyncIterator[Reader]:
    admin = AIOKafkaAdminClient(**connection(settings))
    async with opened(admin, settings, "the reading of topics"):
        yield Reader(settings, isolation, admin)


def offsets(spans: Iterable[tuple[int, int]]) -> int:
    """How many offsets these spans have together."""
    return sum(end - begin for begin, end in spans)
