"""A source for a dry run: the next few records of each partition, read without joining the group.

Rule: the records begin where the group would begin, and are read before the source is started.
Commits are only noted here, never sent to Kafka. A partition is done when its last record is
committed. Owner: the dry run.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from penstock.adapters.inputs.groupless import Groupless
from penstock.adapters.kafka.reader import Reader, Spans
from penstock.messages.cloud_events import structured
from penstock.ports import Commit, Rebalance, Record, Where

# The most bytes that the kept records of all partitions have together.
MOST_BYTES = 64 << 20


class Head(NamedTuple):
    """The group's position in a partition, and the records from there on."""

    where: Where
    start: Commit
    records: list[Record]


async def heads(reader: Reader, most: int) -> list[Head]:
    """For each partition of the input topics, the next `most` records that the group would read;
    fewer if they are large, but at least one.
    """
    found: list[Head] = []
    there = {topic: await reader.spans(topic) for topic in await reader.inputs()}
    share = MOST_BYTES // max(1, sum(map(len, there.values())))
    for topic, spans in there.items():
        committed = await reader.committed(topic, spans)
        starts = {
            number: _start(committed.get(number), span) for number, span in sorted(spans.items())
        }
        left = {number: (starts[number].next_offset, end) for number, (_, end) in spans.items()}
        first = len(found)
        found += [Head(Where(topic, number), start, []) for number, start in starts.items()]
        of_topic = {head.where.partition: head for head in found[first:]}
        await _fill(reader, topic, of_topic, left, most, share)
    return [
        head._replace(records=[record._replace(partition=number) for record in head.records])
        for number, head in enumerate(found)
    ]


def _start(committed: Commit | None, span: tuple[int, int]) -> Commit:
    begin, end = span
    if committed is None or not begin <= committed.next_offset <= end:
        return Commit(begin)
    return committed


async def _fill(
    reader: Reader,
    topic: str,
    heads: Mapping[int, Head],
    left: Spans,
    most: int,
    most_bytes: int,
) -> None:
    """Read spans of `most` offsets, one after the other, because some offsets have no record. A
    partition is full with `most` records, or as soon as its records exceed `most_bytes`.
    """
    left = dict(left)
    room = dict.fromkeys(left, most_bytes)
    while windows := {
        number: (begin, min(begin + most, end))
        for number, (begin, end) in left.items()
        if begin < end and len(heads[number].records) < most and room[number] > 0
    }:
        async with aclosing(reader.runs(topic, windows, lambda _: None)) as runs:
            async for number, records in runs:
                kept = heads[number].records
                for record in map(_record, records):
                    if len(kept) < most and room[number] > 0:
                        kept.append(record)
                        room[number] -= len(record.value or b"")
        left |= {number: (end, left[number][1]) for number, (_, end) in windows.items()}


def _record(read: Any) -> Record:
    value = structured(read.value, read.headers) if read.headers else read.value
    return Record(0, read.offset, read.key, value, read.timestamp)


class HeadSource(Groupless):
    """`on_end` is called once, when the records of all partitions are committed."""

    def __init__(self, heads: Sequence[Head], on_end: Callable[[], None]) -> None:
        self._heads = heads
        self._on_end = on_end
        self._unread = {number for number, head in enumerate(heads) if head.records}
        self._open = {number: heads[number].records[-1].offset + 1 for number in self._unread}
        self._ends = dict(self._open)

    async def start(self, rebalance: Rebalance) -> None:
        await rebalance.assigned({number: self._heads[number].start for number in self._open})

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        wanted = self._unread.intersection(partitions)
        if not wanted:
            await asyncio.sleep(wait_ms / 1000)
        self._unread -= wanted
        return [record for number in sorted(wanted) for record in self._heads[number].records]

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        for number, commit in commits.items():
            if commit.next_offset >= self._open.get(number, 0):
                self._open.pop(number, None)
        if not self._open:
            self._on_end()

    def where(self, partition: int) -> Where:
        return self._heads[partition].where

    def reached(self) -> Mapping[int, int]:
        return {number: end for number, end in self._ends.items() if number not in self._unread}

    def partitions(self) -> int:
        return len(self._heads)

    async def end_offsets(self) -> Mapping[int, int]:
        return self._ends
