"""Ends of objects: what comes after them, before them, or in their stead."""

import orjson
import pytest

from tests.verify.planted import at_input, at_output, kinds, only, place, sound
from tests.verify.topics import Topics


def test_rows_after_an_object_s_end() -> None:
    topics = sound()
    topics.put(*topics.frame(2).rows(5, [b"1", b"2"], None))
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_end", at_input(2))
    assert "row 5-6 came after its end" in violation.text


def test_rows_after_a_marker() -> None:
    topics = Topics()
    topics.mark(topics.ask())
    topics.answer(0, range(2), 2)
    violation = only(topics)
    assert violation.kind == "bad_end"


def test_a_last_row_that_is_not_the_last() -> None:
    topics = Topics()
    frame = topics.frame(topics.ask())
    topics.put(frame.last_row(0, b"1", None, 3), *frame.rows(1, [b"1", b"1"], None))
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_end", at_output(0))
    assert "with 3 rows it is row 2" in violation.text


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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_end", at_output(2))


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
