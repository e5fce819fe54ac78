"""`penstock watch`: shows the answers as they come, from the topics alone, with the time since the
input record if that was read, too.
"""

import fnmatch
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock import config
from penstock.adapters.kafka.follower import Bite, following
from penstock.adapters.kafka.reader import Reader, open_reader
from penstock.encodings.output_values import records_of
from penstock.messages.prediction import Prediction, Source, decode_prediction
from penstock.messages.reference import SchemaError
from penstock.ports import Where
from penstock.terminal_text import clock_time, cut
from penstock.tools.verify.answer_lines import said

WAIT_MS = 1_000
# The first answers after the time of --since belong to earlier messages. So the reading of the
# input begins this long before that time.
MARGIN_MS = 60_000
# Of each partition, the times of at most this many input records are kept. Each takes about 200
# bytes.
MOST_TIMES = 200_000
# When an answer comes, we forget the times of messages that are more than this many offsets older
# than the answered one. We keep the others, because with `output.order = "stream"` the answers to
# older messages may come later.
BEHIND = 10_000


class WatchFilter:
    """Tells which answers are shown: all, only those of some streams, or only those with an
    error.
    """

    def __init__(self, streams: Sequence[str] = (), *, errors: bool = False) -> None:
        self._streams = [re.compile(fnmatch.translate(glob)) for glob in streams]
        self._errors = errors

    def takes(self, answer: Prediction) -> bool:
        if self._errors and answer.error is None:
            return False
        return not self._streams or any(stream.match(answer.stream) for stream in self._streams)


class WatchedAnswer(NamedTuple):
    """A record of the output topic. `took_ms`: the time between two time stamps of Kafka, that of
    the input record and that of this record; None: unknown.
    """

    where: str
    at_ms: int
    took_ms: int | None
    value: bytes
    record: Prediction

    @property
    def line(self) -> str:
        """The line for people."""
        took = "" if self.took_ms is None else f"  {self.took_ms:,} ms"
        stream, text = cut(self.record.stream), cut(said(self.record))
        return f"{clock_time(self.at_ms)}  {stream}  {cut(self.record.id)}  {text}{took}"

    @property
    def json(self) -> bytes:
        """The line for programs, without its line feed."""
        known = {"where": self.where, "at": self.at_ms, "took_ms": self.took_ms}
        return msgspec.json.encode({**known, "record": msgspec.Raw(self.value)})


async def watch(
    cfg: config.Config, wanted: WatchFilter, since_ms: int | None, *, until_now: bool = False
) -> AsyncGenerator[list[WatchedAnswer]]:
    """Yields lists of answers as they come. It begins with the answers that are written from now
    on, or from `since_ms` on. It never ends, unless with `until_now` after the present answers.
    """
    isolation = cfg.delivery.isolation
    async with open_reader(cfg.kafka, isolation) as reader:
        answers = await _answers_begin(reader, cfg.output.topic, since_ms)
        begins = answers | await _inputs_begin(reader, since_ms)
    counts: dict[str, int] = {}
    for part in begins:
        counts[part.topic] = max(counts.get(part.topic, 0), part.partition + 1)
    asked = _AskedTimes()
    async with following(cfg.kafka, isolation, counts, begins) as follower:
        ends = await follower.ends() if until_now else None
        while ends is None or not await follower.has_reached(ends):
            bites = await follower.more(WAIT_MS)
            for bite in bites:
                if bite.topic != cfg.output.topic:
                    asked.note(bite)
            matching = [
                answer
                for bite in bites
                if bite.topic == cfg.output.topic
                for answer in _answers(bite, asked)
                if wanted.takes(answer.record)
            ]
            if matching:
                yield matching


async def _answers_begin(reader: Reader, topic: str, since_ms: int | None) -> dict[Where, int]:
    if since_ms is not None:
        spans = await reader.spans_since(topic, since_ms)
        return {Where(topic, number): begin for number, (begin, _) in spans.items()}
    return {Where(topic, number): end for number, (_, end) in (await reader.spans(topic)).items()}


async def _inputs_begin(reader: Reader, since_ms: int | None) -> dict[Where, int]:
    """The offsets at which the reading of the input begins. They must be low enough that the input
    records of the first answers are read. Without `since_ms` they are the group's committed
    offsets.
    """
    begins: dict[Where, int] = {}
    for topic in await reader.inputs():
        if since_ms is not None:
            spans = await reader.spans_since(topic, since_ms - MARGIN_MS)
            begins |= {Where(topic, number): begin for number, (begin, _) in spans.items()}
            continue
        spans = await reader.spans(topic)
        committed = await reader.committed(topic, spans)
        for number, (_, end) in spans.items():
            commit = committed.get(number)
            begins[Where(topic, number)] = end if commit is None else commit.next_offset
    return begins


class _AskedTimes:
    """Remembers, for input records that are not answered yet, when Kafka got them."""

    def __init__(self) -> None:
        # This is an `OrderedDict`, because a plain dict needs ever longer to find its first key the
        # more keys before it were deleted.
        self._times: dict[tuple[str, int], OrderedDict[int, int]] = {}

    def note(self, bite: Bite) -> None:
        times = self._times.setdefault((bite.topic, bite.partition), OrderedDict())
        room = max(0, MOST_TIMES - len(times))
        times.update((record.offset, record.timestamp) for record in bite.records[:room])

    def at_ms(self, source: Source) -> int | None:
        """When Kafka got the input record of this answer; None: unknown. Forgets the times of input
        records that are more than `BEHIND` offsets before it, because they are answered.
        """
        times = self._times.get((source.topic, source.partition))
        if times is None:
            return None
        at_ms = times.get(source.offset)
        while times and (oldest := next(iter(times))) < source.offset - BEHIND:
            del times[oldest]
        return at_ms


def _answers(bite: Bite, asked: _AskedTimes) -> Iterator[WatchedAnswer]:
    for each in bite.records:
        where = f"{bite.topic}/{bite.partition}/{each.offset}"
        for value in records_of(each.value or b""):
            try:
                record = decode_prediction(value)
            except SchemaError:
                continue  # other programs may write to the topic
            at_ms = asked.at_ms(record.source)
            took_ms = None if at_ms is None else each.timestamp - at_ms
            yield WatchedAnswer(where, each.timestamp, took_ms, value, record)
