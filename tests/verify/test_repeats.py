"""A repeat that says something else than the first answer."""

import pytest

from tests.verify.planted import at_output, only, place, sound
from tests.verify.topics import Topics


def test_a_repeat_with_another_prediction() -> None:
    topics = sound()
    key, value = topics.out[12]
    assert value is not None
    topics.out.append((key, value.replace(b"2.5", b"2.6")))
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("differs", at_output(15))
    assert "refs/0/2/0/2" in violation.text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"a":1}', b'{"b":1}'),
        (b"[1,2]", b"[1]"),
        (b"true", b"1"),
        (b'"1"', b"1"),
        (b"false", b"0"),
        (b"1.0", b"1.1"),
        (b"1e999", b"1e998"),
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
        topics.put(*frame.rejected(0, 1, code, "refused", None, 1))
    topics.letter(0, [(0, 1)])
    assert only(topics).kind == "differs"


def test_a_repeat_that_was_rejected_first() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2, rejected=[1])
    topics.letter(0, [(1, 2)])
    topics.answer(0, range(2), 2)
    assert only(topics).kind == "differs"
