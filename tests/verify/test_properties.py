"""The judge against the plain definition, on thousands of small deliveries; and what it keeps."""

import gc
from collections.abc import Iterator
from types import FunctionType, ModuleType

from hypothesis import given
from hypothesis import strategies as st

from penstock.messages.prediction import RecordFrame
from tests.support.examples import examples
from tests.verify.topics import STREAM, Topics, feed

ROWS = (3, 1, 2, 3)
SEQUENCE = [(offset, row) for offset, rows in enumerate(ROWS) for row in range(rows)]

crashes = st.lists(
    st.tuples(st.integers(0, len(SEQUENCE)), st.integers(0, len(SEQUENCE))), max_size=4
)
deliveries = st.lists(st.sampled_from(SEQUENCE), max_size=14)


def deliver(places: list[tuple[int, int]]) -> Topics:
    topics = Topics()
    for _ in ROWS:
        topics.ask()
    for offset, row in places:
        topics.answer(offset, [row], ROWS[offset] if row == ROWS[offset] - 1 else None)
    return topics


def with_crashes(stops: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each run goes on up to its `stop`; the next one begins where it committed, at most there. The
    last one runs to the end.
    """
    delivered: list[tuple[int, int]] = []
    start = 0
    for stop, committed in stops:
        reached = max(start, stop)
        delivered += SEQUENCE[start:reached]
        start = min(committed, reached)
    return delivered + SEQUENCE[start:]


@given(crashes)
def test_crashes_and_returns_are_never_a_violation(stops: list[tuple[int, int]]) -> None:
    places = with_crashes(stops)
    report = deliver(places).report()
    assert report.violations == ()
    assert report.rows == len(SEQUENCE)
    assert report.duplicates == len(places) - len(SEQUENCE)


@given(deliveries)
def test_a_delivery_is_clean_only_if_its_first_occurrences_are_the_sequence(
    places: list[tuple[int, int]],
) -> None:
    first = list(dict.fromkeys(places))
    violated = deliver(places).report().violated
    assert ("lost" in violated) == (set(first) != set(SEQUENCE))
    if first != sorted(first):
        assert "disorder" in violated
    if not violated:
        assert first == SEQUENCE


@examples(3)
@given(
    st.lists(
        st.tuples(st.sampled_from(["drop", "swap", "insert"]), *[st.integers(0, 8)] * 2),
        min_size=1,
        max_size=2,
    )
)
def test_whatever_is_done_to_a_clean_delivery_is_found(changes: list[tuple[str, int, int]]) -> None:
    places = list(SEQUENCE)
    for change, *numbers in changes:
        one, other = (number % len(places) for number in numbers)
        if change == "drop":
            del places[one]
        elif change == "swap":
            places[one], places[other] = places[other], places[one]
        else:
            places.insert(one, places[other])
    is_sound = list(dict.fromkeys(places)) == SEQUENCE
    violated = deliver(places).report().violated
    assert is_sound or violated
    assert violated.keys() <= {"lost", "disorder"}
    if is_sound:  # a repeat of its own making may still leave out a row
        assert violated.keys() <= {"disorder"}


ROWS_EACH = 33_334


def many_rows(frame: RecordFrame) -> Iterator[bytes]:
    for first in range(0, ROWS_EACH - 1, 1000):
        yield from frame.rows(first, [b"1"] * min(1000, ROWS_EACH - 1 - first), None)
    yield frame.last_row(ROWS_EACH - 1, b"1", None, ROWS_EACH)


def references_held(root: object) -> int:
    """By everything that can be reached from it, but no code."""
    count = 0
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen[id(one)] = one
            referents = gc.get_referents(one)
            count += len(referents)
            waiting += referents
    return count


def test_a_hundred_thousand_rows_of_three_objects_leave_nothing_but_a_range() -> None:
    topics = Topics()
    for _ in range(3):
        topics.ask()
    judge = topics.fed_with_references()
    number, held = 0, []
    for offset in range(3):
        for value in many_rows(topics.frame(offset)):
            judge.answer(0, number, STREAM.encode(), value)
            number += 1
            if number % 10_000 == 0:
                held.append(references_held(judge))
    assert max(held) - min(held) < 10
    report = judge.report()
    assert (report.rows, report.ok) == (3 * ROWS_EACH, True)


def test_of_what_was_delivered_twice_only_the_last_repeats_are_kept() -> None:
    """Ten crashes, each of which repeats 1,000 rows, cost no more than one."""
    topics = Topics()
    frame = topics.frame(topics.ask())
    rows = frame.rows(0, [b'{"score":%d}' % row for row in range(10_000)], None)
    topics.put(*(value for first in range(0, 10_000, 1_000) for value in rows[first:][:1_000] * 2))
    judge = topics.fed_with_references()
    feed(judge.answer, topics.predictions)
    held = [references_held(judge)]
    for number, (key, value) in enumerate(topics.out, start=1):
        judge.compare(0, number, key, value)
        if number % 1_000 == 0:
            held.append(references_held(judge))
    within, after = held[1::2], held[2::2]
    # A row's place and what it said are about ten references.
    assert max(within) - held[0] < 15_000
    assert max(after) - held[0] < 100
    assert judge.report().duplicates == 10_000


def test_rows_that_come_three_times_are_all_compared() -> None:
    topics = Topics()
    topics.answer(topics.ask(), range(3), 3)
    topics.out.extend(topics.out * 2)
    key, value = topics.out[-2]
    topics.out[-2] = (key, (value or b"").replace(b"1.5", b"1.6"))
    assert topics.report().violated == {"differs": 1}


def test_ten_thousand_answered_objects_leave_one_range() -> None:
    topics = Topics()
    for offset in range(10_000):
        topics.ask()
        topics.answer(offset, [0], 1)
    nothing = references_held(Topics().judge())
    judge = topics.judge()
    assert references_held(judge) - nothing < 40
    assert judge.report().ok
