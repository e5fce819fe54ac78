"""Compares a replay's answers with the former ones.

Rule: two answers are a pair if they are about the same row of the input. Partitions are read one
after the other, each on both topics side by side, so that memory holds only the rows by which one
is ahead. A former answer counts if its message is in the range; a new one if it was written since
this replay began, because an earlier one may have written to the same topic.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from penstock.adapters.kafka.reader import OnRead, Reader, ReadingProgress, open_reader
from penstock.adapters.kafka.reader import Spans as TopicSpans
from penstock.core.comparing.comparison import NOTHING, Agreement, Pairs, RowPlace, Tally
from penstock.encodings.output_values import records_of
from penstock.errors import usage
from penstock.messages.command_json import Difference, Example, ReplayedStream
from penstock.messages.prediction import Failure
from penstock.settings.routes import routes_of
from penstock.tools.replay.decided_range import DecidedRanges, Spans
from penstock.tools.replay.former_results import Values, open_results
from penstock.tools.replay.worker_settings import Plan
from penstock.tools.verify.records_and_open_objects import NOT_JSON

# A record has the time of its producer's clock, which may differ from our clock by this much.
CLOCKS_MS = 60_000
# One topic may be ahead of the other by at most this many bytes of rows.
AHEAD_BYTES = 64 << 20
WORST = 10
EXAMPLES = 10
# A longer prediction is a vector, which is useless as an example. So only its length is shown.
EXAMPLE_BYTES = 2_000

THEN, NOW = 0, 1


NULL = Raw(b"null")


class _ComparedRecord(Struct, gc=False):
    id: str
    stream: str
    model: str
    row: int | None
    prediction: Raw
    object: Raw = NULL
    columns: Raw = NULL
    error: Failure | None = None


class _Answer(NamedTuple):
    """The parts of an answer that are compared. `error`: the error's code; empty if the answer is
    no error. `object`, `columns`: JSON texts that tell people which row it is.
    """

    id: str
    stream: str
    text: bytes
    error: str
    object: bytes
    columns: bytes

    @property
    def nbytes(self) -> int:
        return len(self.text) + len(self.object) + len(self.columns)


_decode = msgspec.json.Decoder(_ComparedRecord).decode


class Compares(NamedTuple):
    """How answers are compared. `pointers`: JSON pointers to the values that are compared; if
    empty, all values are compared.
    """

    tolerance: float
    pointers: Sequence[str]
    progress: OnRead


async def difference(plan: Plan, decided: DecidedRanges, how: Compares) -> Difference:
    """Read the former and the new answers, and compare them."""
    live, ours = plan.live.output.topic, plan.cfg.output.topic
    agreement = Agreement(how.tolerance, how.pointers)
    pairing = Pairing(plan, decided.spans, agreement)
    async with (
        open_reader(plan.live.kafka, plan.cfg.delivery.isolation) as reader,
        open_results(plan.live, pairing.wants_of_then) as results,
    ):
        then = await reader.spans_since(live, plan.options.since_ms - CLOCKS_MS)
        now = await reader.spans_since(ours, decided.begun_ms - CLOCKS_MS)
        seen = ReadingProgress(how.progress)
        seen.expect(then, now)
        in_place = results.in_place if plan.live.output.records == "objects" else _as_it_is
        for part in _parts(then, now):
            topics = ((live, _only(then, part)), (ours, _only(now, part)))
            pairing.begin(part)
            await _side_by_side(reader, topics, pairing, seen, in_place)
            pairing.end()
        seen.end()
    return pairing.report()


def check(plan: Plan) -> None:
    """Call this before anything is replayed. Raises `Fatal` (exit 2) if a comparison is
    impossible.
    """
    live, options = plan.live, plan.options
    if options.model is not None and options.against is None and routes_of(live).fans_out:
        raise usage(
            "--diff: several models answer a row by [[routes]]; name by --against the model whose "
            f"former answers {options.model} is compared with"
        )


def _parts(then: TopicSpans, now: TopicSpans) -> Sequence[frozenset[int]]:
    """Divides the partitions into groups that are compared one after the other. If both topics have
    the same partitions, a row is in the same partition on both, so each partition is a group.
    Otherwise all partitions are one group.
    """
    if then.keys() == now.keys():
        return [frozenset([number]) for number in sorted(then)]
    return [frozenset([*then, *now])]


def _only(spans: TopicSpans, numbers: frozenset[int]) -> TopicSpans:
    return {number: span for number, span in spans.items() if number in numbers}


async def _side_by_side(
    reader: Reader,
    topics: tuple[tuple[str, TopicSpans], tuple[str, TopicSpans]],
    pairing: "Pairing",
    seen: ReadingProgress,
    in_place: Callable[[Values], Values],
) -> None:
    """Read both topics. The next read is always of the topic with fewer unpaired rows, so that
    neither topic gets far ahead.
    """
    async with (
        aclosing(_values(reader, *topics[THEN], seen)) as records,
        aclosing(in_place(records)) as then,
        aclosing(_values(reader, *topics[NOW], seen)) as now,
    ):
        open_sides: dict[int, Values] = {THEN: then, NOW: now}
        while open_sides:
            side = min(open_sides, key=lambda each: pairing.waiting[each])
            values = await anext(open_sides[side], None)
            if values is not None:
                pairing.take(side, values)
            if values is None or (side == THEN and pairing.is_behind_the_range):
                del open_sides[side]


async def _values(reader: Reader, topic: str, spans: TopicSpans, seen: ReadingProgress) -> Values:
    async with aclosing(reader.runs(topic, spans, seen.passed)) as runs:
        async for _, records in runs:
            yield [record.value for record in records if record.value is not None]


def _as_it_is(values: Values) -> Values:
    return values


class Pairing:
    """Pairs the answers, and compares each pair. For each group of partitions call `begin`, then
    `take` with the values of the group's records, then `end`. After the last group call `report`.
    """

    def __init__(self, plan: Plan, spans: Spans, agreement: Agreement) -> None:
        self._spans: Mapping[tuple[str, int], tuple[int, int]] = {
            (part.topic, part.partition): span for part, span in spans.items()
        }
        self._plan = plan
        # Without --model, each model's new answers are compared with the same model's former ones.
        self._by_model = plan.options.model is None
        self._agreement, self._exactly = agreement, Agreement()
        self._pairs: Pairs[_Answer] = Pairs(AHEAD_BYTES)
        # The rows that both predicted; and, for each stream, those that one of both predicted.
        self._both = NOTHING
        self._tally = Tally()
        self._equal = 0
        # How many rows were not predicted twice, by whether they failed then, now, and alike.
        self._failed: Counter[tuple[bool, bool, bool]] = Counter()
        self._examples: list[Example] = []
        self._readers = [self._reader(side) for side in (THEN, NOW)]

        output = plan.live.output
        self._is_ordered = output.partitioning == "same" and output.order == "partition"
        self._left: set[tuple[str, int]] = set()

    def begin(self, numbers: frozenset[int]) -> None:
        """Begin a group: these partitions of both topics."""
        self._left = {
            part for part, (begin, end) in self._spans.items() if part[1] in numbers and begin < end
        }

    def end(self) -> None:
        self._pairs.end()

    @property
    def is_behind_the_range(self) -> bool:
        """True if, in all partitions of the group, the former answers have passed the end of the
        range.
        """
        return self._is_ordered and not self._left

    @property
    def waiting(self) -> Sequence[int]:
        return self._pairs.waiting

    def take(self, side: int, values: Sequence[bytes]) -> None:
        take = self._readers[side]
        for value in values:
            for record in records_of(value):
                take(record)

    def wants_of_then(self, id: str, stream: str, model: str) -> bool:
        """True if this object is in the range and its former answers are compared."""
        try:
            part, place = _placed(id)
        except ValueError:
            return False  # no worker wrote this record
        begin, end = self._spans.get(part, (0, 0))
        return begin <= place.offset < end and self._plan.takes_of_then(stream, model)

    def _reader(self, side: int) -> Callable[[bytes], None]:
        by_model, spans, put = self._by_model, self._spans, self._pairs.put
        takes = self._plan.takes_of_then if side == THEN else _takes_all

        def take(value: bytes) -> None:
            try:
                record = _decode(value)
                part, place = _placed(record.id, -1 if record.row is None else record.row)
            except NOT_JSON:
                return  # no worker wrote this record
            begin, end = spans.get(part, (0, 0))
            if side == THEN and place.offset >= end:
                self._left.discard(part)
            if not begin <= place.offset < end or not takes(record.stream, record.model):
                return
            if record.row is None and record.error is None:
                return  # a marker has no row to compare
            error = record.error.code if record.error is not None else ""
            texts = bytes(record.prediction), error, bytes(record.object), bytes(record.columns)
            answer = _Answer(record.id, record.stream, *texts)
            sequence = (part, record.stream, record.model if by_model else "")
            other = put(side, sequence, place, answer, answer.nbytes)
            if other is not None:
                self._compare(*((other, answer) if side == NOW else (answer, other)))

        return take

    def _compare(self, then: _Answer, now: _Answer) -> None:
        if then.error or now.error:
            agrees = then.error == now.error
            self._failed[bool(then.error), bool(now.error), agrees] += 1
        else:
            self._equal += self._exactly.same(then.text, now.text)
            agrees = self._agreement.same(then.text, now.text)
            self._both = self._both.plus(1, int(agrees))
        if not (then.error and now.error):
            self._tally.add(then.stream, 1, int(agrees))
        if not agrees and len(self._examples) < EXAMPLES:
            about = msgspec.json.decode(now.object), msgspec.json.decode(now.columns)
            self._examples.append(Example(then.id, then.stream, *about, _shown(then), _shown(now)))

    def report(self) -> Difference:
        total, pairs, failed = self._both, self._pairs, self._failed
        low, high = total.interval()
        return Difference(
            rows=total.rows,
            agreed=total.agreed,
            equal=self._equal,
            agreement=total.value,
            low=low,
            high=high,
            same_error=failed[True, True, True],
            other_error=failed[True, True, False],
            failed_then=failed[True, False, False],
            failed_now=failed[False, True, False],
            only_then=pairs.only[THEN],
            only_now=pairs.only[NOW],
            repeated=pairs.repeated,
            unseen=pairs.unseen,
            worst=[
                ReplayedStream(stream, share.rows, share.agreed)
                for stream, share in self._tally.worst(WORST)
            ],
            examples=self._examples,
        )


def _takes_all(_stream: str, _model: str) -> bool:
    return True


def _placed(id: str, row: int = -1) -> tuple[tuple[str, int], RowPlace]:
    """Returns two things: the topic and partition of the input record that an id names; and the
    row's place in that partition. Raises `ValueError` if the id has another form.
    """
    topic, number, at, index, _ = id.split("/")
    return (topic, int(number)), RowPlace(int(at), int(index), row)


def _shown(answer: _Answer) -> Any:
    if answer.error:
        return {"error": answer.error}
    if len(answer.text) > EXAMPLE_BYTES:
        return f"{len(answer.text):,} bytes"
    return msgspec.json.decode(answer.text)
