"""Searches and batches share the model calls: neither starves, and one call is always for rows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.asking.gate import CallTurns, Turn

EVERY_CALLS = list(range(1, 33))


class Server:
    """So many calls at a time; who waits begins when `CallTurns` says so."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.turns = CallTurns()
        self.under_way: list[Turn] = []

    def fill(self, *, rows: bool, searches: bool) -> list[Turn]:
        """Begin as many as may, of an endless number that wait."""
        begun: list[Turn] = []
        while len(self.under_way) < self.calls:
            who = self.turns.next(self.calls, rows_wait=rows, searches_wait=searches)
            if who is None:
                break
            self.turns.begin(who)
            self.under_way.append(who)
            begun.append(who)
        return begun

    def end(self, index: int) -> None:
        self.turns.end(self.under_way.pop(index))


@pytest.mark.parametrize("calls", EVERY_CALLS)
def test_searches_alone_have_at_most_a_quarter_and_never_the_last_call(calls: int) -> None:
    server = Server(calls)
    begun = server.fill(rows=False, searches=True)
    assert begun == ["search"] * max(1, calls // 4)
    assert calls == 1 or len(begun) < calls
    assert server.fill(rows=True, searches=True) == ["rows"] * (calls - len(begun))


def test_with_one_call_rows_and_searches_take_turns() -> None:
    server = Server(1)
    begun = []
    for _ in range(6):
        begun += server.fill(rows=True, searches=True)
        server.end(0)
    assert begun == ["rows", "search"] * 3


def test_a_queue_that_waits_alone_gets_every_turn() -> None:
    for who in ("rows", "search"):
        server = Server(1)
        for _ in range(3):
            assert server.fill(rows=who == "rows", searches=who == "search") == [who]
            server.end(0)


@given(st.integers(1, 16), st.lists(st.integers(0, 15), min_size=40, max_size=80))
def test_while_both_wait_neither_starves(calls: int, ends: list[int]) -> None:
    server = Server(calls)
    begun: list[Turn] = server.fill(rows=True, searches=True)
    for index in ends:
        server.end(index % len(server.under_way))
        begun += server.fill(rows=True, searches=True)
        assert server.turns.searching == server.under_way.count("search")
        assert server.turns.searching <= max(1, calls // 4)
        assert len(server.under_way) == calls
    assert "rows" in begun
    # As soon as a search's place is free, at most one batch goes before the next search.
    for first, second in pairwise(begun):
        assert (first, second) != ("search", "search")
    assert begun.count("search") >= 1


@given(st.integers(1, 16), st.booleans(), st.booleans())
def test_no_queue_gets_a_turn_without_a_waiting_caller(
    calls: int, rows: bool, searches: bool
) -> None:
    who = CallTurns().next(calls, rows_wait=rows, searches_wait=searches)
    assert who in {name for name, waits in (("rows", rows), ("search", searches)) if waits} | {None}
    assert (who is None) == (not rows and not searches)
