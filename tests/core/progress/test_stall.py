"""When a lane counts as snapshot still, and who holds it."""

import pytest

from penstock.core.progress.stall import Snapshot, Stall, holder, slowest
from penstock.core.rows.rejections import Rejection
from tests.core.builders import answered, block
from tests.core.builders import ticket as make_ticket
from tests.support.partitions import P0, P2

HERE = Snapshot("predict", 7, deliveries=3)
MOVED = Snapshot("predict", 7, deliveries=4)


def stall() -> Stall:
    return Stall(100.0, 10.0, now_s=0.0)


def test_a_lane_that_does_not_move_for_the_limit_stands_still() -> None:
    watch = stall()
    found = [watch.look(float(now_s), {P2: HERE}, tries=0) for now_s in range(10, 120, 10)]
    assert found[:-1] == [None] * 10
    assert found[-1] == (P2, HERE, 100.0)


def test_a_lane_that_moves_now_and_then_does_not() -> None:
    watch = stall()
    for now_s in range(10, 1_000, 10):
        assert watch.look(float(now_s), {P2: HERE if now_s % 100 < 50 else MOVED}, tries=0) is None


def test_a_lane_that_owes_nothing_does_not() -> None:
    watch = stall()
    assert all(
        watch.look(float(now_s), {P2: None}, tries=0) is None for now_s in range(10, 500, 10)
    )


def test_the_time_before_a_lane_owed_something_does_not_count() -> None:
    watch = stall()
    for now_s in range(10, 500, 10):
        watch.look(float(now_s), {P2: None}, tries=0)
    assert all(
        watch.look(float(now_s), {P2: HERE}, tries=0) is None for now_s in range(500, 600, 10)
    )
    assert watch.look(600.0, {P2: HERE}, tries=0) is not None


def test_failed_tries_at_a_service_are_no_standstill() -> None:
    watch = stall()
    for now_s in range(10, 5_000, 10):
        assert watch.look(float(now_s), {P2: HERE}, tries=now_s // 60) is None


def test_one_moving_lane_excuses_no_other() -> None:
    watch = stall()
    for now_s in range(10, 110, 10):
        moving = Snapshot("expand", 1, deliveries=0, read_bytes=now_s)
        assert watch.look(float(now_s), {P0: moving, P2: HERE}, tries=0) is None
    look = watch.look(110.0, {P0: Snapshot("expand", 1, 0, read_bytes=110), P2: HERE}, tries=0)
    assert look is not None
    assert look.where == P2


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    watch = stall()
    watch.look(10.0, {P2: HERE}, tries=0)
    assert watch.look(5_000.0, {P2: HERE}, tries=0) is None
    assert watch.look(5_010.0, {P2: HERE}, tries=0) is None


@pytest.mark.parametrize(
    ("started", "read_bytes", "closed", "stage"),
    [
        (False, 0, False, "download (no fetcher is free)"),
        (True, 0, False, "download"),
        (True, 9, False, "expand"),
        (True, 9, True, "publish"),
    ],
)
def test_which_stage_holds_a_ticket_without_rows(
    started: bool, read_bytes: int, closed: bool, stage: str
) -> None:
    ticket = make_ticket()
    ticket.started, ticket.read_bytes = started, read_bytes
    if closed:
        ticket.close()
    assert holder(ticket) == stage


def test_which_stage_holds_a_ticket_with_rows() -> None:
    ticket = make_ticket()
    ticket.started, ticket.read_bytes = True, 9
    first = block(ticket, 1)
    first.waiting = True
    assert holder(ticket) == "microbatch"
    first.waiting = False
    assert holder(ticket) == "predict"
    first.reject(Rejection("bad_row", "no number", "expand"))
    assert holder(ticket) == "expand"
    answered(block(ticket, 1))
    assert holder(ticket) == "publish"


def test_an_object_that_was_slow_to_come_is_late_by_that_while_the_model_has_it() -> None:
    ticket = make_ticket()
    block(ticket, 2)
    assert slowest(ticket, 9.0) == holder(ticket)
    ticket.fetching_s, ticket.fetched_s = 4.0, 8.0
    assert slowest(ticket, 8.1) == "download"
    assert slowest(ticket, 12.1) == holder(ticket)
    ticket.fetching_s = 7.99
    assert slowest(ticket, 8.1) == holder(ticket)
