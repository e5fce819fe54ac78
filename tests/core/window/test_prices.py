"""Rows that cost the model different times: batches by expected time, turns of the model's time."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.window.priorities import ALL_BACKLOG, Priorities, StreamPriority
from penstock.core.window.stream_costs import EVEN, Prices
from penstock.core.window.window import Batch, BatchWindow, WindowLimits
from tests.core.builders import block, ticket
from tests.core.window.batches import by_stream, take


def window(prices: Prices, *, rows: int = 100, wait_s: float = 0.01) -> BatchWindow:
    made = BatchWindow(WindowLimits(rows, 1_000_000, wait_s))
    made.reprice(prices)
    return made


def test_a_row_counts_as_many_rows_as_it_costs() -> None:
    waiting = window(Prices({"dear": 20}))
    waiting.add(block(ticket("dear"), 4), 0.0)
    assert waiting.reason(0.0) is None
    waiting.add(block(ticket("dear"), 4), 0.0)
    assert waiting.reason(0.0) == "rows"
    assert take(waiting, 0.0).rows == 5


def test_streams_take_turns_by_what_their_rows_cost() -> None:
    waiting = window(Prices({"dear": 5}), rows=20)
    for name in ("dear", "a", "b"):
        waiting.add(block(ticket(name), 4_000), 0.0)
    rows = sum((by_stream(take(waiting, 0.0)) for _ in range(60)), Counter[str]())
    assert rows == {"a": 400, "b": 400, "dear": 80}


def test_a_dear_row_is_not_kept_out_by_small_streams_for_ever() -> None:
    waiting = window(Prices({"dear": 70}))
    waiting.add(block(ticket("dear"), 1), 0.0)
    for tick in range(3):
        for number in range(9):
            waiting.add(block(ticket(f"small{number}"), 10), 0.001 * tick)
    assert by_stream(take(waiting, 0.01))["dear"] == 1


def apart(**prices: int) -> Prices:
    return Prices(prices, set(prices))


def test_streams_that_go_apart_have_batches_of_their_own() -> None:
    waiting = window(apart(dear=200))
    waiting.add(block(ticket("dear"), 3), 0.0)
    waiting.add(block(ticket("a"), 5), 0.0)
    waiting.add(block(ticket("b"), 5), 0.0)
    first, second = take(waiting, 0.01), take(waiting, 0.01)
    assert (by_stream(first), first.is_apart) == ({"a": 5, "b": 5}, False)
    # One row may always go, however long it takes.
    assert (by_stream(second), second.is_apart) == ({"dear": 1}, True)


def test_like_ride_together_as_far_as_they_may_take_the_model_but_not_always() -> None:
    names = "wxyz"
    waiting = window(Prices(dict.fromkeys(names, 40), set(names), most_apart=90))
    for name in names:
        waiting.add(block(ticket(name), 1), 0.0)
    # One goes alone, because nobody would know what each costs of two that always ride together.
    batches = [by_stream(take(waiting, 0.01)) for _ in range(3)]
    assert batches == [{"w": 1}, {"x": 1, "y": 1}, {"z": 1}]


def test_those_in_doubt_ride_with_nobody() -> None:
    waiting = window(Prices({}, set("wxyz"), doubtful=set("xy")))
    for name in "xwyz":
        waiting.add(block(ticket(name), 1), 0.0)
    batches = [by_stream(take(waiting, 0.01)) for _ in range(3)]
    assert batches == [{"x": 1}, {"w": 1, "z": 1}, {"y": 1}]


def test_those_that_are_held_apart_keep_nobody_else_waiting() -> None:
    waiting = window(apart(dear=200))
    waiting.apart_from_s = math.inf
    waiting.add(block(ticket("dear"), 3), 0.0)
    assert (waiting.reason(1.0), waiting.deadline_s(), waiting.rows_of("dear")) == (None, None, 3)
    waiting.add(block(ticket("a"), 5), 1.0)
    assert waiting.deadline_s() == pytest.approx(1.01)
    assert by_stream(take(waiting, 1.01)) == {"a": 5}
    waiting.apart_from_s = 2.0
    assert waiting.deadline_s() == 2.0
    assert by_stream(take(waiting, 2.0)) == {"dear": 1}


def test_a_dear_stream_gets_its_share_of_the_models_time_where_all_have_more_to_do() -> None:
    waiting = window(apart(dear=300))
    for name in ("dear", "a", "b", "c"):
        waiting.add(block(ticket(name), 50_000), 0.0)
    batches = [take(waiting, 0.0) for _ in range(400)]
    spent = sum((by_stream(batch) for batch in batches), Counter[str]())
    spent["dear"] *= 300
    assert spent["dear"] == pytest.approx(sum(spent.values()) / 4, rel=0.05)


def test_two_dear_streams_share_what_they_have_by_time() -> None:
    waiting = window(apart(dear=300, dearer=900))
    for name in ("dear", "dearer"):
        waiting.add(block(ticket(name), 1_000), 0.0)
    rows = sum((by_stream(take(waiting, 0.0)) for _ in range(200)), Counter[str]())
    assert rows["dear"] == pytest.approx(3 * rows["dearer"], rel=0.03)


def test_a_dear_stream_that_was_away_has_saved_no_time() -> None:
    waiting = window(apart(dear=300))
    waiting.add(block(ticket("a"), 50_000), 0.0)
    for _ in range(100):
        take(waiting, 0.0)
    waiting.add(block(ticket("dear"), 10), 0.0)
    firsts = [take(waiting, 0.0).is_apart for _ in range(4)]
    assert sum(firsts) <= 2


def test_in_a_trial_each_stream_has_few_rows_in_a_call_and_the_halves_take_turns() -> None:
    waiting = window(Prices({}, {"c", "d"}, None, set("abcd"), 2, 9.0))
    for name in "abcd":
        waiting.add(block(ticket(name), 5), 0.0)
    batches = [by_stream(take(waiting, 0.01)) for _ in range(4)]
    assert {"a": 2, "b": 2} in batches
    assert all(most <= 2 for rows in batches for most in rows.values())
    assert 1 <= sum(rows.keys() <= {"c", "d"} for rows in batches) <= 3


def test_new_prices_hold_for_the_rows_that_wait() -> None:
    waiting = window(EVEN)
    waiting.add(block(ticket("dear"), 3), 0.0)
    waiting.add(block(ticket("a"), 5), 0.5)
    waiting.reprice(apart(dear=20))
    assert waiting.deadline_s() == pytest.approx(0.01)
    waiting.reprice(apart(dear=200))
    assert by_stream(take(waiting, 0.0)) == {"dear": 1}
    waiting.reprice(EVEN)
    assert by_stream(take(waiting, 0.6)) == {"dear": 2, "a": 5}


@pytest.mark.parametrize("limits", [{"priorities": Priorities(ALL_BACKLOG)}, {"fair": False}])
def test_where_all_rows_are_backlog_or_none_are_fair_none_go_apart(limits: dict[str, Any]) -> None:
    waiting = BatchWindow(WindowLimits(100, 1_000_000, 0.01, **limits))
    waiting.reprice(apart(dear=10))
    for name in ("a", "dear"):
        waiting.add(block(ticket(name), 2), 0.0)
    assert by_stream(take(waiting, 0.01)) == {"a": 2, "dear": 2}


STEPS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(1, 40), st.booleans()), min_size=1, max_size=40
)


@given(steps=STEPS, max_rows=st.integers(1, 60), strangers=st.integers(2, 1_000))
def test_prices_of_other_streams_change_no_decision(
    steps: list[tuple[str, int, bool]], max_rows: int, strangers: int
) -> None:
    """So as long as all rows cost the same, batches are those of rows that are counted."""
    plain, priced = window(EVEN, rows=max_rows), window(EVEN, rows=max_rows)
    priced.reprice(Prices({"x": strangers}, {"x"}))
    tickets = [{name: ticket(name) for name in "abcde"} for _ in range(2)]
    for number, (name, rows, takes) in enumerate(steps):
        now_s = 0.004 * number
        for one, mine in zip((plain, priced), tickets, strict=True):
            one.add(block(mine[name], rows), now_s)
        if takes:
            assert spans(plain.take(now_s)) == spans(priced.take(now_s))
        assert plain.deadline_s() == priced.deadline_s()


def spans(batch: Batch | None) -> list[tuple[str, int, int]] | None:
    if batch is None:
        return None
    return [(one.ticket.stream, one.first_row, one.rows) for one in batch.blocks]


@given(
    steps=STEPS,
    prices=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 200)),
    others=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 200)),
    away=st.sets(st.sampled_from("abcde")),
    alone_until_s=st.sampled_from([0.0, 9.0]),
    max_rows=st.integers(1, 60),
)
def test_whatever_rows_cost_each_leaves_once_and_each_stream_in_order(
    steps: list[tuple[str, int, bool]],
    prices: dict[str, int],
    others: dict[str, int],
    away: set[str],
    alone_until_s: float,
    max_rows: int,
) -> None:
    waiting = window(Prices(prices, away & prices.keys()), rows=max_rows)
    tickets = {name: ticket(name) for name in "abcde"}
    left: dict[str, list[int]] = {name: [] for name in tickets}

    def leave(now_s: float) -> bool:
        batch = waiting.take(now_s)
        for one in batch.blocks if batch else ():
            left[one.ticket.stream] += range(one.first_row, one.first_row + one.rows)
        return batch is not None

    for number, (name, rows, takes) in enumerate(steps):
        waiting.add(block(tickets[name], rows), 0.0)
        if takes:
            leave(0.0)
        if number == len(steps) // 2:
            is_apart = away & others.keys()
            waiting.reprice(Prices(others, is_apart, None, is_apart, 3, alone_until_s))
    while leave(1.0):
        pass
    assert left == {name: list(range(one.next_row)) for name, one in tickets.items()}
    assert (waiting.rows, waiting.deadline_s()) == (0, None)


def test_weights_keep_no_small_stream_out_of_a_batch() -> None:
    live = [f"cam{number}" for number in range(20)]
    huge = [f"huge{number}" for number in range(6)]
    waiting = BatchWindow(
        WindowLimits(64, 1_000_000, 0.01, priorities=Priorities([("cam*", StreamPriority(4))]))
    )
    for name in huge:
        waiting.add(block(ticket(name), 2_000), 0.0)
    for turn in range(12):
        for name in live:
            waiting.add(block(ticket(name), 1), turn * 1.0)
        rows = by_stream(take(waiting, turn * 1.0 + 0.5))
        assert [rows[name] for name in live] == [1] * len(live)


def test_a_drain_holds_back_no_rows_apart() -> None:
    waiting = window(apart(dear=200))
    waiting.add(block(ticket("dear"), 2), 0.0)
    waiting.apart_from_s = math.inf
    assert waiting.take(1.0) is None
    waiting.draining = True
    assert waiting.deadline_s() is not None
    assert [by_stream(take(waiting, 1.0)) for _ in range(2)] == [{"dear": 1}] * 2
