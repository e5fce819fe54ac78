"""Rows of two topics find each other, whatever comes twice, late or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.comparing.comparison import ROW_BYTES, Pairs, RowPlace

MOST = 1 << 20


def at(offset: int, row: int = 0) -> RowPlace:
    return RowPlace(offset, 0, row)


def test_a_row_finds_its_counterpart_whichever_side_comes_first() -> None:
    pairs: Pairs[str] = Pairs(MOST)
    assert pairs.put(0, "s", at(0), "then 0", 0) is None
    assert pairs.put(1, "s", at(0), "now 0", 0) == "then 0"
    assert pairs.put(1, "s", at(1), "now 1", 0) is None
    assert pairs.put(0, "s", at(1), "then 1", 0) == "now 1"
    pairs.end()
    assert (pairs.only, pairs.waiting, pairs.repeated) == ([0, 0], [0, 0], 0)


def test_a_row_that_the_other_side_has_passed_has_no_counterpart() -> None:
    pairs: Pairs[int] = Pairs(MOST)
    for row in range(3):
        pairs.put(0, "s", at(0, row), row, 0)
    assert pairs.put(1, "s", at(0, 2), 9, 0) == 2
    assert (pairs.only, pairs.waiting) == ([2, 0], [0, 0])


def test_repeats_after_a_crash_are_counted_as_repeats() -> None:
    pairs: Pairs[int] = Pairs(MOST)
    for side in (0, 1):
        for row in (0, 1, 2, 1, 2, 3):
            pairs.put(side, "s", at(0, row), row, 0)
    pairs.end()
    assert (pairs.only, pairs.repeated) == ([0, 0], 4)


def test_streams_do_not_wait_for_each_other() -> None:
    pairs: Pairs[int] = Pairs(MOST)
    pairs.put(0, "slow", at(0), 0, 0)
    assert pairs.put(0, "fast", at(5), 5, 0) is None
    assert pairs.put(1, "fast", at(5), 5, 0) == 5
    assert pairs.put(1, "slow", at(0), 0, 0) == 0


def test_waiting_rows_are_bounded_and_dropped_rows_are_counted() -> None:
    pairs: Pairs[int] = Pairs(10 * ROW_BYTES)
    for row in range(11):
        pairs.put(0, "s", at(0, row), row, 0)
    assert pairs.waiting == [0, 0]
    found = [pairs.put(1, "s", at(0, row), row, 0) for row in range(11)]
    pairs.end()
    assert found == [None] * 11
    assert (pairs.unseen, pairs.only) == (22, [0, 0])


_rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), unique=True)


@given(_rows, _rows, st.randoms(use_true_random=False))
def test_every_row_of_both_sides_is_found_whatever_the_reading_order(
    then: list[tuple[str, int]], now: list[tuple[str, int]], luck: object
) -> None:
    queues = [sorted(then, key=lambda one: one[1]), sorted(now, key=lambda one: one[1])]
    pairs: Pairs[int] = Pairs(MOST)
    found = 0
    while any(queues):
        side = luck.randrange(2)  # type: ignore[attr-defined]
        if queues[side]:
            stream, row = queues[side].pop(0)
            found += pairs.put(side, stream, at(0, row), row, 0) is not None
    pairs.end()
    both = len(set(then) & set(now))
    assert (found, pairs.only) == (both, [len(then) - both, len(now) - both])
    assert pairs.repeated == 0
