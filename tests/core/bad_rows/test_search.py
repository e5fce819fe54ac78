"""How many requests it takes to find the rows that a model refuses."""

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bad_rows.search import Search, fitting
from penstock.core.bad_rows.suspicions import Suspicions
from penstock.core.bad_rows.verdicts import ANSWERED, Kind, Outcome
from penstock.core.rows.blocks import Block, leading
from penstock.core.rows.payload import JsonRows
from penstock.errors import Poison, Rejected, Transient, WorkerDied
from tests.core.builders import StubLane, block, ticket

Row = tuple[int, int]
BAD = Outcome(Kind.REFUSED, Rejected("model_rejected", "bad"))
NOTHING = Outcome(Kind.NOTHING, Transient("502"))
TOO_MANY = Outcome(Kind.TOO_MANY, Poison("too_large", "413"))


def died(after_s: float) -> Outcome:
    return Outcome(Kind.DIED, WorkerDied("gone"), after_s=after_s)


def rows_in(blocks: list[Block]) -> list[Row]:
    """(record offset, row) of every row."""
    return [
        (one.ticket.record.offset, one.first_row + index)
        for one in blocks
        for index in range(one.rows)
    ]


def search_of(blocks: list[Block]) -> Search:
    return Search(blocks, 512, 1 << 20, Suspicions())


class Found:
    """What a search came to, and how many requests it took."""

    def __init__(self) -> None:
        self.answered: list[Row] = []
        self.rejected: list[Row] = []
        self.attempts: list[int] = []
        self.requests = 0


def search_to_the_end(search: Search, is_bad: Callable[[Row], bool]) -> Found:
    found = Found()
    while part := search.ask():
        found.requests += 1
        rows = rows_in(part)
        if not any(map(is_bad, rows)):
            search.settle(ANSWERED)
            found.answered += rows
        else:
            for one in search.settle(BAD):
                assert one.rejection is not None
                found.rejected += rows_in([one])
                found.attempts.append(one.rejection.attempts)
    assert search.is_settled
    return found


def numbered(sizes: list[int]) -> list[Block]:
    return [block(ticket(offset=number), rows) for number, rows in enumerate(sizes)]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.sets(st.integers(0, sum(sizes) - 1)))
    )
)
def test_exactly_the_bad_rows_are_found_and_all_others_answered_once(
    case: tuple[list[int], set[int]],
) -> None:
    sizes, bad_numbers = case
    blocks = numbered(sizes)
    rows = rows_in(blocks)
    bad = {rows[number] for number in bad_numbers}
    outcome = search_to_the_end(search_of(blocks), bad.__contains__)
    assert set(outcome.rejected) == bad
    assert sorted(outcome.answered + outcome.rejected) == rows


@pytest.mark.parametrize("bad", [0, 1, 137, 255, 256, 510, 511])
def test_one_bad_row_among_512_costs_at_most_11_extra_requests(bad: int) -> None:
    outcome = search_to_the_end(search_of([block(ticket(), 512)]), lambda row: row[1] == bad)
    assert outcome.rejected == [(0, bad)]
    assert outcome.requests - 1 <= math.log2(512) + 2


@given(st.sets(st.integers(0, 511), min_size=1, max_size=512))
def test_a_bad_row_never_costs_more_than_15_extra_requests(bad: set[int]) -> None:
    outcome = search_to_the_end(search_of([block(ticket(), 512)]), lambda row: row[1] in bad)
    assert outcome.requests - 1 <= 15 * len(bad)


def test_where_every_row_is_bad_each_costs_little_more_than_one_request() -> None:
    outcome = search_to_the_end(search_of([block(ticket(), 512)]), lambda _: True)
    assert len(outcome.rejected) == 512
    assert outcome.requests < 600


def test_a_batch_that_is_answered_costs_one_request() -> None:
    assert search_to_the_end(search_of(numbered([3, 4])), lambda _: False).requests == 1


def test_small_objects_that_were_refused_with_a_file_are_asked_first_and_together() -> None:
    file, *ticks = numbered([400, 8, 8, 8])
    search = search_of([file, *ticks])
    search.ask()
    search.settle(BAD)
    assert search.clears_small
    assert search.ask() == ticks
    search.settle(ANSWERED)
    assert not search.clears_small
    assert search.sole_ticket is file.ticket


def test_objects_of_like_size_are_cut_near_the_middle() -> None:
    search = search_of(numbered([8] * 8))
    search.ask()
    search.settle(BAD)
    assert not search.clears_small
    assert len(search.ask()) == 4


def test_a_bad_row_knows_how_often_it_was_refused() -> None:
    outcome = search_to_the_end(search_of([block(ticket(), 8)]), lambda row: row[1] == 0)
    assert outcome.attempts == [4]


def test_rows_without_an_outcome_are_asked_again() -> None:
    search = search_of(numbered([4, 4]))
    for _ in range(3):
        assert len(rows_in(search.ask())) == 8
        search.settle(NOTHING)
    search.ask()
    search.settle(BAD)
    halves = []
    for _ in range(3):
        halves.append(rows_in(search.ask()))
        search.settle(NOTHING)
    assert halves == [[(0, row) for row in range(4)]] * 3


def test_a_probe_asks_a_few_rows_and_the_rest_follows_at_once() -> None:
    search = search_of(numbered([10, 10]))
    assert len(rows_in(search.ask(3))) == 3
    search.settle(ANSWERED)
    assert len(rows_in(search.ask())) == 17


def sizes_of(search: Search, fits: int) -> Iterator[int]:
    while part := search.ask():
        rows = len(rows_in(part))
        yield rows
        if rows > fits:
            search.settle(TOO_MANY)
        else:
            search.settle(ANSWERED)


def test_rows_that_are_too_large_together_go_in_smaller_groups_and_none_is_suspected() -> None:
    sizes = list(sizes_of(search_of([block(ticket(), 64)]), fits=20))
    assert sizes[:3] == [64, 32, 16]
    assert sum(rows for rows in sizes if rows <= 20) == 64


def killed(search: Search, killer: int) -> list[tuple[int, bool]]:
    """(rows, died) of every request, until the row that kills its server is given up."""
    story = []
    while part := search.ask():
        rows = [row for _, row in rows_in(part)]
        story.append((len(rows), killer in rows))
        if killer not in rows:
            search.settle(ANSWERED)
        elif search.settle(died(0.020)):
            return story
    raise AssertionError("the row was never given up")


def test_a_row_that_kills_workers_is_rejected_after_two_deaths_with_others_and_three_alone() -> (
    None
):
    story = killed(search_of([block(ticket(), 512)]), 137)
    assert [rows for rows, died in story if died][:2] == [512, 512]
    assert [rows for rows, died in story if died][-3:] == [1, 1, 1]
    assert len(story) <= 2 + math.log2(512) + 3


def test_a_row_that_came_alone_is_given_up_at_its_third_death() -> None:
    assert killed(search_of([block(ticket(), 1)]), 0) == [(1, True)] * 3


def test_a_death_long_after_the_row_was_sent_proves_less_but_it_is_not_sent_for_ever() -> None:
    for after_s, deaths in ((0.010, 3), (0.4, 6), (60.0, 20)):
        search = search_of([block(ticket(), 1)])
        for number in range(1, deaths + 1):
            search.ask()
            assert bool(search.settle(died(after_s))) == (number == deaths)


def test_deaths_of_other_causes_blame_no_row() -> None:
    search = search_of([block(ticket(), 8)])
    answered = []
    for number in range(100):
        part = search.ask()
        if not part:
            break
        if number % 3 == 2:
            answered += rows_in(part)
            search.settle(ANSWERED)
        else:
            assert not search.settle(died(0.020))
    assert sorted(answered) == [(0, row) for row in range(8)]


def test_rows_of_a_dead_assignment_are_not_asked() -> None:
    gone, here = StubLane(), StubLane()
    search = search_of([block(ticket(lane=gone), 4), block(ticket(offset=1, lane=here), 4)])
    search.ask()
    search.settle(NOTHING)
    gone.alive = False
    assert [offset for offset, _ in rows_in(search.ask())] == [1] * 4


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 120))
def test_leading_rows_are_cut_off_in_order(sizes: list[int], rows: int) -> None:
    blocks = numbered(sizes)
    before = rows_in(blocks)
    first, rest = leading(blocks, rows)
    assert (rows_in(first), rows_in(rest)) == (before[:rows], before[rows:])


def test_rows_that_fit_together_keep_the_limit_of_bytes() -> None:
    payload = JsonRows.of([b"1"] * 1_000)
    rows = fitting([Block(ticket(), 0, 1_000, payload)], 10_000, 9_000)
    assert 9_000 - 20 < payload.cut(0, rows).nbytes <= 9_000
