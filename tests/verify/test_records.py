"""Records that are malformed, foreign, or answer what was not asked."""

from dataclasses import replace

import orjson
import pytest

from penstock.tools.verify.findings import KEPT_PER_KIND
from penstock.tools.verify.judge import Judge
from tests.verify.planted import at_input, at_letters, at_output, kinds, only, place, sound
from tests.verify.topics import STREAM, Topics


def test_a_record_in_a_foreign_partition() -> None:
    topics = Topics(partitions=2)
    topics.answer(topics.ask(), range(3), 3)
    topics.predictions[1].append(topics.out.pop(1))
    violation = only(topics)
    assert (violation.kind, violation.topic, violation.partition) == (
        "foreign_partition",
        "predictions",
        1,
    )


@pytest.mark.parametrize(
    "value", [None, b"", b"junk", b"{}", b"[]", b"\xff", b"[" * 10_000, b'{"v":1,"id":3}']
)
def test_a_malformed_record(value: bytes | None) -> None:
    topics = sound()
    topics.out.insert(7, (STREAM.encode(), value))
    topics.letters[0].append((None, value))
    output, letters = topics.report().violations
    assert (output.kind, place(output)) == ("malformed", at_output(7))
    assert (letters.kind, place(letters)) == ("malformed", at_letters(0))


@pytest.mark.parametrize(
    "field", [{"source": 3}, {"source": {"topic": "refs"}}, {"object": {"bucket": 1}}]
)
def test_a_malformed_part_of_a_record(field: dict[str, object]) -> None:
    topics = sound()
    record = orjson.loads(topics.out[0][1] or b"") | field
    topics.out[0] = (STREAM.encode(), orjson.dumps(record))
    assert kinds(topics) == {"malformed": 1, "lost": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        "refs/0/0/0/1",
        "refs/0/1/0/0",
        "refs/1/0/0/0",
        "x/0/0/0/0",
        "refs/0/0/00/0",
        "0",
        "refs/0/0/-1/0",
    ],
)
def test_an_id_that_is_not_its_source_and_row(wrong: str) -> None:
    topics = sound()
    key, value = topics.out[0]
    assert value is not None
    topics.out[0] = (key, value.replace(b"refs/0/0/0/0", wrong.encode()))
    bad, lost = topics.report().violations
    assert (bad.kind, place(bad), lost.kind) == ("bad_id", at_output(0), "lost")


def test_an_id_of_another_row_within_an_object() -> None:
    topics = sound()
    key, value = topics.out[2]
    assert value is not None
    topics.out[2] = (key, value.replace(b"refs/0/0/0/2", b"refs/0/0/0/1"))
    assert kinds(topics) == {"bad_id": 1, "lost": 1}


def test_a_stream_that_changes_within_an_object() -> None:
    topics = sound()
    key, value = topics.out[2]
    assert value is not None
    changed = value.replace(b'"stream":"cam"', b'"stream":"cat"')
    topics.out[2] = (b"cat", changed)
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("wrong_field", at_output(2))
    assert violation.text == "refs/0/0/0/2 was not asked for stream 'cat'"
    topics.out[2] = (key, changed)
    assert kinds(topics) == {"bad_key": 1, "wrong_field": 1}


def test_a_repeat_of_another_stream() -> None:
    topics = sound()
    value = topics.out[12][1]
    assert value is not None
    topics.out.append((b"cat", value.replace(b'"stream":"cam"', b'"stream":"cat"')))
    assert {(violation.kind, place(violation)) for violation in topics.report().violations} == {
        ("wrong_field", at_output(15)),
        ("differs", at_output(15)),
    }


def test_a_key_that_is_not_the_stream() -> None:
    topics = sound()
    topics.out[3] = (b"another", topics.out[3][1])
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_key", at_output(3))


def test_an_answer_nobody_asked_for() -> None:
    topics = sound()
    topics.ask_raw({"Event": "s3:TestEvent"})
    topics.answer(3, [0], 1)
    topics.answer(2, [0], 1, index=1)
    assert kinds(topics) == {"not_asked": 2}


def test_an_answer_from_a_partition_that_is_not_there() -> None:
    topics = sound()
    frame = topics.frame(0, partition=9)
    topics.put(frame.last_row(0, b"1", None, 1))
    assert only(topics).kind == "not_asked"


def test_a_row_outside_the_selection() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(2, 4)]), [2, 3, 4], 9)
    assert kinds(topics) == {"not_asked": 1, "bad_end": 1}


def test_a_row_between_the_selected_ones() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(2, 4), (6, 7)]), [2, 3, 4, 6], 9)
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("not_asked", at_output(2))


def test_an_answer_to_an_offset_that_is_a_gap() -> None:
    topics = sound()
    scope = replace(topics.scope(), spans={0: (0, 9)}, until={0: 9})
    judge = Judge(scope)
    for offset in (0, 5):
        judge.reference(0, offset, None, topics.refs[0][0][1])
    for offset in range(5):
        judge.answer(0, offset, *topics.out[offset])
    judge.answer(0, 5, *topics.out[5])
    gap, lost = judge.report().violations
    assert (gap.kind, place(gap)) == ("not_asked", at_output(5))
    assert (lost.kind, place(lost)) == ("lost", at_input(5))


def test_rows_for_what_is_no_reference() -> None:
    topics = Topics()
    topics.answer(topics.ask_raw(b"junk"), range(1), 1, name=None)
    assert kinds(topics) == {"not_asked": 1}


def test_many_violations_are_counted_and_the_first_are_shown() -> None:
    topics = Topics()
    for _ in range(100):
        topics.ask()
    report = topics.report()
    assert report.violated == {"lost": 100}
    assert [violation.offset for violation in report.violations] == list(range(KEPT_PER_KIND))
