"""Dead letters that are missing, too many, or about something else."""

import orjson

from tests.verify.planted import at_input, at_letters, only, place, sound
from tests.verify.topics import REFUSED, UNREADABLE, Topics


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
    violation = only(topics)
    assert violation.kind == "missing_dead_letter"
    assert "row 3-4 " in violation.text


def test_a_dead_letter_without_rejection() -> None:
    topics = sound()
    topics.letter(1, [(2, 3)])
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("stray_dead_letter", at_letters(0))
    assert "refs/0/1: row 2 " in violation.text


def test_a_dead_letter_about_an_object_that_was_answered_without_markers() -> None:
    topics = sound()
    topics.markers = False
    topics.letter(1, [(2, 3)])
    assert only(topics).kind == "stray_dead_letter"


def test_a_dead_letter_about_what_asks_for_nothing() -> None:
    topics = Topics()
    topics.ask_raw({"Event": "s3:TestEvent"})
    topics.letter(0, None)
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("stray_dead_letter", at_letters(0))


def test_a_dead_letter_whose_reference_asks_for_something_else() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(2), 2, rejected=[1])
    topics.letter(0, [(1, 2)])
    letter = orjson.loads(topics.letters[0][0][1] or b"")
    letter["reference"]["rows"] = [[0, 1]]
    topics.letters[0][0] = (None, orjson.dumps(letter))
    violation = only(topics)
    assert (violation.kind, place(violation)) == ("bad_dead_letter", at_letters(0))
