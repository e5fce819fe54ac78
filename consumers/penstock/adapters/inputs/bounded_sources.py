"""Sources that read up to given ends (a replay, a job), or the next few records of each partition
(a dry run).

Rule: no record at or after a partition's end reaches the pipeline. When the source is done, the
group's position is the end.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from penstock.adapters.inputs.urls import Groupless
from penstock.adapters.kafka.reader import Reader, Spans
from penstock.core.progress.line_stop import Word
from penstock.messages.cloud_events import structured
from penstock.ports import Commit, InputSource, Rebalance, Record, Where


class BoundedSource:
    """Reads each partition up to its end. `ends`: for each partition, the first offset that is not
    read. While `is_held` is set, nothing is read at all.

    Only reading differs from the real source. So a bounded worker joins the group, commits, hands
    partitions back and takes them over like any other worker. Offsets before the end count as read
    even if they have no records. A partition without an end is not read at all.
    """

    def __init__(self, source: InputSource, ends: Mapping[Where, int]) -> None:
        self._source = source
        self._ends = ends
        self.is_held = False

    async def start(self, rebalance: Rebalance) -> None:
        await self._source.start(rebalance)

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        wanted = [] if self.is_held else self._unread(partitions)
        records = await self._source.poll(wanted, wait_ms)
        return [record for record in records if record.offset < self._ends.get(record.where, 0)]

    def _unread(self, partitions: Collection[Where]) -> list[Where]:
        """Returns those of the partitions that are not at their end, and pauses the others, so that
        the client does not fetch them.
        """
        reached = self._source.reached()
        at_end = {each for each in partitions if reached.get(each, -1) >= self._ends.get(each, 0)}
        for each in at_end:
            self._source.pause(each)
        return [each for each in partitions if each not in at_end]

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        await self._source.commit(commits)

    def pause(self, partition: Where) -> None:
        self._source.pause(partition)

    def reached(self) -> Mapping[Where, int]:
        offsets = self._source.reached()
        return {each: min(offset, self._ends.get(each, 0)) for each, offset in offsets.items()}

    def topic_id(self, partition: Where) -> str | None:
        return self._source.topic_id(partition)

    def partitions(self) -> int:
        return self._source.partitions()

    async def end_offsets(self) -> Mapping[Where, int]:
        offsets = await self._source.end_offsets()
        return {each: min(offset, self._ends.get(each, 0)) for each, offset in offsets.items()}

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        return await self._source.words(partitions)

    async def mark_obeyed(self, partition: Where, words: Collection[Word]) -> None:
        await self._source.mark_obeyed(partition, words)

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        return await self._source.rewind(partitions)

    async def stop(self) -> None:
        await self._source.stop()


# A dry run keeps records of at most this many bytes, in all partitions together.
MOST_BYTES = 64 << 20


class Head(NamedTuple):
    """The group's position in a partition, and the records from there on."""

    where: Where
    start: Commit
    records: list[Record]
    topic_id: str | None = None


async def heads(reader: Reader, most: int) -> list[Head]:
    """For each partition of the input topics: the next `most` records that the group would read. If
    the records are large, there are fewer, but at least one.
    """
    newest: list[Head] = []
    there = {topic: await reader.spans(topic) for topic in await reader.inputs()}
    share = MOST_BYTES // max(1, sum(map(len, there.values())))
    for topic, spans in there.items():
        committed = await reader.committed(topic, spans)
        starts = {
            number: _start(committed.get(number), span) for number, span in sorted(spans.items())
        }
        left = {number: (starts[number].next_offset, end) for number, (_, end) in spans.items()}
        first = len(newest)
        topic_id = await reader.topic_id(topic)
        newest += [
            Head(Where(topic, number), start, [], topic_id) for number, start in starts.items()
        ]
        of_topic = {head.where.partition: head for head in newest[first:]}
        await _fill(reader, topic, of_topic, left, most, share)
    return newest


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
    """Read spans of `most` offsets, one after the other, until each partition is full. One span may
    not be enough, because some offsets have no record. A partition is full when it has `most`
    records, or more than `most_bytes`.
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
                where, _, kept, _ = heads[number]
                for record in records:
                    if len(kept) < most and room[number] > 0:
                        kept.append(_record(where, record))
                        room[number] -= len(kept[-1].value or b"")
        left |= {number: (end, left[number][1]) for number, (_, end) in windows.items()}


def _record(where: Where, read: Any) -> Record:
    value = structured(read.value, read.headers) if read.headers else read.value
    return Record(where, read.offset, read.key, value, read.timestamp)


class HeadSource(Groupless):
    """The source of a dry run. It joins no group: the records of `heads` were read before, and this
    source hands them over. It notes commits, and never sends them to Kafka. A partition is done
    when its last record is committed. `on_end` is called when all partitions are done.
    """

    def __init__(self, heads: Sequence[Head], on_end: Callable[[], None]) -> None:
        self._heads = {head.where: head for head in heads}
        self._on_end = on_end
        self._open = {head.where: head.records[-1].offset + 1 for head in heads if head.records}
        self._unread = set(self._open)
        self._ends = dict(self._open)

    async def start(self, rebalance: Rebalance) -> None:
        await rebalance.assigned({where: self._heads[where].start for where in self._open})

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        wanted = self._unread.intersection(partitions)
        if not wanted:
            await asyncio.sleep(wait_ms / 1000)
        self._unread -= wanted
        return [
            record
            for where, head in self._heads.items()
            if where in wanted
            for record in head.records
        ]

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        for where, commit in commits.items():
            if commit.next_offset >= self._open.get(where, 0):
                self._open.pop(where, None)
        if not self._open:
            self._on_end()

    def topic_id(self, partition: Where) -> str | None:
        return self._heads[partition].topic_id

    def reached(self) -> Mapping[Where, int]:
        return {where: end for where, end in self._ends.items() if where not in self._unread}

    def partitions(self) -> int:
        return len(self._heads)

    async def end_offsets(self) -> Mapping[Where, int]:
        return self._ends
