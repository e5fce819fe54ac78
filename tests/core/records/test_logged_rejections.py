"""Of rejections the log tells the first ones and how many more there were."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.records.failed_rows import (
    MOST_AGAIN,
    MOST_FIRST,
    MOST_PAIRS,
    Again,
    LoggedRejections,
)


def test_the_first_of_each_kind_is_told_and_the_others_are_counted() -> None:
    logged = LoggedRejections()
    assert logged.first("a", "bad_row", 1)
    assert not logged.first("a", "bad_row", 500)
    assert logged.first("a", "not_found", 1)
    assert logged.first("b", "bad_row", 1)
    assert not logged.first("b", "bad_row", 2)
    assert logged.round_over() == [Again(("a", "bad_row"), 500), Again(("b", "bad_row"), 2)]
    assert logged.round_over() == []
    assert not logged.first("a", "bad_row", 1)
    assert logged.round_over() == [Again(("a", "bad_row"), 1)]


def test_many_kinds_at_once_are_told_little_by_little_and_counted_together() -> None:
    logged = LoggedRejections()
    told = 0
    for _ in range(3):
        firsts = sum(logged.first(f"stream {number}", "bad_row", 1) for number in range(1_000))
        assert firsts == MOST_FIRST
        again = logged.round_over()
        told += firsts
        assert len(again) <= MOST_AGAIN + 1
        assert sum(one.rejected for one in again) == 1_000 - firsts


def test_a_kind_that_was_quiet_is_forgotten_when_there_is_no_room() -> None:
    logged = LoggedRejections()
    for number in range(MOST_PAIRS):
        logged.first(f"old {number}", "bad_row", 1)
        if number % MOST_FIRST == MOST_FIRST - 1:
            logged.round_over()
    logged.first("old 0", "bad_row", 7)
    assert not logged.first("new", "bad_row", 1)
    assert logged.round_over() == [Again(("old 0", "bad_row"), 7), Again(None, 1)]
    assert logged.first("new", "bad_row", 1)
    assert not logged.first("old 0", "bad_row", 1)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 9)), max_size=600))
def test_every_rejection_is_told_or_counted(rejected: list[tuple[int, int]]) -> None:
    logged = LoggedRejections()
    told = counted = 0
    for turn, (stream, count) in enumerate(rejected):
        told += count if logged.first(f"stream {stream}", "bad_row", count) else 0
        if turn % 100 == 99:
            counted += sum(one.rejected for one in logged.round_over())
    counted += sum(one.rejected for one in logged.round_over())
    assert told + counted == sum(count for _, count in rejected)
