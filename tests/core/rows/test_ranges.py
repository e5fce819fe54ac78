"""Ranges behave as the sets of numbers they stand for."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows.origin import END, Ranges

pairs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda one: (one[0], sum(one)))
)


def numbers(ranges: Ranges) -> set[int]:
    return {number for start, stop in ranges for number in range(start, stop)}


def as_set(several: list[tuple[int, int]]) -> set[int]:
    return {number for start, stop in several for number in range(start, stop)}


@given(pairs)
def test_adding_in_any_order_gives_the_union_in_few_ranges(several: list[tuple[int, int]]) -> None:
    ranges = Ranges(several)
    assert numbers(ranges) == as_set(several)
    assert all(stop < start for stop, start in zip(ranges.stops, ranges.starts[1:], strict=False))
    assert {number for number in range(50) if number in ranges} == as_set(several)
    assert bool(ranges) == bool(several)


@given(pairs, pairs)
def test_minus_leaves_the_numbers_that_are_not_in_the_other_set(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    assert numbers(Ranges(one).minus(Ranges(other))) == as_set(one) - as_set(other)


@given(pairs, st.integers(0, 40), st.integers(0, 40))
def test_a_part_lies_within(several: list[tuple[int, int]], start: int, stop: int) -> None:
    assert numbers(Ranges(several).within(start, stop)) == as_set(several) & set(range(start, stop))


def test_ranges_read_like_a_person_says_them() -> None:
    assert str(Ranges([(5, 8), (12, 13), (20, END)])) == "5-7, 12, 20 to the end"
    assert str(Ranges((n, n + 1) for n in range(0, 10, 2))) == "0, 2, 4 and 2 more ranges"
