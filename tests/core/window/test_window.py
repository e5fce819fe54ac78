import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.rows.blocks import Block
from penstock.core.window.pace import BACKLOG_ROWS
from penstock.core.window.priorities import Priorities, StreamPriority
from penstock.core.window.window import BatchWindow, WindowLimits
from tests.core.builders import StubLane, block, ticket
from tests.core.window.batches import by_stream, take
from tests.support.partitions import P0, P1, where


def window(
    *,
    rows: int = 100,
    nbytes: int = 1_000_000,
    wait_s: float = 0.01,
    eager: bool = False,
    fair: bool = True,
) -> BatchWindow:
    return BatchWindow(WindowLimits(rows, nbytes, wait_s, eager, fair))


def test_an_empty_window_has_nothing_to_give() -> None:
    empty = window()
    assert (empty.take(100.0), empty.deadline_s(), empty.reason(100.0)) == (None, None, None)


def test_a_lone_row_waits_for_company_until_its_deadline() -> None:
    waiting = window(wait_s=0.01)
    waiting.add(block(ticket(), 1), 5.0)
    assert waiting.take(5.009) is None
    assert waiting.deadline_s() == pytest.approx(5.01)
    assert take(waiting, 5.01).reason == "deadline"


def test_the_deadline_is_the_oldest_rows_own_not_the_last_batchs() -> None:
    waiting = window(wait_s=0.01)
    waiting.add(block(ticket(), 1), 0.0)
    take(waiting, 0.01)
    waiting.add(block(ticket(), 1), 60.0)
    assert waiting.take(60.005) is None
    assert waiting.deadline_s() == pytest.approx(60.01)


def test_enough_rows_close_a_batch_at_once() -> None:
    full = window(rows=10)
    full.add(block(ticket("a"), 6), 0.0)
    assert full.take(0.0) is None
    full.add(block(ticket("b"), 6), 0.0)
    batch = take(full, 0.0)
    assert (batch.reason, batch.rows, full.rows) == ("rows", 10, 2)


def test_enough_bytes_close_a_batch_at_once() -> None:
    full = window(nbytes=80)
    full.add(block(ticket("a"), 6), 0.0)
    assert full.take(0.0) is None
    full.add(block(ticket("b"), 6), 0.0)
    batch = take(full, 0.0)
    assert (batch.reason, batch.rows) == ("bytes", 10)


def test_a_row_larger_than_the_limit_still_leaves_alone() -> None:
    tight = window(nbytes=4)
    tight.add(block(ticket(), 3), 0.0)
    assert [take(tight, 0.0).rows for _ in range(3)] == [1, 1, 1]


def test_nothing_waits_while_draining() -> None:
    draining = window(wait_s=10.0)
    draining.add(block(ticket(), 1), 0.0)
    draining.draining = True
    assert take(draining, 0.0).reason == "drain"


def test_an_eager_window_gives_what_it_has() -> None:
    eager = window(wait_s=10.0, eager=True)
    eager.add(block(ticket(), 1), 0.0)
    assert take(eager, 0.0).reason == "idle"


def test_a_block_too_long_for_the_batch_is_cut_and_the_rest_keeps_its_age() -> None:
    cutting = window(rows=4)
    whole = ticket()
    cutting.add(block(whole, 10), 1.0)
    firsts = [[one.first_row for one in take(cutting, 1.0).blocks] for _ in range(2)]
    assert firsts == [[0], [4]]
    assert cutting.deadline_s() == pytest.approx(1.01)
    assert take(cutting, 1.01).rows == 2


def test_the_rest_of_a_cut_block_hides_no_older_rows_of_another_shape() -> None:
    waiting = window(rows=4, wait_s=1.0)
    stream = ticket("a")
    waiting.add(block(stream, 1, columns=1), 0.0)
    waiting.add(block(stream, 1, columns=2), 0.0)
    waiting.add(block(ticket("b"), 4, columns=1), 0.5)
    assert by_stream(take(waiting, 0.5)) == {"a": 1, "b": 3}
    assert waiting.deadline_s() == 1.0
    assert take(waiting, 1.0).reason == "deadline"


def test_rows_of_many_streams_and_lanes_share_a_batch() -> None:
    shared = window()
    for number in range(5):
        shared.add(block(ticket(f"s{number}", lane=StubLane(where(number))), 2), 0.0)
    batch = take(shared, 0.01)
    assert {one.ticket.owner.where.partition for one in batch.blocks} == {0, 1, 2, 3, 4}


def test_a_huge_object_leaves_room_for_the_small_streams() -> None:
    busy = window(rows=100)
    busy.add(block(ticket("huge"), 10_000), 0.0)
    for number in range(8):
        busy.add(block(ticket(f"small{number}"), 8), 0.0)
    rows = by_stream(take(busy, 0.0))
    assert all(rows[f"small{number}"] == 8 for number in range(8))
    assert rows["huge"] == 36


def test_large_streams_take_turns() -> None:
    busy = window(rows=10)
    for name in ("a", "b", "c"):
        busy.add(block(ticket(name), 1_000), 0.0)
    rows: Counter[str] = Counter()
    for _ in range(30):
        rows += by_stream(take(busy, 0.0))
    assert rows == {"a": 100, "b": 100, "c": 100}


def test_without_fairness_rows_leave_as_they_came() -> None:
    plain = window(rows=10, fair=False)
    plain.add(block(ticket("huge"), 15), 0.0)
    plain.add(block(ticket("small"), 2), 0.0)
    assert by_stream(take(plain, 0.0)) == {"huge": 10}
    assert by_stream(take(plain, 1.0)) == {"huge": 5, "small": 2}


def test_payloads_of_different_shape_never_share_a_batch() -> None:
    mixed = window()
    mixed.add(block(ticket("a"), 2, columns=2), 0.0)
    mixed.add(block(ticket("b"), 3, columns=5), 0.0)
    assert [take(mixed, 1.0).rows for _ in range(2)] == [2, 3]
    assert mixed.take(1.0) is None


def test_rows_of_a_dead_generation_are_forgotten() -> None:
    shared = window()
    dying, living = StubLane(P0), StubLane(P1)
    shared.add(block(ticket("a", lane=dying), 2), 0.0)
    shared.add(block(ticket("b", lane=living), 3), 0.0)
    dying.alive = False
    shared.discard(lambda one: not one.ticket.owner.alive)
    assert by_stream(take(shared, 1.0)) == {"b": 3}
    assert shared.rows == 0


@given(
    sizes=st.lists(
        st.tuples(st.sampled_from("abcde"), st.integers(1, 40)), min_size=1, max_size=40
    ),
    max_rows=st.integers(1, 60),
)
def test_every_row_leaves_once_and_each_stream_in_order(
    sizes: list[tuple[str, int]], max_rows: int
) -> None:
    any_window = window(rows=max_rows)
    tickets = {name: ticket(name) for name, _ in sizes}
    for name, rows in sizes:
        any_window.add(block(tickets[name], rows), 0.0)
    left: dict[str, list[int]] = {name: [] for name in tickets}
    while (batch := any_window.take(1.0)) is not None:
        assert 0 < batch.rows <= max_rows
        assert batch.rows == sum(one.rows for one in batch.blocks)
        for one in batch.blocks:
            left[one.ticket.stream] += range(one.first_row, one.first_row + one.rows)
    assert left == {name: list(range(one.next_row)) for name, one in tickets.items()}
    assert any_window.deadline_s() is None


def huge(rows: int) -> tuple[BatchWindow, Block]:
    """A window in which so many rows from deep inside an object wait since 0.0."""
    of = ticket("huge")
    of.next_row = BACKLOG_ROWS
    waiting = window(rows=100, wait_s=0.01)
    deep = block(of, rows)
    waiting.add(deep, 0.0)
    return waiting, deep


def test_backlog_leaves_like_any_row_when_nothing_holds_it() -> None:
    waiting, _ = huge(250)
    assert take(waiting, 0.0).has_backlog
    assert waiting.rows == 150


def test_held_backlog_stays_and_small_streams_go_alone() -> None:
    waiting, _ = huge(250)
    waiting.backlog_from_s = 5.0
    assert (waiting.reason(1.0), waiting.deadline_s()) == (None, 5.0)
    waiting.add(block(ticket("small"), 8), 1.0)
    assert waiting.deadline_s() == pytest.approx(1.01)
    batch = take(waiting, 1.01)
    assert (by_stream(batch), batch.reason, batch.has_backlog) == ({"small": 8}, "deadline", False)


def test_when_the_rest_is_over_backlog_and_small_share_a_batch() -> None:
    waiting, _ = huge(250)
    waiting.backlog_from_s = 5.0
    waiting.add(block(ticket("small"), 8), 4.999)
    batch = take(waiting, 5.0)
    assert by_stream(batch) == {"small": 8, "huge": 92}


def test_less_than_a_batch_of_backlog_waits_for_its_deadline_too() -> None:
    waiting, _ = huge(50)
    waiting.backlog_from_s = 0.005
    assert waiting.deadline_s() == pytest.approx(0.01)
    assert waiting.take(0.005) is None
    assert take(waiting, 0.01).rows == 50


def test_a_drain_holds_no_backlog() -> None:
    waiting, _ = huge(50)
    waiting.backlog_from_s = math.inf
    assert waiting.deadline_s() is None
    waiting.draining = True
    assert take(waiting, 0.0).rows == 50


def test_rows_cut_from_a_block_that_begins_early_are_accounted_with_it() -> None:
    of = ticket("huge")
    of.next_row = BACKLOG_ROWS - 10
    waiting = window(rows=100)
    waiting.add(block(of, 250), 0.0)
    waiting.backlog_from_s = math.inf
    assert [take(waiting, 1.0).rows for _ in range(3)] == [100, 100, 50]
    assert (waiting.rows, waiting.deadline_s()) == (0, None)


def test_without_fairness_nothing_is_backlog() -> None:
    of = ticket("huge")
    of.next_row = BACKLOG_ROWS
    plain = window(rows=100, fair=False)
    plain.backlog_from_s = math.inf
    plain.add(block(of, 100), 0.0)
    assert take(plain, 0.0).rows == 100


def test_the_beginning_of_the_next_object_passes_the_held_backlog_of_its_own_stream() -> None:
    waiting, deep = huge(250)
    waiting.backlog_from_s = math.inf
    following = ticket(deep.ticket.stream)
    waiting.add(block(following, 5), 1.0)
    batch = take(waiting, 2.0)
    assert [(one.ticket, one.rows) for one in batch.blocks] == [(following, 5)]
    assert waiting.rows_of(following.stream) == 250


def prioritised(*entries: tuple[str, StreamPriority], rows: int = 100) -> BatchWindow:
    return BatchWindow(WindowLimits(rows, 1_000_000, 0.01, priorities=Priorities(entries)))


def test_only_rows_far_inside_an_object_are_backlog() -> None:
    of = ticket("huge")
    waiting = window()
    first = block(of, BACKLOG_ROWS)
    deep = block(of, 1)
    waiting.add(first, 0.0)
    waiting.add(deep, 0.0)
    assert (first.is_backlog, deep.is_backlog) == (False, True)


def test_a_stream_whose_class_is_backlog_yields_with_its_first_row_and_a_live_one_never() -> None:
    waiting = prioritised(
        ("archive/*", StreamPriority(kind="backlog")), ("cam/*", StreamPriority(kind="live"))
    )
    waiting.backlog_from_s = math.inf
    of = ticket("cam/1")
    of.next_row = BACKLOG_ROWS
    waiting.add(block(of, 30), 0.0)
    waiting.add(block(ticket("archive/1"), 30), 0.0)
    assert by_stream(take(waiting, 0.01)) == {"cam/1": 30}
    assert waiting.take(1.0) is None
    waiting.backlog_from_s = 0.0
    assert by_stream(take(waiting, 1.0)) == {"archive/1": 30}


def test_a_weight_is_a_streams_share_where_not_all_rows_fit() -> None:
    waiting = prioritised(
        ("emergency/*", StreamPriority(weight=8)), ("*", StreamPriority()), rows=10
    )
    for name in ("emergency/1", "a", "b"):
        waiting.add(block(ticket(name), 4_000), 0.0)
    rows: Counter[str] = Counter()
    for _ in range(100):
        rows += by_stream(take(waiting, 0.0))
    assert rows == {"emergency/1": 800, "a": 100, "b": 100}


def test_by_its_weight_a_streams_rows_are_in_the_next_batch_however_many_others_wait() -> None:
    waiting = prioritised(("emergency/*", StreamPriority(weight=8)))
    for number in range(20):
        waiting.add(block(ticket(f"s{number}"), 50), 0.0)
    waiting.add(block(ticket("emergency/1"), 20), 0.0)
    assert by_stream(take(waiting, 0.0))["emergency/1"] == 20


def test_the_first_entry_that_matches_a_stream_holds() -> None:
    priorities = Priorities(
        [("a/*", StreamPriority(weight=3)), ("*", StreamPriority(kind="backlog"))]
    )
    assert [priorities.of(stream).weight for stream in ("a/b", "b", "a/b")] == [3, 1, 3]
    assert Priorities([]).of("a") == StreamPriority()
