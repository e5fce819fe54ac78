"""Rows, tails, objects and references that are missing are named at their place."""

import pytest

from tests.verify.planted import at_input, at_output, kinds, only, place, sound
from tests.verify.topics import Topics


@pytest.mark.parametrize("row", [0, 1, 3])
def test_a_lost_row(row: int) -> None:
    topics = sound()
    del topics.out[5 + row]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("lost", at_input(1))
    assert f"row {row} of 5 is missing" in violation.text


@pytest.mark.parametrize("tail", [1, 2, 4])
def test_a_lost_tail(tail: int) -> None:
    topics = sound()
    del topics.out[10 - tail : 10]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("lost", at_input(1))
    assert f"everything after row {4 - tail} is missing" in violation.text


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_lost_reference(offset: int) -> None:
    topics = sound()
    del topics.out[5 * offset : 5 * offset + 5]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("lost", at_input(offset))


def test_a_row_that_came_twice_where_once_is_promised() -> None:
    topics = sound()
    topics.out.extend(topics.out[-2:])
    assert topics.report().ok
    topics.exactly_once = True
    report = topics.report()
    assert report.violated == {"repeated": 2}
    assert [place(violation) for violation in report.violations] == [at_output(15), at_output(16)]
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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("lost", at_input(0))
    assert "object 1 " in violation.text


def test_lost_rows_of_a_selection() -> None:
    topics = Topics()
    topics.answer(topics.ask(rows=[(2, 5), (7, None)]), [2, 4, 7, 9], 10)
    violation = only(topics)
    assert violation.kind == "lost"
    assert "row 3, 8 of 10 is missing" in violation.text


def test_a_lost_inline_row() -> None:
    topics = Topics()
    topics.answer(topics.ask_raw({"inline": [[1], [2], [3]]}), range(2), 2, name=None)
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_end", at_output(1))
    assert "2 rows, but the message has 3" in violation.text


def test_a_loss_is_told_without_markers_too() -> None:
    topics = Topics(markers=False)
    topics.answer(topics.ask(), range(3))  # neither its end nor a letter
    topics.answer(topics.ask(), range(5))
    del topics.out[-2]  # a hole before the rows its letter asks for
    topics.letter(1, [(5, None)])
    assert kinds(topics) == {"lost": 2}
