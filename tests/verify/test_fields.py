"""Each field of a record and of a letter is held against what was asked: lies that are planted into
sound topics, one at a time, and found.
"""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.verify.topics import REFUSED, STREAM, UNREADABLE, Topics

Lie = Callable[[Topics], None]
ROWS = 20
TIME_MS = 1_795_208_217_412
# Of the second object that is asked for: its sixth row was refused.
OFFSET, ROW, BAD_ROW = 1, 7, 5
ASKED: dict[str, Any] = {"event_time": TIME_MS, "attributes": {"line": "A", "deep": {"n": 1.0}}}


@pytest.fixture
def topics() -> Topics:
    """Three objects of 20 rows, one without rows, one that is missing, inline rows, and what is no
    reference; each row and each letter once.
    """
    found = Topics(exactly_once=True)
    for name in "abc":
        offset = found.ask(name, **ASKED)
        found.answer(offset, range(ROWS), ROWS, name=name, rejected=[BAD_ROW], **ASKED)
        found.letter(offset, [(BAD_ROW, BAD_ROW + 1)], name=name, event_time=TIME_MS)
        letter = orjson.loads(found.letters[0][-1][1] or b"")
        letter["reference"] |= {**ASKED, "rows": [[BAD_ROW, BAD_ROW + 1]]}
        found.letters[0][-1] = (None, orjson.dumps(letter))
    found.mark(found.ask("empty"), name="empty")
    found.mark(found.ask("gone"), 0, UNREADABLE, name="gone")
    found.letter(4, None, name="gone")
    found.answer(found.ask_raw({"inline": [[1], [2], [3]]}), range(3), 3, name=None)
    found.mark(found.ask_raw(b"junk"), 0, REFUSED, name=None)
    found.letter(6, None, name=None, code=REFUSED[0])
    assert found.report().violations == ()
    return found


def record_of(row: int | None, offset: int = OFFSET) -> Callable[[Topics], int]:
    def find(topics: Topics) -> int:
        records = [orjson.loads(value or b"") for _, value in topics.out]
        return next(
            number
            for number, record in enumerate(records)
            if (record["source"]["offset"], record["row"]) == (offset, row)
        )

    return find


def say(row: int | None = ROW, offset: int = OFFSET, **changes: Any) -> Lie:
    """One record says something else."""

    def lie(topics: Topics) -> None:
        number = record_of(row, offset)(topics)
        key, value = topics.out[number]
        record = orjson.loads(value or b"")
        topics.out[number] = (key, orjson.dumps(merged(record, changes)))

    return lie


def say_all(rows: range, **changes: Any) -> Lie:
    """These records of an object do; a stream is the key, too."""

    def lie(topics: Topics) -> None:
        for row in rows:
            say(row, **changes)(topics)
            if "stream" in changes:
                number = record_of(row)(topics)
                topics.out[number] = (changes["stream"].encode(), topics.out[number][1])

    return lie


def letter(**changes: Any) -> Lie:
    """The letter about the refused row does."""

    def lie(topics: Topics) -> None:
        document = orjson.loads(topics.letters[0][OFFSET][1] or b"")
        topics.letters[0][OFFSET] = (None, orjson.dumps(merged(document, changes)))

    return lie


def merged(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = document | changes
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(document.get(name), dict):
            found[name] = document[name] | value
    return found


def drop(row: int | None, offset: int = OFFSET) -> Lie:
    def lie(topics: Topics) -> None:
        del topics.out[record_of(row, offset)(topics)]

    return lie


def twice(topics: Topics) -> None:
    number = record_of(ROW)(topics)
    topics.out.insert(number, topics.out[number])


def swapped(topics: Topics) -> None:
    number = record_of(ROW)(topics)
    topics.out[number : number + 2] = topics.out[number : number + 2][::-1]


def without_object(topics: Topics) -> None:
    first = record_of(0)(topics)
    del topics.out[first : first + ROWS]


def without_letter(topics: Topics) -> None:
    del topics.letters[0][OFFSET]


def letter_twice(topics: Topics) -> None:
    topics.letters[0].append(topics.letters[0][OFFSET])


def letters_twice(topics: Topics) -> None:
    topics.letters[0] *= 2


LIES: dict[str, tuple[Lie, set[str]]] = {
    "a row is lost": (drop(ROW), {"lost"}),
    "the last row is lost": (drop(ROWS - 1), {"lost"}),
    "an object is lost": (without_object, {"lost", "stray_dead_letter"}),
    "a marker is lost": (drop(None, 3), {"lost"}),
    "the marker of no reference is lost": (drop(None, 6), {"lost", "stray_dead_letter"}),
    "a letter is lost": (without_letter, {"missing_dead_letter"}),
    "two rows are swapped": (swapped, {"disorder"}),
    "a row comes twice": (twice, {"repeated"}),
    "a letter comes twice": (letter_twice, {"repeated"}),
    "all letters come twice": (letters_twice, {"repeated"}),
    "another row": (say(row=ROW, id="refs/0/1/0/9"), {"bad_id", "lost"}),
    "another object": (say(object={"key": "x"}), {"wrong_field"}),
    "all rows of another object": (say_all(range(ROWS), object={"key": "x"}), {"wrong_field"}),
    "another store": (say(object={"store": "x"}), {"wrong_field"}),
    "no object": (say(object=None), {"wrong_field"}),
    "an object of inline rows": (say(1, 5, object={"bucket": "b", "key": "a", "version": None}),
                                 {"wrong_field"}),
    "two versions of one object": (say_all(range(9, ROWS), object={"version": '"2"'}),
                                   {"wrong_field"}),
    "another stream": (say_all(range(ROWS), stream="x"), {"wrong_field"}),
    "another time": (say(event_time=5), {"wrong_field"}),
    "a time as text": (say(event_time="2026-11-20"), {"wrong_field"}),
    "no time": (say(event_time=None), {"wrong_field"}),
    "other attributes": (say(attributes={"line": "B"}), {"wrong_field"}),
    "another model": (say(model="x"), {"wrong_field"}),
    "another model from the first row on": (say(0, model="x"), {"wrong_field"}),
    "no prediction and no error": (say(prediction=None), {"wrong_field"}),
    "a prediction and an error": (say(BAD_ROW, prediction=1), {"wrong_field"}),
    "a prediction in a marker": (say(None, 3, prediction=1), {"wrong_field"}),
    "another code in the letter": (letter(code="too_large"), {"bad_dead_letter"}),
    "another model in the letter": (letter(model="x"), {"bad_dead_letter"}),
    "another stream in the letter": (letter(stream="x"), {"wrong_field"}),
    "another time in the letter": (letter(event_time=5), {"wrong_field"}),
    "another object in the letter": (letter(object={"key": "x"}, reference={"key": "x"}),
                                     {"wrong_field"}),
    "another of the message's objects": (letter(object_index=1),
                                         {"stray_dead_letter", "missing_dead_letter"}),
    "other attributes in the letter": (letter(reference={"attributes": {}}), {"wrong_field"}),
}  # fmt: skip


@pytest.mark.parametrize(("lie", "kinds"), LIES.values(), ids=LIES)
def test_a_lie_is_found(topics: Topics, lie: Lie, kinds: set[str]) -> None:
    lie(topics)
    assert set(topics.report().violated) == kinds


def test_a_row_in_the_place_of_another_partition_is_found(topics: Topics) -> None:
    topics.predictions[1] = [topics.out.pop(record_of(ROW)(topics))]
    assert set(topics.report().violated) == {"foreign_partition"}


def lies_that_no_topic_can_tell() -> dict[str, Lie]:
    def swap_predictions(topics: Topics) -> None:
        for row, other in ((ROW, ROW + 1), (ROW + 1, ROW)):
            say(row, prediction={"score": other + 0.5})(topics)

    def cut_short(topics: Topics) -> None:
        say(ROW, last=True, rows=ROW + 1)(topics)
        for row in range(ROW + 1, ROWS):
            drop(row)(topics)

    def answer_empty(topics: Topics) -> None:
        first = record_of(0, 2)(topics)
        topics.out[first : first + ROWS] = []
        del topics.letters[0][2]
        marker = topics.frame(2, "c", **ASKED).marker(0, None)
        topics.out.insert(first, (STREAM.encode(), marker))

    return {"predictions": swap_predictions, "rows": cut_short, "no rows": answer_empty}


@pytest.mark.parametrize("name", lies_that_no_topic_can_tell())
def test_what_the_model_said_and_how_many_rows_an_object_has_no_topic_can_tell(
    topics: Topics, name: str
) -> None:
    """As the documents say."""
    lies_that_no_topic_can_tell()[name](topics)
    assert topics.report().ok


def test_frames_have_the_time_of_their_object_and_what_passed_since() -> None:
    topics = Topics()
    offset = topics.ask(event_time=TIME_MS)
    topics.answer(offset, range(3), 3, event_time=TIME_MS)
    for row in range(3):
        say(row, offset, event_time=TIME_MS + 40 * row)(topics)
    assert topics.report().ok
    say(1, offset, event_time=TIME_MS - 1)(topics)
    assert topics.report().violated == {"wrong_field": 1}


def test_a_run_that_begins_at_the_first_row_may_be_of_another_version() -> None:
    """The object was written again, and the cursor is bound to the former one."""
    topics = Topics()
    offset = topics.ask()
    topics.answer(offset, range(3))
    topics.answer(offset, range(5), 5, version='"2"')
    assert topics.report().ok
    topics.answer(offset, range(3, 5), 5, version='"3"')
    assert topics.report().ok, "of what is complete only the content is compared"
