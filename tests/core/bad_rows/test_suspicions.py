"""Objects of which every row is refused: how few requests, and how few good rows it may cost."""

import random
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bad_rows.search import Search, rows_of
from penstock.core.bad_rows.suspicions import LOT, SENTENCE, Suspicions
from penstock.core.bad_rows.verdicts import ANSWERED, Kind, Outcome
from penstock.core.rows.blocks import Block
from penstock.errors import Rejected
from tests.core.builders import StubLane, block, ticket


class Judged:
    """What became of an object's rows, by row number."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        self.refused: list[int] = []
        self.unasked: list[int] = []
        self.requests = 0

    @property
    def all(self) -> list[int]:
        return sorted(self.answered + self.refused + self.unasked)


def refusal(message: str = "bad") -> Outcome:
    return Outcome(Kind.REFUSED, Rejected("model_rejected", message))


def numbers(blocks: list[Block]) -> list[int]:
    return [one.first_row + index for one in blocks for index in range(one.rows)]


def judge(
    search: Search,
    is_bad: Callable[[int], bool],
    chance: Callable[[], float],
    words: Callable[[int], str] = lambda _: "Prediction failed",
    judged: Judged | None = None,
) -> Judged:
    judged = judged or Judged()
    while not search.is_settled:
        while passed := search.passed_over(chance()):
            judged.unasked += numbers(passed)
        part = search.ask()
        if not part:
            break
        judged.requests += 1
        rows = numbers(part)
        if not any(map(is_bad, rows)):
            search.settle(ANSWERED)
            judged.answered += rows
        elif rejected := search.settle(refusal(words(rows[0]))):
            judged.refused += rows
            judged.unasked += numbers(rejected[1:])
    return judged


def in_batches(
    rows: int,
    size: int,
    is_bad: Callable[[int], bool],
    chance: Callable[[], float],
    words: Callable[[int], str] = lambda _: "Prediction failed",
) -> Judged:
    """An object's rows in one search after another, as its batches come."""
    of, judged, known = ticket(), Judged(), Suspicions()
    for start in range(0, rows, size):
        search = Search([block(of, min(size, rows - start))], size, 1 << 20, known)
        judge(search, is_bad, chance, words, judged)
    return judged


@pytest.mark.parametrize("size", [1, 8, 64, 512])
def test_5000_bad_rows_cost_less_than_200_requests_whatever_the_batch(size: int) -> None:
    judged = in_batches(5_000, size, lambda _: True, random.Random(size).random)
    assert judged.all == list(range(5_000))
    assert judged.answered == []
    assert judged.requests < 200


@given(
    st.integers(1, 600),
    st.sampled_from([1, 7, 64, 512]),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_every_row_is_settled_once_and_asked_rows_rightly(
    rows: int, size: int, randomness: random.Random, data: st.DataObject
) -> None:
    good = data.draw(st.sets(st.integers(0, rows - 1), max_size=rows))
    judged = in_batches(rows, size, lambda row: row not in good, randomness.random)
    assert judged.all == list(range(rows))
    assert set(judged.answered) <= good
    assert good.isdisjoint(judged.refused)
    if len(judged.refused) < SENTENCE:
        assert judged.unasked == []


def test_an_object_that_had_an_answer_within_the_last_50_rows_is_never_sentenced() -> None:
    judged = in_batches(5_000, 512, lambda row: row % 40 != 0, lambda: 0.0)
    assert judged.unasked == []
    assert len(judged.answered) == 5_000 / 40


def test_rows_that_are_refused_for_different_reasons_are_each_asked() -> None:
    kinds = ("too short", "too long", "upside down")
    judged = in_batches(500, 64, lambda _: True, lambda: 0.0, lambda row: kinds[row % 3])
    assert judged.unasked == []
    same = in_batches(500, 64, lambda _: True, lambda: 0.0, lambda row: f"value {row} is bad")
    assert same.unasked != []


def test_of_an_object_that_is_good_from_some_row_on_few_good_rows_are_lost() -> None:
    lost = []
    for seed in range(60):
        judged = in_batches(2_048, 512, lambda row: row < 700, random.Random(seed).random)
        lost.append(sum(row >= 700 for row in judged.unasked))
    assert max(lost) < 5 * LOT
    assert sum(lost) / len(lost) < LOT / 2


@pytest.mark.parametrize("size", [1, 512])
def test_a_wrong_sentence_costs_100_good_rows_on_average_in_the_worst_order(size: int) -> None:
    """After 60 bad rows only good ones, in batches so small that no lot can warn of their
    neighbours.
    """
    lost = []
    for seed in range(100):
        judged = in_batches(1_000, size, lambda row: row < 60, random.Random(seed).random)
        lost.append(sum(row >= 60 for row in judged.unasked))
    assert sum(lost) / len(lost) <= 1.3 * LOT


def test_rows_of_another_width_or_member_are_judged_by_themselves() -> None:
    of, known = ticket(), Suspicions()
    judge(Search([block(of, 200)], 512, 1 << 20, known), lambda _: True, lambda: 0.999)
    assert (trial := known.trial_of(block(of, 1))) is not None
    assert trial.is_sentenced
    assert known.trial_of(block(of, 1, columns=3)) is None
    other = block(of, 1)
    other.member = "b.csv"
    assert known.trial_of(other) is None


def test_a_lot_whose_assignment_ends_is_forgotten() -> None:
    lane = StubLane()
    of, known = ticket(lane=lane), Suspicions()
    judge(Search([block(of, 100)], 512, 1 << 20, known), lambda _: True, lambda: 0.999)
    search = Search([block(of, 100)], 512, 1 << 20, known)
    assert search.passed_over(0.5) == []
    lane.alive = False
    assert search.ask() == []
    assert search.is_settled


def test_a_lot_without_an_outcome_is_asked_again() -> None:
    of, known = ticket(), Suspicions()
    judge(Search([block(of, 100)], 512, 1 << 20, known), lambda _: True, lambda: 0.999)
    search = Search([block(of, 100)], 512, 1 << 20, known)
    assert search.passed_over(0.5) == []
    first = numbers(search.ask())
    search.settle(Outcome(Kind.NOTHING))
    assert numbers(search.ask()) == first


def test_rows_that_are_added_go_in_requests_of_one_shape_and_bounded_size() -> None:
    of = ticket()
    search = Search([block(of, 10)], 64, 512, Suspicions())
    search.add([block(of, 100), block(of, 5, columns=3), block(of, 50)])
    sizes = []
    while part := search.ask():
        assert len({one.payload.shape for one in part if one.payload is not None}) == 1
        assert sum(one.payload.nbytes for one in part if one.payload is not None) <= 512
        sizes.append(rows_of(part))
        search.settle(ANSWERED)
    assert sum(sizes) == 165
    assert max(sizes) == 64


def test_an_object_of_which_every_row_is_bad_is_cut_off_from_its_neighbours_first() -> None:
    good = [block(ticket(offset=number), 8) for number in range(12)]
    bad = block(ticket(offset=99), 416)
    search = Search([*good, bad], 512, 1 << 20, Suspicions())
    assert rows_of(search.ask()) == 512
    search.settle(refusal())
    assert search.sole_ticket is None
    assert rows_of(search.ask()) == 96
    search.settle(ANSWERED)
    assert search.sole_ticket is bad.ticket


def test_the_next_search_knows_what_one_search_found_out_about_an_object() -> None:
    of, known = ticket(), Suspicions()
    first, second = (Search([block(of, 100)], 512, 1 << 20, known) for _ in range(2))
    judged = Judged()
    while len(judged.refused) < 10:
        rows = numbers(first.ask())
        if first.settle(refusal()):
            judged.refused += rows
    assert rows_of(second.ask()) == 1


def test_what_is_known_of_an_object_is_forgotten_with_its_ticket() -> None:
    known = Suspicions()
    of = ticket()
    judge(Search([block(of, 100)], 512, 1 << 20, known), lambda _: True, lambda: 0.999)
    later = block(of, 1)
    assert known.suspects([later]) == [later]
    assert known.loud.pop()[0] is of
    gone = weakref.ref(of)
    of.forget()
    del of, later
    assert gone() is None
