"""What is told of a server that answers questions, but no rows, or rows by something else."""

import pytest

from penstock.core.health.rows_unanswered import TELL_AFTER, TELL_AFTER_S, RowsUnanswered
from penstock.errors import HungUp, NoAnswer, Poison


def lose(rows: RowsUnanswered, times: int, error: NoAnswer, sent: int = 20) -> None:
    for number in range(times):
        rows.lost(error, number * TELL_AFTER_S, sent)


def test_a_server_that_is_away_is_not_said_to_fail_at_rows() -> None:
    rows = RowsUnanswered()
    lose(rows, 10, HungUp("reset"))
    assert rows.why(10.0) is None


def test_after_some_tries_it_is_told_what_was_sent_and_what_came() -> None:
    rows, error = RowsUnanswered(), HungUp("http://a: the server hung up")
    error.sent = "1 row as application/json, 7 bytes: [[1,2]]"
    lose(rows, TELL_AFTER - 1, error)
    rows.idle_answered()
    assert rows.why(9.0) is None
    rows.lost(error, 9.0, 20)
    why = rows.why(9.0)
    assert why is not None
    for said in ("closes the connection when it gets rows", error.sent, str(error)):
        assert said in why


def test_a_server_that_goes_away_later_is_not_said_to_fail_at_rows() -> None:
    rows = RowsUnanswered()
    lose(rows, TELL_AFTER, HungUp("reset"))
    rows.idle_answered()
    assert rows.why(9.0) is not None
    rows.away()
    assert rows.why(9.0) is None
    rows.idle_answered()
    assert rows.why(9.0) is not None


@pytest.mark.parametrize("error", [HungUp("reset"), NoAnswer("no answer within 30 s")])
def test_a_server_that_comes_back_is_not_blamed_for_the_rows_that_its_outage_lost(
    error: NoAnswer,
) -> None:
    rows = RowsUnanswered()
    lose(rows, 10, error)
    for _ in range(3):
        rows.away()
    rows.idle_answered()
    assert rows.why(99.0) is None


def test_calls_that_an_outage_ends_one_by_one_are_one_loss_too() -> None:
    rows = RowsUnanswered()
    for call in range(10):
        rows.lost(NoAnswer("no answer within 30 s"), 30.0 + call, 20)
        rows.away()
    rows.lost(NoAnswer("no answer within 30 s"), 40.0, 20)
    rows.idle_answered()
    assert rows.why(99.0) is None


def test_a_server_that_dies_of_rows_again_and_again_is_told() -> None:
    rows = RowsUnanswered()
    for life in range(TELL_AFTER):
        assert rows.why(10.0 * life) is None
        for _ in range(4):
            rows.lost(HungUp("reset"), 10.0 * life, 20)
        rows.away()
        rows.away()
        rows.idle_answered()
    assert "closes the connection" in str(rows.why(10.0 * TELL_AFTER))


def test_a_search_that_finds_good_rows_soon_tells_nothing() -> None:
    rows = RowsUnanswered()
    for _ in range(8):
        rows.lost(HungUp("reset"), 0.1, 20)
    rows.idle_answered()
    assert rows.why(0.2) is None
    rows.answered()
    assert rows.why(9.0) is None


def test_only_rows_that_were_sent_alone_make_certain_that_no_single_row_is_the_cause() -> None:
    rows = RowsUnanswered()
    lose(rows, 10, HungUp("reset"))
    assert not rows.is_certain
    lose(rows, TELL_AFTER, HungUp("reset"), sent=1)
    assert rows.is_certain
    rows.answered()
    assert not rows.is_certain


def test_rows_without_an_answer_within_the_time_are_told_as_that() -> None:
    rows = RowsUnanswered()
    lose(rows, TELL_AFTER, NoAnswer("no answer within 30 s"))
    rows.idle_answered()
    assert "leaves rows without an answer" in str(rows.why(9.0))


def test_a_200_with_something_else_is_told_every_few_times() -> None:
    rows, odd = RowsUnanswered(), Poison("model_mismatch", "answered no array but <html>")
    odd.sent = "1 row as application/json, 3 bytes: [1]"
    told = [rows.odd(odd) for _ in range(2 * TELL_AFTER)]
    assert [one is not None for one in told] == [False] * 2 + [True] + [False] * 2 + [True]
    assert "<html>" in str(told[2])
    assert odd.sent in str(told[2])
    assert rows.odd(None) is None
    assert rows.odd(odd) is None
