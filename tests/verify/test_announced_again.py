"""Markers that point to the object that was answered before."""

import pytest

from tests.verify.planted import at_output, kinds, only, place, sound
from tests.verify.topics import UNREADABLE, Topics


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ((1, 0, 0), "which is another object"),
        ((2, 0, 2), "which asks for other rows"),
        ((0, 0, 3), "which is not the first row of its object"),
        ((0, 1, 0), "which asks for other rows"),
        ((4, 0, 0), "which is not an earlier object"),
        ((3, 0, None), "which is such a marker itself"),
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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_duplicate", at_output(13))
    assert why in violation.text


def test_a_marker_that_points_to_another_version() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(5), 5)
    topics.point(topics.ask(), (0, 0, 0), version='"2"')
    assert only(topics).text.endswith("which is another object")


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
    assert only(topics).text.endswith("which failed")


def test_a_marker_that_points_nowhere() -> None:
    topics = sound()
    marker = topics.frame(topics.ask()).duplicate(0, 0, 0)
    topics.put(marker.replace(b'"refs/0/0/0/0"', b'"elsewhere/0/0/0/0"'))
    assert only(topics).text.endswith("which is no id of its partition")
