"""The right answer to every reference, computed in the simplest way: only the decoder and the model
are shared with the pipeline.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import orjson

from penstock.core.routing.model_routes import Routes, place_of
from penstock.core.rows.payload import BLOCK_COST_BYTES, ROW_COST_BYTES, Payload
from penstock.errors import Poison, Unforeseen
from penstock.formats.reading import decoded
from penstock.formats.registry import Claim, claim_of
from penstock.formats.runs import RowOptions, Run
from penstock.messages.codec import Ignored, Inline, SchemaError, decode
from penstock.messages.reference import Reference
from penstock.ports import Answers, Record

Answer = Callable[[Payload], Answers]
MakeObject = Callable[[Random], tuple[str, bytes]]


class Row(NamedTuple):
    """The answer to one row: the model's prediction, or the code of an error."""

    prediction: Any
    code: str | None
    member: str | None


@dataclass(frozen=True, slots=True)
class Truth:
    """The answers to one version of one object. `numbers` and `answers`: the numbers of the rows
    that are asked for, in order, and the answer to each. `rows`: how many rows the object has in
    all. `failure`: the code of the error that ends the object early; None: it has no such error.
    """

    numbers: Sequence[int]
    answers: Sequence[Row]
    rows: int
    failure: str | None

    def next(self, row: int) -> int | None:
        """Among the rows that are asked for: the index in `numbers` of the first that is not before
        `row`.
        """
        index = bisect_left(self.numbers, row)
        return index if index < len(self.numbers) else None

    def below(self, row: int) -> Sequence[tuple[int, Row]]:
        """The rows before `row` that are asked for, each as its number and its answer."""
        return list(zip(self.numbers, self.answers, strict=True))[: bisect_left(self.numbers, row)]


class Asked(NamedTuple):
    """One object of one record. If it has neither reference nor inline rows, the message cannot be
    read. `object_index`: the object's number in the record. `model`: the model that answers, if a
    route may name several. `place`: the number by which commits know the object; if several models
    answer an object, it has a place for each of them.
    """

    reference: Reference | None
    inline: Inline | None
    stream: str
    object_index: int = 0
    model: str | None = None
    place: int = 0

    @property
    def queue(self) -> str:
        """With `output.order = "stream"`: the queue in whose order the object is answered."""
        return queue_of(self.stream, self.model)

    @property
    def key(self) -> str | None:
        return self.reference.key if self.reference else None

    @property
    def name(self) -> str:
        return _name(self.reference) if self.reference else "inline"


def queue_of(stream: str, model: str | None) -> str:
    return stream if model is None else f"{stream}/{model}"


def asked_by(record: Record, fan: Routes | None = None) -> Sequence[Asked]:
    """The objects that a record names; none if the record needs no answer. With `fan`, each object
    appears once for each model that its route names.
    """
    named = [
        each._replace(object_index=index, place=index)
        for index, each in enumerate(_named_by(record))
    ]
    return (
        named
        if fan is None
        else [each for named_object in named for each in _of_models(named_object, fan)]
    )


def _of_models(asked: Asked, fan: Routes) -> Sequence[Asked]:
    if asked.reference is None and asked.inline is None:
        return [asked._replace(model=fan.default)]
    bucket = asked.reference.bucket if asked.reference else None
    models = fan.of(asked.stream, bucket, asked.key)
    if len(models) == 1:
        return [asked._replace(model=models[0])]
    return [
        asked._replace(model=model, place=place_of(asked.object_index, model)) for model in models
    ]


def _named_by(record: Record) -> Sequence[Asked]:
    try:
        message = decode(record.value)
    except SchemaError:
        return [Asked(None, None, _stream(record, ""))]
    if isinstance(message, Ignored):
        return []
    if isinstance(message, Inline):
        return [Asked(None, message, message.stream or _stream(record, ""))]
    return [
        Asked(reference, None, reference.stream or _stream(record, _name(reference)))
        for reference in message.items
    ]


class Truths:
    """Call `put` with every version of every object, and `announced` with every record; then `of`
    gives the truth about each object. A prediction above `most_bytes` is too large for the topic.
    """

    def __init__(
        self,
        options: RowOptions,
        answer: Answer,
        chunk_bytes: int,
        most_bytes: int | None = None,
    ) -> None:
        self.options = options
        self.step_bytes = 0  # the largest cost of the rows of one decoding step, with answers
        self._answer_bytes = 0
        self._answer = answer
        self._chunk_bytes = chunk_bytes
        self._most_bytes = most_bytes
        self._decoded: dict[tuple[str, str | None], tuple[list[Row], str | None]] = {}
        self._versions: dict[str, list[str]] = defaultdict(list)
        self._known: dict[tuple[str, str | None, object], Truth] = {}

    def announced(self, record: Record, asked: Sequence[Asked]) -> None:
        for truth in asked:
            if truth.inline is not None:
                self._decode(_inline(record), truth.inline.body(), claim_of("", "json", "none"))

    def put(self, name: str, version: str, data: bytes) -> None:
        self._decode((name, version), data, claim_of(name, self.options.format))
        self._versions[name].append(version)

    def versions(self, name: str) -> Sequence[str]:
        """All versions of the object that ever existed."""
        return self._versions[name]

    def of(self, asked: Asked, record: Record, version: str | None) -> Truth | None:
        """The truth about one version of the object. None: there never was this version."""
        where = _inline(record) if asked.inline else (asked.name, version)
        selected = asked.reference.rows if asked.reference else None
        key = (*where, selected)
        if key not in self._known:
            if where not in self._decoded:
                return None
            rows, failure = self._decoded[where]
            numbers = [row for row in range(len(rows)) if _wants(selected, row)]
            answers = [rows[row] for row in numbers]
            self._known[key] = Truth(numbers, answers, len(rows), failure)
        return self._known[key]

    def _decode(self, where: tuple[str, str | None], data: bytes, claim: Claim) -> None:
        if where in self._decoded:
            return
        rows: list[Row] = []
        failure = None
        try:
            # Inline rows are decoded in one piece, as in the pipeline.
            chunk_bytes = self._chunk_bytes if claim.key else max(1, len(data))
            for runs in decoded(self.options, data, chunk_bytes, claim):
                cost_bytes = self._answer_bytes = 0
                for run in runs:
                    rows += self._predicted(run)
                    cost_bytes += BLOCK_COST_BYTES + len(run.error or "") * 2
                    if run.payload is not None:
                        cost_bytes += run.payload.nbytes + run.rows * ROW_COST_BYTES
                self.step_bytes = max(self.step_bytes, cost_bytes + self._answer_bytes)
        except Unforeseen:
            raise
        except Poison as error:
            failure = error.code
        self._decoded[where] = (rows, failure)

    def _predicted(self, run: Run) -> list[Row]:
        if run.payload is None:
            return [Row(None, "bad_row", run.member)] * run.rows
        try:
            answers = self._answer(run.payload)
        except Poison as error:
            if run.rows == 1:
                return [Row(None, error.code, run.member)]
            parts = (run.payload.cut(row, row + 1) for row in range(run.rows))
            return [
                row for part in parts for row in self._predicted(run._replace(rows=1, payload=part))
            ]
        return [
            Row(None, "model_rejected", run.member)
            if index in answers.errors
            else self._row(value, run.member)
            for index, value in enumerate(answers.values)
        ]

    def _row(self, value: bytes, member: str | None) -> Row:
        # `ROW_COST_BYTES` already covers short answers, so these may be counted twice here.
        self._answer_bytes += len(value)
        if self._most_bytes is not None and len(value) > self._most_bytes:
            return Row(None, "result_too_large", member)
        return Row(orjson.loads(value), None, member)


def _name(reference: Reference) -> str:
    return f"{reference.bucket}/{reference.key}"


def _stream(record: Record, name: str) -> str:
    """The stream of a message that does not name one: the Kafka key, or else the object's
    folder.
    """
    if record.key:
        return record.key.decode()
    bucket, _, key = name.partition("/")
    return key.rpartition("/")[0] or bucket or f"partition-{record.where.partition}"


def _inline(record: Record) -> tuple[str, str]:
    return (f"inline/{record.where}", str(record.offset))


def _wants(selected: Sequence[tuple[int, int | None]] | None, row: int) -> bool:
    return selected is None or any(
        first <= row and (stop is None or row < stop) for first, stop in selected
    )


Number = tuple[int, int]


class Letter(NamedTuple):
    """A dead letter about one row, or about the rest of an object (`row` is None)."""

    offset: int
    key: str | None
    row: int | None
    code: str
    model: str


class Bound(NamedTuple):
    """What a cursor was made for: object, version and row options."""

    name: str
    version: str | None
    truths: Truths


class PartitionLog:
    """`fan`: the routes; given only if they may name several models for an object. Such an object
    has a number for each of its models. `letters`: the dead letters that were delivered.
    `unsteady`: the objects whose answer depends on when they are read, by name, each with the error
    codes that are allowed for it. `silent`: objects that rightly got no record.
    """

    def __init__(self, records: Sequence[Record], fan: Routes | None = None) -> None:
        self.records = records
        self.fan = fan
        self.gap_end = 0
        self.letters: set[Letter] = set()
        self.silent: set[Number] = set()
        self.unsteady: Mapping[str, Collection[str]] = {}
        self._asked: list[Sequence[Asked]] = []
        self._bound: dict[tuple[Number, str], Bound] = {}

    @property
    def end(self) -> int:
        return max(self.records[-1].offset + 1 if self.records else 0, self.gap_end)

    @property
    def streams(self) -> set[str]:
        """All streams. If several models may answer, each stream appears once for each model."""
        return {asked.queue for objects in self._asked for asked in objects}

    def index(self, offset: int) -> int:
        """The index of the first record at or after this offset."""
        return bisect_left(self.records, offset, key=lambda record: record.offset)

    def objects(self, index: int) -> Sequence[Asked]:
        """The objects of the record that has this index."""
        while len(self._asked) <= index:
            self._asked.append(asked_by(self.records[len(self._asked)], self.fan))
        return self._asked[index]

    def answered(self, offset: int, id: str, model: str) -> int | None:
        """The number of an object within its input record, which is the one at `offset`. `id` and
        `model` are those of the output record that answers the object.
        """
        object_index = int(id.rsplit("/", 2)[1])
        return self._find(
            offset,
            lambda truth: truth.object_index == object_index and truth.model in (None, model),
        )

    def at_place(self, offset: int, place: int) -> int | None:
        """The number, within its record, of the object that commits know by this place."""
        return self._find(offset, lambda truth: truth.place == place)

    def _find(self, offset: int, fits: Callable[[Asked], bool]) -> int | None:
        index = self.index(offset)
        if index == len(self.records) or self.records[index].offset != offset:
            return None
        return next((n for n, truth in enumerate(self.objects(index)) if fits(truth)), None)

    def asked(self, number: Number) -> Asked:
        return self.objects(number[0])[number[1]]

    def bind(self, number: Number, digest: str, version: str | None, truths: Truths) -> bool:
        """Note a committed cursor. Returns True if its digest stands for only one version: the
        digest is not empty, and no commit used it for another version before.
        """
        name = self.asked(number).name
        before = self._bound.get((number, digest))
        self._bound[number, digest] = Bound(name, version, truths)
        return bool(digest) and (before is None or before.version == version)

    def bound(self, number: Number, digest: str) -> Bound | None:
        """What the last committed cursor with this digest was made for."""
        return self._bound.get((number, digest))

    def may_fail(self, asked: Asked, code: str) -> bool:
        """May the object be answered by this error, whatever its content is?"""
        if asked.reference is None:
            return code == "bad_reference" and asked.inline is None
        return code in self.unsteady.get(asked.name, ())

    def account(self, number: Number) -> str:
        return f"offset {self.records[number[0]].offset}, object {number[1]}"
