"""Three topics in memory, written with the encoders of the pipeline, and a judge to read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import orjson

from penstock.messages.codec import encode_reference
from penstock.messages.dead_letter import Unanswered, dead_letter
from penstock.messages.prediction import Constants, ObjectId, RecordFrame, Source
from penstock.messages.reference import Reference, RowRange
from penstock.ports import Commit
from penstock.tools.verify.findings import VerifyReport
from penstock.tools.verify.judge import Judge
from penstock.tools.verify.read_topics import LiveJudge
from penstock.tools.verify.scope_and_input_topic import Scope

STREAM = "cam"
BUCKET = "b"
REFUSED = ("model_rejected", "refused")
UNREADABLE = ("not_found", "no such object")


class Entry(NamedTuple):
    """A record as the client hands it over."""

    offset: int
    key: bytes | None
    value: bytes | None


Log = list[tuple[bytes | None, bytes | None]]


def answer_of(row: int) -> bytes:
    return b'{"score":%d.5}' % row


@dataclass
class Topics:
    """Append to `refs`, `predictions` and `letters` (by partition), change them, have them
    judged.
    """

    partitions: int = 1
    markers: bool = True
    by_stream: bool = False
    exactly_once: bool = False
    partition_of: Callable[[int, bytes], int] = lambda partition, _: partition
    committed: dict[int, int] = field(default_factory=dict)
    cursors: dict[int, str] = field(default_factory=dict)
    until: dict[int, int] | None = None
    topic_id: str | None = None
    refs: dict[int, Log] = field(init=False)
    predictions: dict[int, Log] = field(init=False)
    letters: dict[int, Log] = field(init=False)

    def __post_init__(self) -> None:
        self.refs = {number: [] for number in range(self.partitions)}
        self.predictions = {number: [] for number in range(self.partitions)}
        self.letters = {number: [] for number in range(self.partitions)}

    @property
    def out(self) -> Log:
        return self.predictions[0]

    def ask(
        self,
        name: str = "a",
        rows: Sequence[RowRange] | None = None,
        partition: int = 0,
        **more: Any,
    ) -> int:
        """A reference; its offset."""
        selected = None if rows is None else tuple(rows)
        fields = {"stream": STREAM, **more}
        reference = Reference(bucket=BUCKET, key=name, rows=selected, **fields)
        return self.ask_raw(encode_reference(reference), partition)

    def ask_raw(self, value: Any, partition: int = 0) -> int:
        text = value if isinstance(value, bytes | None) else orjson.dumps(value)
        self.refs[partition].append((STREAM.encode(), text))
        return len(self.refs[partition]) - 1

    def frame(
        self, offset: int, name: str | None = "a", index: int = 0, partition: int = 0, **more: Any
    ) -> RecordFrame:
        fields: dict[str, Any] = {
            "topic": "refs",
            "stream": STREAM,
            "topic_id": None,
            "version": '"1"',
            "event_time": None,
            "attributes": None,
            "model": "rows",
            "model_version": None,
            **more,
        }
        topic, version, topic_id = (fields.pop(one) for one in ("topic", "version", "topic_id"))
        of = Constants(
            source=Source(topic, partition, offset, topic_id),
            object_index=index,
            object=None if name is None else ObjectId(BUCKET, name, version),
            **fields,
        )
        return RecordFrame(of)

    def put(self, *values: bytes, partition: int = 0, stream: str = STREAM) -> None:
        self.predictions[partition] += [(stream.encode(), value) for value in values]

    def answer(
        self,
        offset: int,
        rows: Sequence[int],
        count: int | None = None,
        name: str | None = "a",
        index: int = 0,
        partition: int = 0,
        rejected: Sequence[int] = (),
        **more: Any,
    ) -> None:
        """Rows of an object; the last of them ends it (unless `count`, its row count, is None)."""
        frame = self.frame(offset, name, index, partition, **more)
        for row in rows:
            last = count if row == rows[-1] else None
            if row in rejected:
                (value,) = frame.rejected(row, 1, *REFUSED, None, last)
            elif last is not None:
                value = frame.last_row(row, answer_of(row), None, last)
            else:
                (value,) = frame.rows(row, [answer_of(row)], None)
            self.put(value, partition=partition, stream=more.get("stream", STREAM))

    def mark(
        self,
        offset: int,
        rows: int = 0,
        error: tuple[str, str] | None = None,
        name: str | None = "a",
        index: int = 0,
    ) -> None:
        self.put(self.frame(offset, name, index).marker(rows, error))

    def point(self, offset: int, first: tuple[int, int, int | None], **more: Any) -> None:
        """A marker that points to the answers of an object that was announced before."""
        self.put(self.frame(offset, **more).duplicate(*first))

    def letter(
        self, offset: int, rows: Sequence[RowRange] | None, name: str | None = "a", **more: Any
    ) -> None:
        """About rows that were refused, or about what could not be read."""
        reference = None if name is None else Reference(bucket=BUCKET, key=name)
        is_rest = rows is None or rows[-1][1] is None
        fields: dict[str, Any] = {
            "code": (UNREADABLE if is_rest else REFUSED)[0],
            "stage": "predict",
            "message": "refused",
            "attempts": 1,
            "stream": STREAM,
            "source": Source("refs", 0, offset),
            "object_index": 0,
            "reference": reference,
            "version": None,
            "member": None,
            "rows": rows,
            "event_time": None,
            "failed_at": 1,
            "model": "rows",
            "value": b"junk",
        }
        self.letters[0].append((None, dead_letter(Unanswered(**(fields | more)))))

    def judge(self) -> Judge:
        """Everything is read, the second time too."""
        judge = self.fed_with_references()
        feed(judge.answer, self.predictions)
        feed(judge.dead_letter, self.letters)
        feed(judge.compare, {number: self.predictions[number] for number in judge.repeated})
        return judge

    def fed_with_references(self) -> Judge:
        judge = Judge(self.scope())
        feed(judge.reference, self.refs)
        return judge

    def scope(self) -> Scope:
        ends = {number: len(log) for number, log in self.refs.items()}
        return Scope(
            input_topic="refs",
            output_topic="predictions",
            dead_letter_topic="predictions.dlq",
            spans={number: (0, end) for number, end in ends.items()},
            until=ends if self.until is None else self.until,
            committed={
                number: Commit(offset, self.cursors.get(number, ""))
                for number, offset in self.committed.items()
            },
            partition_of=self.partition_of,
            by_stream=self.by_stream,
            exactly_once=self.exactly_once,
            markers=self.markers,
            topic_id=self.topic_id,
        )

    def report(self) -> VerifyReport:
        """Of the judge who reads twice; the one who looks on while topics grow says the same."""
        judge = self.judge()
        report = judge.report()
        if not report.announced_again:
            live = self.live_report()
            assert (live.violated, set(live.violations)) == (
                report.violated,
                set(report.violations),
            )
            assert (
                msgspec.structs.replace(
                    live, violated=report.violated, violations=report.violations
                )
                == report
            )
        return report

    def live_report(self) -> VerifyReport:
        """Every answer as late as it may come, one at a time."""
        judge = LiveJudge(self.scope())
        for take, logs in (
            (judge.references, self.refs),
            (judge.answers, self.predictions),
            (judge.dead_letters, self.letters),
        ):
            for partition, log in logs.items():
                for offset, (key, value) in enumerate(log):
                    take(partition, [Entry(offset, key, value)])
        return judge.report()


def feed(
    take: Callable[[int, int, bytes | None, bytes | None], None], logs: dict[int, Log]
) -> None:
    for partition, log in logs.items():
        for offset, (key, value) in enumerate(log):
            take(partition, offset, key, value)
