"""A committed offset or a cursor that is ahead of what was delivered."""

import pytest

from penstock.core.progress.cursor import PartitionProgress, encode
from penstock.core.rows.origin import Cursor, Ranges, digest
from tests.verify.planted import at_input, cursor, kinds, only, place, sound
from tests.verify.topics import Topics


def test_a_commit_ahead_of_the_delivery() -> None:
    topics = sound()
    topics.ask()
    topics.ask()
    topics.until = {0: 3}
    for committed in (0, 3):
        topics.committed = {0: committed}
        assert topics.report().ok
    topics.committed = {0: 4}
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("commit_ahead", at_input(3))
    assert "4 is committed" in violation.text


def test_a_commit_ahead_of_half_an_object() -> None:
    topics = sound()
    topics.answer(topics.ask(), range(3))
    topics.committed = {0: 4}
    assert kinds(topics) == {"lost": 1, "commit_ahead": 1}


def test_what_may_be_answered_yet_is_said_to_be_no_proof_of_a_loss() -> None:
    topics = sound()
    topics.ask()
    topics.ask()
    topics.committed = {0: 3}
    text = topics.report().sentence()
    assert "VIOLATED: 2 lost. Of 2 the message is not committed" in text
    assert "--until committed" in text


@pytest.mark.parametrize(("row", "missing"), [(4, "row 3,"), (9, "row 3-8,")])
def test_a_cursor_ahead_of_the_delivery(row: int, missing: str) -> None:
    topics = sound()
    topics.answer(topics.ask(), range(3))
    topics.until = {0: 3}
    topics.committed = {0: 3}
    topics.cursors = {0: cursor(0, 3, at=3)}
    assert topics.report().ok
    topics.cursors = {0: cursor(0, row, at=3)}
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("commit_ahead", at_input(3))
    assert f"the cursor covers {missing}" in violation.text


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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("commit_ahead", at_input(0))
    assert "behind object 0" in violation.text


def test_a_cursor_that_says_too_much_of_what_lies_beyond_the_offset() -> None:
    topics = Topics(by_stream=True, until={0: 0}, committed={0: 0})
    topics.ask()
    topics.answer(topics.ask(), range(5), 5)
    topics.answer(topics.ask(), range(3))
    rows = {(2, 0): Cursor(3, digest("b/a", "1"))}
    topics.cursors = {0: encode(PartitionProgress(0, Ranges([(1, 2)]), rows=rows))}
    assert topics.report().ok
    topics.cursors = {0: encode(PartitionProgress(0, Ranges([(1, 3)])))}
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("commit_ahead", at_input(2))
    assert "says that this message is answered" in violation.text


def test_what_is_no_cursor_is_ahead_of_nothing() -> None:
    topics = Topics(until={0: 0}, committed={0: 0}, cursors={0: "somebody else's"})
    topics.ask()
    assert topics.report().ok
