"""Reads the bench's topics, in a process of its own: what was answered, when, and in which order.

Rule: after a measurement, never during one; the times are the broker's stamps.
"""

import re
from collections import Counter
from typing import Any

import orjson
from msgspec import Struct

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import Fatal
from penstock.tools.bench.child_processes import ask, say, serve
from penstock.tools.bench.topics_and_bucket import Topics

# The id is the record's second field: topic/partition/offset/object/row.
_ID = re.compile(rb'\{"v":1,"id":"[^"]*/(\d+)/(\d+)/(\d+)"')
_ERROR = b',"error":{'
_LAST = b'"last":true'


class ReadTask(Struct):
    """The task of the reader. `ticks`: True if the times of each tick are returned, too."""

    kafka: config.Kafka
    topics: Topics
    ticks: bool = False


class Tick(Struct, array_like=True):
    """A reference, and when its last row was answered, in epoch milliseconds."""

    stream: str
    due_ms: int
    appended_ms: int
    answered_ms: int | None


class ReadAnswer(Struct):
    """`rows_by_ms`: pairs of a time by the broker's clock and the number of rows that the broker
    appended at that time. `disorders`: how many rows came out of order: their place in the input is
    not after the place of the row before them in their partition.
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
    references = 0
    ticks: list[Tick] = []
    async with open_reader(task.kafka, "read_committed") as reader:
        asked, answers = task.topics.input, task.topics.output
        async for record in reader.records(answers, await reader.spans(answers)):
            output.take(record)
        async for record in reader.records(asked, await reader.spans(asked)):
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
    """Raises `Fatal` if rows are out of order, repeated or rejected, because no figure is valid
    then.
    """
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

    def take(self, record: Any) -> None:
        match = _ID.match(record.value)
        if match is None:
            self.errors += 1
            return
        position = (int(match[1]), int(match[2]), int(match[3]))
        if position <= self._positions.get(record.partition, (-1, 0, 0)):
            self.disorders += 1
        self._positions[record.partition] = position
        self.rows += 1
        self.rows_by_ms[record.timestamp] += 1
        self.errors += _ERROR in record.value
        if _LAST in record.value:
            self.answered_ms.setdefault((record.partition, position[0]), record.timestamp)


if __name__ == "__main__":
    serve(ReadTask, _work)
