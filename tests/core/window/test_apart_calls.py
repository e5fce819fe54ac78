"""How many calls the streams that go apart may have beside the others."""

import math

from penstock.core.window.pace import GROW_CALLS, QUIET_S, STAY_S, ApartCalls


class Calls:
    """As many calls apart as may be, each of a second, beside short ones of all other streams."""

    def __init__(self, calls: int) -> None:
        self.apart = ApartCalls()
        self.calls = calls
        self.now_s = 0.0

    def others(self, count: int, took_s: float, likely_s: float = 0.010) -> None:
        for _ in range(count):
            beside = self.apart.taken(self.now_s, is_apart=False)
            while self.apart.from_s(self.calls) <= self.now_s:
                self.apart.taken(self.now_s, is_apart=True)
            self.now_s += took_s
            self.apart.done(took_s, likely_s, beside, self.now_s, is_apart=False)

    def finish_one(self) -> None:
        self.apart.done(1.0, 1.0, 0, self.now_s, is_apart=True)


def test_they_begin_with_one_call_and_get_all_but_one_while_they_hold_nobody_up() -> None:
    calls = Calls(4)
    calls.others(1, 0.010)
    assert calls.apart.most == 1
    calls.others(10 * GROW_CALLS, 0.010)
    calls.apart.taken(calls.now_s, is_apart=False)
    assert calls.apart.from_s(4) > calls.now_s
    in_flight = calls.apart.taken(calls.now_s, is_apart=False)
    assert in_flight == 3


def test_if_others_wait_for_them_they_get_fewer_and_no_more_for_a_while() -> None:
    calls = Calls(8)
    calls.others(1, 0.010)
    calls.others(2 * GROW_CALLS + 2, 0.010)
    most = calls.apart.most
    assert most > 1
    calls.finish_one()
    calls.others(5, 0.6)
    assert calls.apart.most == most - 1
    calls.others(5 * GROW_CALLS, 0.010)
    assert calls.apart.most == most - 1
    calls.now_s += STAY_S
    calls.others(2, 0.010)
    assert calls.apart.most == most


def test_a_server_that_works_on_one_call_at_a_time_gets_one_of_them() -> None:
    calls = Calls(4)
    calls.others(1, 0.010)
    calls.finish_one()
    for _ in range(200):
        calls.others(1, 0.010)
        calls.others(3, 0.5)
    assert calls.apart.most == 1


def test_calls_that_are_long_by_their_own_rows_were_not_held_up() -> None:
    calls = Calls(4)
    calls.others(1, 0.010)
    for _ in range(3 * GROW_CALLS):
        calls.others(1, 0.010)
        calls.others(1, 0.5, likely_s=0.5)
    assert calls.apart.most > 1


def test_with_one_call_at_a_time_they_may_have_it() -> None:
    apart = ApartCalls()
    assert apart.from_s(1) == 0.0
    apart.taken(0.0, is_apart=True)
    assert apart.from_s(1) == math.inf


def test_while_no_other_stream_has_calls_they_have_all() -> None:
    apart = ApartCalls()
    apart.taken(5.0, is_apart=False)
    apart.done(0.01, 0.01, 0, 5.01, is_apart=False)
    apart.taken(5.0, is_apart=True)
    assert apart.from_s(4) == 5.01 + QUIET_S


def test_a_call_in_flight_is_not_quiet_however_long_it_takes() -> None:
    apart = ApartCalls()
    beside = apart.taken(0.0, is_apart=False)
    apart.taken(0.0, is_apart=True)
    assert apart.from_s(8) == math.inf
    apart.done(5.0, 0.01, beside, 5.0, is_apart=False)
    assert apart.from_s(8) == 5.0 + QUIET_S
