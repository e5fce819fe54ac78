"""Every kind of broken promise, planted, is named by the judge at its place."""

from dataclasses import replace

import orjson
import pytest

from consumers.core.cursor import Cursor, Progress, digest, encode
from consumers.core.ranges import Ranges
from consumers.verify.findings import KEPT_PER_KIND, Violation
from consumers.verify.judge import Judge
from tests.verify.topics import REFUSED, STREAM, UNREADABLE, Topics


def sound() -> Topics:
    """Three objects of five rows."""
    topics = Topics()
    for _ in range(3):
        topics.answer(topics.ask(), range(5), 5)
    return topics


def cursor(object_index: int, row: int, at: int = 0) -> str:
    """Of a commit at offset `at`."""
    objects = {at: Ranges([(0, object_index)])} if object_index else {}
    rows = {(at, object_index): Cursor(row, digest("b/a", "1"))} if row else {}
    return encode(Progress(at, objects=objects, rows=rows))


def only(topics: Topics) -> Violation:
    report = topics.report()
    assert not report.ok
    (found,) = report.violations
    return found


def kinds(topics: Topics) -> dict[str, int]:
    return topics.report().violated


def at_input(offset: int) -> tuple[str, int, int]:
    return ("refs", 0, offset)


def at_output(offset: int) -> tuple[str, int, int]:
    return ("predictions", 0, offset)


def at_letters(offset: int) -> tuple[str, int, int]:
    return ("predictions.dlq", 0, offset)


def place(found: Violation) -> tuple[str, int, int]:
    return (found.topic, found.partition, found.offset)


@pytest.mark.parametrize("row", [0, 1, 3])
def test_a_lost_row(row: int) -> None:
    topics = sound()
    del topics.out[5 + row]
    found = only(topics)
    assert (found.kind, place(found)) == ("lost", at_input(1))
    assert f"row {row} of 5 is missing" in found.text


@pytest.mark.parametrize("tail", [1, 2, 4])
def test_a_lost_tail(tail: int) -> None:
    topics = sound()
    del topics.out[10 - tail : 10]
    found = only(topics)
    assert (found.kind, place(found)) == ("lost", at_input(1))
    assert f"everything after row {4 - tail} is missing" in found.text


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_lost_reference(offset: int) -> None:
    topics = sound()
    del topics.out[5 * offset : 5 * offset + 5]
    found = only(topics)
    assert (found.kind, place(found)) == ("lost", at_input(offset))


def test_a_row_that_came_twice_where_once_is_promised() -> None:
    topics = sound()
    topics.out.extend(topics.out[-2:])
    assert topics.report().ok
    topics.exactly_once = True
    report = topics.report()
    assert report.violated == {"repeated": 2}
    assert [place(found) for found in report.violations] == [at_output(15), at_output(16)]
    assert report.violations[0].text == "row 3 of object 0 of offset 2 came before"


def test_everything_lost() -> None:
    topics = sound()
    topics.out.clear()
    report = topics.report()
    assert report.violated == {"lost": 3}
    assert report.sentence() == "0 rows of 0 streams in 3 objects: VIOLATED: 3 lost."


def test_a_lost_object_of_several() -> None:
    topics = Topics()
    names = [{"bucket": "b", "key": key} for key in "abc"]
    offset = topics.ask_raw({"objects": names})
    topics.answer(offset, range(2), 2, name="a", index=0)
    topics.answer(offset, range(2), 2, name="c", index=2)
    found = only(topics)
    assert (found.kind, place(found)) == ("lost", at_input(0))
    assert "object 1 " in found.text


def test_lost_rows_of_a_selection() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(2, 5), (7, None)]), [2, 4, 7, 9], 10)
    found = only(topics)
    assert found.kind == "lost"
    assert "row 3, 8 of 10 is missing" in found.text


def test_a_lost_inline_row() -> None:
    topics = Topics()
    topics.answer(topics.ask_raw({"inline": [[1], [2], [3]]}), range(2), 2, name=None)
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_end", at_output(1))
    assert "2 rows, but the message has 3" in found.text


def test_a_loss_is_told_without_markers_too() -> None:
    topics = Topics(markers=False)
    topics.answer(topics.ask(), range(3))  # neither its end nor a letter
    topics.answer(topics.ask(), range(5))
    del topics.out[-2]  # a hole before the rows its letter asks for
    topics.letter(1, [(5, None)])
    assert kinds(topics) == {"lost": 2}


def test_swapped_rows() -> None:
    topics = sound()
    topics.out[6], topics.out[7] = topics.out[7], topics.out[6]
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(7))
    assert "row 1 of object 0 of offset 1 comes after row 2" in found.text


def test_a_last_row_that_comes_early() -> None:
    topics = sound()
    topics.out[8], topics.out[9] = topics.out[9], topics.out[8]
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(9))


def test_swapped_objects() -> None:
    topics = sound()
    topics.out[0:5], topics.out[5:10] = topics.out[5:10], topics.out[0:5]
    assert kinds(topics) == {"disorder": 5}


def test_swapped_objects_of_one_stream() -> None:
    topics = Topics(by_stream=True)
    topics.ask()
    topics.ask()
    topics.answer(1, range(2), 2)
    topics.answer(0, range(2), 2)
    assert kinds(topics) == {"disorder": 2}


def test_a_marker_before_its_rows() -> None:
    topics = Topics()
    topics.ask()
    topics.mark(0, 3, UNREADABLE)
    topics.answer(0, range(3))
    topics.letter(0, [(3, None)])
    assert kinds(topics) == {"disorder": 3}


def test_a_repeat_that_leaves_out_a_row() -> None:
    topics = sound()
    topics.out.append(topics.out[10])
    topics.out.append(topics.out[12])
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(16))
    assert "leaves out row 1" in found.text


@pytest.mark.parametrize(
    ("again", "at", "left_out"),
    [
        ([0, 1, 2, 3, 4, 10], 20, "object 0 of offset 1"),
        ([3, 5], 16, "what follows row 3 of offset 0"),
        ([3, 4, 7], 17, "row 0-1"),
        ([8, 9, 5, 6, 12], 19, "row 0-1"),
    ],
)
def test_repeats_that_leave_out_something_between_objects(
    again: list[int], at: int, left_out: str
) -> None:
    topics = sound()
    topics.out.extend([topics.out[number] for number in again])
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(at))
    assert found.text.endswith(f"leaves out {left_out}")


def test_a_repeat_that_leaves_out_an_object_of_its_message() -> None:
    topics = Topics()
    offset = topics.ask_raw({"objects": [{"bucket": "b", "key": key} for key in "abc"]})
    for index, name in enumerate("abc"):
        topics.answer(offset, range(2), 2, name=name, index=index)
    topics.out.extend([topics.out[1], topics.out[4]])
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(7))
    assert "object 1 of offset 0" in found.text


def test_a_repeat_that_leaves_out_rows_of_a_stream() -> None:
    topics = Topics(by_stream=True)
    for stream in ("one", "two", "one"):
        topics.answer(topics.ask(), range(3), 3, stream=stream)
    out = topics.out
    out += [out[2], out[6], out[3]]  # where the order is by stream, each goes on for itself
    assert topics.report().ok
    out += [out[1], out[8]]
    found = only(topics)
    assert (found.kind, place(found)) == ("disorder", at_output(13))
    assert "row 0-1" in found.text


def test_a_repeat_with_another_prediction() -> None:
    topics = sound()
    key, value = topics.out[12]
    assert value is not None
    topics.out.append((key, value.replace(b"2.5", b"2.6")))
    found = only(topics)
    assert (found.kind, place(found)) == ("differs", at_output(15))
    assert "refs/0/2/0/2" in found.text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"a":1}', b'{"b":1}'),
        (b"[1,2]", b"[1]"),
        (b"true", b"1"),
        (b'"1"', b"1"),
        (b"null", b"0"),
        (b"1.0", b"1.1"),
    ],
)
def test_other_answers_are_not_the_same(first: bytes, second: bytes) -> None:
    topics = Topics()
    frame = topics.frame(topics.ask())
    topics.put(frame.last_row(0, first, None, 1), frame.last_row(0, second, None, 1))
    assert only(topics).kind == "differs"


def test_a_repeat_that_was_rejected_for_another_reason() -> None:
    topics = Topics()
    frame = topics.frame(topics.ask())
    for code in ("model_rejected", "unavailable"):
        topics.put(frame.rejected(0, code, "refused", None, 1))
    topics.letter(0, [(0, 1)])
    assert only(topics).kind == "differs"


def test_a_repeat_that_was_rejected_first() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2, rejected=[1])
    topics.letter(0, [(1, 2)])
    topics.answer(0, range(2), 2)
    assert only(topics).kind == "differs"


def test_rows_after_an_object_s_end() -> None:
    topics = sound()
    topics.put(*topics.frame(2).rows(5, [b"1", b"2"], None))
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_end", at_input(2))
    assert "row 5-6 came after its end" in found.text


def test_rows_after_a_marker() -> None:
    topics = Topics()
    topics.mark(topics.ask())
    topics.answer(0, range(2), 2)
    found = only(topics)
    assert found.kind == "bad_end"


def test_a_last_row_that_is_not_the_last() -> None:
    topics = Topics()
    frame = topics.frame(topics.ask())
    topics.put(frame.last_row(0, b"1", None, 3), *frame.rows(1, [b"1", b"1"], None))
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_end", at_output(0))
    assert "with 3 rows it is row 2" in found.text


def test_a_wrong_row_count() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3), 4)
    assert kinds(topics) == {"bad_end": 1, "lost": 1}
    topics = Topics()
    topics.answer(topics.ask(), range(3), 2)
    assert only(topics).kind == "bad_end"


@pytest.mark.parametrize("without", ["last", "rows"])
def test_an_end_needs_both_last_and_rows(without: str) -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3), 3)
    record = orjson.loads(topics.out[2][1] or b"")
    del record[without]
    topics.out[2] = (topics.out[2][0], orjson.dumps(record))
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_end", at_output(2))


def test_a_marker_without_error_after_rows() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3))
    topics.mark(0, 3)
    assert only(topics).kind == "bad_end"


def test_a_missing_marker() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3))
    topics.letter(0, [(3, None)])
    topics.ask()
    topics.letter(1, None)
    topics.ask_raw(b"junk")
    topics.letter(2, None, name=None)
    assert kinds(topics) == {"lost": 3, "stray_dead_letter": 3}


def test_a_missing_dead_letter() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(4), 4, rejected=[1, 2])
    topics.letter(0, [(1, 2)])
    topics.mark(topics.ask("gone"), 0, UNREADABLE, name="gone")
    topics.mark(topics.ask_raw(b"junk"), 0, REFUSED, name=None)
    rejected, gone, junk = topics.report().violations
    assert {rejected.kind, gone.kind, junk.kind} == {"missing_dead_letter"}
    assert [place(one) for one in (rejected, gone, junk)] == [at_input(n) for n in range(3)]
    assert "b/a: row 2 " in rejected.text
    assert "b/gone: all of it" in gone.text


def test_a_dead_letter_that_leaves_out_the_rest() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3))
    topics.mark(0, 3, UNREADABLE)
    topics.letter(0, [(5, None)])
    found = only(topics)
    assert found.kind == "missing_dead_letter"
    assert "row 3-4 " in found.text


def test_a_dead_letter_without_rejection() -> None:
    topics = sound()
    topics.letter(1, [(2, 3)])
    found = only(topics)
    assert (found.kind, place(found)) == ("stray_dead_letter", at_letters(0))
    assert "refs/0/1: row 2 " in found.text


def test_a_dead_letter_about_an_object_that_was_answered_without_markers() -> None:
    topics = sound()
    topics.markers = False
    topics.letter(1, [(2, 3)])
    assert only(topics).kind == "stray_dead_letter"


def test_a_dead_letter_about_what_asks_for_nothing() -> None:
    topics = Topics()
    topics.ask_raw({"Event": "s3:TestEvent"})
    topics.letter(0, None)
    found = only(topics)
    assert (found.kind, place(found)) == ("stray_dead_letter", at_letters(0))


def test_a_dead_letter_whose_reference_asks_for_something_else() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2, rejected=[1])
    topics.letter(0, [(1, 2)])
    letter = orjson.loads(topics.letters[0][0][1] or b"")
    letter["reference"]["rows"] = [[0, 1]]
    topics.letters[0][0] = (None, orjson.dumps(letter))
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_dead_letter", at_letters(0))


def test_a_commit_ahead_of_the_delivery() -> None:
    topics = sound()
    topics.ask()
    topics.ask()
    topics.until = {0: 3}
    for committed in (0, 3):
        topics.committed = {0: committed}
        assert topics.report().ok
    topics.committed = {0: 4}
    found = only(topics)
    assert (found.kind, place(found)) == ("commit_ahead", at_input(3))
    assert "4 is committed" in found.text


def test_a_commit_ahead_of_half_an_object() -> None:
    topics = sound()
    topics.answer(topics.ask(), range(3))
    topics.committed = {0: 4}
    assert kinds(topics) == {"lost": 1, "commit_ahead": 1}


@pytest.mark.parametrize(("row", "missing"), [(4, "row 3,"), (9, "row 3-8,")])
def test_a_cursor_ahead_of_the_delivery(row: int, missing: str) -> None:
    topics = sound()
    topics.answer(topics.ask(), range(3))
    topics.until = {0: 3}
    topics.committed = {0: 3}
    topics.cursors = {0: cursor(0, 3, at=3)}
    assert topics.report().ok
    topics.cursors = {0: cursor(0, row, at=3)}
    found = only(topics)
    assert (found.kind, place(found)) == ("commit_ahead", at_input(3))
    assert f"the cursor covers {missing}" in found.text


def test_a_cursor_into_an_object_without_answers() -> None:
    topics = Topics(until={0: 0}, committed={0: 0}, cursors={0: cursor(0, 1)})
    topics.ask()
    assert kinds(topics) == {"commit_ahead": 1}


def test_a_cursor_covers_only_the_rows_that_are_asked_for() -> None:
    topics = Topics(until={0: 0}, committed={0: 0}, cursors={0: cursor(0, 8)})
    topics.answer(topics.ask(rows=[(2, 4), (7, 9)]), [2, 3, 7])
    assert topics.report().ok
    topics.cursors = {0: cursor(0, 9)}
    assert "row 8," in only(topics).text


def test_a_cursor_behind_an_object_that_is_not_complete() -> None:
    topics = Topics(until={0: 0}, committed={0: 0})
    offset = topics.ask_raw({"objects": [{"bucket": "b", "key": key} for key in "ab"]})
    topics.answer(offset, range(2), name="a", index=0)
    topics.cursors = {0: cursor(0, 2)}
    assert topics.report().ok
    topics.cursors = {0: cursor(1, 0)}
    found = only(topics)
    assert (found.kind, place(found)) == ("commit_ahead", at_input(0))
    assert "behind object 0" in found.text


def test_a_cursor_that_says_too_much_of_what_lies_beyond_the_offset() -> None:
    topics = Topics(by_stream=True, until={0: 0}, committed={0: 0})
    topics.ask()
    topics.answer(topics.ask(), range(5), 5)
    topics.answer(topics.ask(), range(3))
    rows = {(2, 0): Cursor(3, digest("b/a", "1"))}
    topics.cursors = {0: encode(Progress(0, Ranges([(1, 2)]), rows=rows))}
    assert topics.report().ok
    topics.cursors = {0: encode(Progress(0, Ranges([(1, 3)])))}
    found = only(topics)
    assert (found.kind, place(found)) == ("commit_ahead", at_input(2))
    assert "says that this message is answered" in found.text


def test_what_is_no_cursor_is_ahead_of_nothing() -> None:
    topics = Topics(until={0: 0}, committed={0: 0}, cursors={0: "somebody else's"})
    topics.ask()
    assert topics.report().ok


def test_a_record_in_a_foreign_partition() -> None:
    topics = Topics(partitions=2)
    topics.answer(topics.ask(), range(3), 3)
    topics.predictions[1].append(topics.out.pop(1))
    found = only(topics)
    assert (found.kind, found.topic, found.partition) == ("foreign_partition", "predictions", 1)


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
    found = only(topics)
    assert (found.kind, place(found)) == ("stream_changed", at_output(2))
    assert "stream 'cat', rows before of 'cam'" in found.text
    topics.out[2] = (key, changed)
    assert kinds(topics) == {"bad_key": 1, "stream_changed": 1}


def test_a_repeat_of_another_stream() -> None:
    topics = sound()
    value = topics.out[12][1]
    assert value is not None
    topics.out.append((b"cat", value.replace(b'"stream":"cam"', b'"stream":"cat"')))
    found = only(topics)
    assert (found.kind, place(found)) == ("differs", at_output(15))


def test_a_key_that_is_not_the_stream() -> None:
    topics = sound()
    topics.out[3] = (b"another", topics.out[3][1])
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_key", at_output(3))


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
    found = only(topics)
    assert (found.kind, place(found)) == ("not_asked", at_output(2))


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
    assert [one.offset for one in report.violations] == list(range(KEPT_PER_KIND))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ((1, 0, 0), "that is another object"),
        ((2, 0, 2), "that asks for other rows"),
        ((0, 0, 3), "that is not the first row"),
        ((0, 1, 0), "that asks for other rows"),
        ((4, 0, 0), "that is not before it"),
        ((3, 0, None), "that points to another itself"),
    ],
)
def test_a_marker_that_points_to_what_does_not_answer_it(
    first: tuple[int, int, int | None], why: str
) -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.answer(topics.ask("b"), range(5), 5, name="b")
    topics.answer(topics.ask(rows=[(2, 4)]), [2, 3], 5)
    topics.point(topics.ask(), (0, 0, 0))
    topics.point(topics.ask(), first)
    found = only(topics)
    assert (found.kind, place(found)) == ("bad_duplicate", at_output(13))
    assert why in found.text


def test_a_marker_that_points_to_another_version() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.point(topics.ask(), (0, 0, 0), version='"2"')
    assert only(topics).text.endswith("that is another object")


def test_a_marker_that_points_to_a_lost_object() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(4))
    topics.point(topics.ask(), (0, 0, 0))
    assert kinds(topics) == {"lost": 1, "bad_duplicate": 1}


@pytest.mark.parametrize("rows", [0, 3])
def test_a_marker_that_points_to_an_object_that_failed(rows: int) -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(rows))
    topics.mark(0, rows, UNREADABLE)
    topics.letter(0, [(rows, None)] if rows else None, code=UNREADABLE[0])
    assert topics.report().ok
    topics.point(topics.ask(), (0, 0, 0 if rows else None))
    assert only(topics).text.endswith("that failed itself")


def test_a_marker_that_points_nowhere() -> None:
    topics = sound()
    marker = topics.frame(topics.ask()).duplicate(0, 0, 0)
    topics.put(marker.replace(b'"refs/0/0/0/0"', b'"elsewhere/0/0/0/0"'))
    assert only(topics).text.endswith("that is no id of its partition")
