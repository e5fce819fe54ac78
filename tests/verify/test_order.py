"""What comes out of order, and repeats that leave something out."""

import pytest

from tests.verify.planted import at_output, kinds, only, place, sound
from tests.verify.topics import UNREADABLE, Topics


def test_swapped_rows() -> None:
    topics = sound()
    topics.out[6], topics.out[7] = topics.out[7], topics.out[6]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(7))
    assert "row 1 of object 0 of offset 1 comes after row 2" in violation.text


def test_a_last_row_that_comes_early() -> None:
    topics = sound()
    topics.out[8], topics.out[9] = topics.out[9], topics.out[8]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(9))


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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(16))
    assert "leaves out row 1" in violation.text


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
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(at))
    assert violation.text.endswith(f"leaves out {left_out}")


def test_a_repeat_that_leaves_out_an_object_of_its_message() -> None:
    topics = Topics()
    offset = topics.ask_raw({"objects": [{"bucket": "b", "key": key} for key in "abc"]})
    for index, name in enumerate("abc"):
        topics.answer(offset, range(2), 2, name=name, index=index)
    topics.out.extend([topics.out[1], topics.out[4]])
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(7))
    assert "object 1 of offset 0" in violation.text


def test_a_repeat_that_leaves_out_rows_of_a_stream() -> None:
    topics = Topics(by_stream=True)
    for stream in ("one", "two", "one"):
        topics.answer(topics.ask(stream=stream), range(3), 3, stream=stream)
    out = topics.out
    out += [out[2], out[6], out[3]]  # where the order is by stream, each goes on for itself
    assert topics.report().ok
    out += [out[1], out[8]]
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("disorder", at_output(13))
    assert "row 0-1" in violation.text
