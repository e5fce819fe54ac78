"""Three topics in memory, filled as a worker would, for a test to damage and have judged."""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from consumers.ops.verify_findings import Report
from consumers.ops.verify_judge import Judge, Scope
from schemas.codec import encode_reference
from schemas.dead_letter import dead_letter
from schemas.prediction import RecordFrame, Source
from schemas.reference import Reference, RowRange

SCOPE = Scope(
    input_topic="refs",
    output_topic="predictions",
    dead_letter_topic="predictions.dlq",
    spans={},
    until={},
    committed={},
    partition_of=lambda partition, _: partition,
    by_stream=False,
    markers=True,
)


@dataclass
class Topics:
    """`output[p]` holds values in order; their offsets are their places. Likewise the others.
    `key`: the Kafka key of all output records, where it shall not be their stream."""

    partitions: int = 1
    scope: Scope = SCOPE
    input: dict[int, list[bytes | None]] = field(init=False)
    output: dict[int, list[bytes]] = field(init=False)
    letters: list[bytes] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    key: bytes | None = None

    def __post_init__(self) -> None:
        self.input = {number: [] for number in range(self.partitions)}
        self.output = {number: [] for number in range(self.partitions)}

    def promise(self, **changes: Any) -> None:
        self.scope = replace(self.scope, **changes)

    def refer(
        self, *, partition: int = 0, stream: str = "s", rows: tuple[RowRange, ...] | None = None
    ) -> int:
        """Write a reference; its offset."""
        offset = len(self.input[partition])
        reference = Reference(bucket="b", key=f"{partition}-{offset}", stream=stream, rows=rows)
        self.input[partition].append(encode_reference(reference))
        return offset

    def answer(
        self, count: int, *, partition: int = 0, stream: str = "s", into: int | None = None
    ) -> int:
        """Write a reference and the records of all its rows; its offset."""
        offset = self.refer(partition=partition, stream=stream)
        output = self.output[partition if into is None else into]
        output += rows_of(offset, count, partition=partition, stream=stream)
        return offset

    def letter(
        self, offset: int, rows: tuple[RowRange, ...] | None, *, partition: int = 0, **more: Any
    ) -> None:
        """A dead letter for these rows of a plain reference."""
        arguments: dict[str, Any] = {
            "code": "bad_row",
            "stage": "expand",
            "message": "no",
            "attempts": 1,
            "stream": "s",
            "source": Source("refs", partition, offset),
            "reference": Reference(bucket="b", key=f"{partition}-{offset}"),
            "version": None,
            "member": None,
            "rows": rows,
            "event_time": None,
            "failed_at": 0,
            "model": "m",
            "value": None,
        }
        self.letters.append(dead_letter(**arguments | more))

    def report(self) -> Report:
        """Judge everything, in the order the judge asks for."""
        spans = self.scope.spans or {number: (0, len(log)) for number, log in self.input.items()}
        until = self.scope.until or {number: end for number, (_, end) in spans.items()}
        judge = Judge(replace(self.scope, spans=spans, until=until, committed=self.committed))
        for number, (start, end) in spans.items():
            for offset in range(start, end):
                judge.reference(number, offset, None, self.input[number][offset])
        for number, values in self.output.items():
            for offset, value in enumerate(values):
                judge.answer(number, offset, self.key or key_of(value), value)
        for offset, letter in enumerate(self.letters):
            judge.dead_letter(0, offset, None, letter)
        for number in judge.repeated:
            for offset, value in enumerate(self.output[number]):
                judge.compare(number, offset, key_of(value), value)
        return judge.report()

    def kinds(self) -> dict[str, int]:
        return self.report().violated


def key_of(value: bytes) -> bytes | None:
    """The Kafka key a worker gives the record: its stream."""
    try:
        stream: str = msgspec.json.decode(value)["stream"]
    except (msgspec.MsgspecError, TypeError, KeyError, ValueError, RecursionError):
        return None
    return stream.encode()


def frame(offset: int, *, partition: int = 0, index: int = 0, stream: str = "s") -> RecordFrame:
    return RecordFrame(
        topic="refs",
        partition=partition,
        offset=offset,
        object_index=index,
        stream=stream,
        bucket="b",
        key="k",
        version=None,
        event_time=None,
        attributes=None,
        model="m",
        model_version=None,
    )


def rows_of(offset: int, count: int, **where: Any) -> list[bytes]:
    """The records of an object with so many rows, row i answered by i."""
    encode = frame(offset, **where)
    rows = encode.rows(0, [b"%d" % row for row in range(count - 1)], None)
    return [*rows, encode.last_row(count - 1, b"%d" % (count - 1), None, count)]


def changed(value: bytes, **fields: Any) -> bytes:
    """The record with other values in some fields."""
    return msgspec.json.encode(msgspec.json.decode(value) | fields)
