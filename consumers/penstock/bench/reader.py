"""The reader of the bench's topics, a process of its own: what was answered, when, and in which
order.

Rule: it reads after a measurement, never during one. The times are the broker's, so reading late
changes none of them and takes no CPU from the measured processes. Owner: the bench.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.bench.topics_and_bucket import ANSWER_S, PARTITIONS, Topics
from penstock.errors import Fatal
from penstock.process.tasks import ask, say, serve

SILENCE_MS = 10_000
FETCH_BYTES = 8 << 20
# The id is the record's second field: topic/partition/offset/object/row.
_ID = re.compile(rb'\{"v":1,"id":"[^"]*/(\d+)/(\d+)/(\d+)"')
_ERROR = b',"error":{'
_LAST = b'"last":true'


class ReadTask(Struct):
    """`ticks`: also return the times of each reference."""

    kafka: config.Kafka
    topics: Topics
    ticks: bool = False


class Tick(Struct, array_like=True):
    """A reference and its answer, in epoch milliseconds. `answered_ms`: when its last row was
    answered.
    """

    stream: str
    due_ms: int
    appended_ms: int
    answered_ms: int | None


class ReadAnswer(Struct):
    """`rows_by_ms`: pairs of the broker's time and the rows appended then. `disorders`: how often a
    partition's rows went back, repeats included.
    """

    references: int
    rows: int
    errors: int
    disorders: int
    rows_by_ms: list[tuple[int, int]]
    ticks: list[Tick]


async def read(kafka: config.Kafka, topics: Topics, *, ticks: bool = False) -> ReadAnswer:
    """Run the reader in a process of its own."""
    return await ask("reader", ReadTask(kafka, topics, ticks), ReadAnswer)


async def _work(task: ReadTask) -> None:
    output = _Output()
    async for record in _records(task.kafka, task.topics.output):
        output.take(record)
    references = 0
    ticks: list[Tick] = []
    async for record in _records(task.kafka, task.topics.input):
        references += 1
        if task.ticks:
            value = orjson.loads(record.value)
            due_ms = value.get("event_time")
            if due_ms is None:
                continue  # a huge object, not a tick
            answered_ms = output.answered_ms.get((record.partition, record.offset))
            ticks.append(Tick(value["stream"], due_ms, record.timestamp, answered_ms))
    say(
        ReadAnswer(
            references,
            output.rows,
            output.errors,
            output.disorders,
            sorted(output.rows_by_ms.items()),
            ticks,
        )
    )


def check_order(answer: ReadAnswer) -> None:
    """Raise `Fatal` if rows are out of order, repeated or rejected: their figures are no result."""
    if answer.disorders or answer.errors:
        raise Fatal(
            f"{answer.disorders} of {answer.rows} rows came out of order, {answer.errors} with "
            "errors: this is no measurement"
        )


class _Output:
    """Counts and checks the records of the output topic."""

    def __init__(self) -> None:
        self.rows = self.errors = self.disorders = 0
        self.rows_by_ms: Counter[int] = Counter()
        self.answered_ms: dict[tuple[int, int], int] = {}
        self._positions: dict[int, tuple[int, int, int]] = {}

    def take(self, record: ConsumerRecord) -> None:
        found = _ID.match(record.value)
        if found is None:
            self.errors += 1
            return
        position = (int(found[1]), int(found[2]), int(found[3]))
        if position <= self._positions.get(record.partition, (-1, 0, 0)):
            self.disorders += 1
        self._positions[record.partition] = position
        self.rows += 1
        self.rows_by_ms[record.timestamp] += 1
        self.errors += _ERROR in record.value
        if _LAST in record.value:
            self.answered_ms.setdefault((record.partition, position[0]), record.timestamp)


async def _records(settings: config.Kafka, topic: str) -> AsyncIterator[ConsumerRecord]:
    """All records that a topic holds now, without those of aborted transactions."""
    consumer = AIOKafkaConsumer(
        **connection(settings),
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=None,
    )
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with opened(consumer, settings, f"the reading of {topic}"):
        consumer.assign(partitions)
        async with within(f"a question about the end of {topic}", ANSWER_S):
            ends = await consumer.end_offsets(partitions)
        while any([await _position(consumer, part) < end for part, end in ends.items()]):
            async with within(f"a read of {topic}", ANSWER_S):
                found = await consumer.getmany(timeout_ms=SILENCE_MS)
            if not found:
                raise Fatal(f"Kafka stopped sending {topic} before its end")
            for records in found.values():
                for record in records:
                    yield record


async def _position(consumer: AIOKafkaConsumer, part: TopicPartition) -> int:
    async with within(f"a question about the position in {part.topic}", ANSWER_S):
        position: int = await consumer.position(part)
    return position


if __name__ == "__main__":
    serve(ReadTask, _work)
