"""What backlog may read beside live objects, by what these bear."""

import math
from random import Random

import pytest

from penstock.core.window.pace import FRESH_S, BacklogPace
from penstock.core.window.read_share import ALONE_S, BEGIN, SETTLE_S, TURN_S, ReadShare


def lived(share: ReadShare, seconds: float, slower: float) -> float:
    """Live objects come 400 times a second. They take `slower` times as long beside one read of
    backlog, and so much more beside two. Returns for what part of the time backlog was away.
    """
    random, now_s, read_s, next_s, away_s = Random(1), 0.0, 0.0, 0.0, 0.0
    while now_s < seconds:
        took_s = 0.010 * random.lognormvariate(0, 0.4)
        is_away = now_s - read_s > SETTLE_S
        away_s += is_away / 400
        share.live(took_s if is_away else took_s * (1 + (slower - 1) * share.share), now_s)
        while next_s <= now_s:
            share.begin()
            read_s = next_s + 0.005
            next_s = read_s + share.rest_s(0.005, read_s, is_wanted=True)
        now_s += 1 / 400
    return away_s / seconds


def rest_s(share: ReadShare, now_s: float) -> float:
    share.begin()
    return share.rest_s(0.004, now_s, is_wanted=True)


def test_at_first_backlog_has_the_share_of_reads_that_it_has_of_calls() -> None:
    share = ReadShare()
    assert share.at_a_time == 1
    assert rest_s(share, 1.0) == pytest.approx(ALONE_S)
    assert rest_s(share, 1.0 + ALONE_S) == pytest.approx(0.004 * (1 / BEGIN - 1))


def test_the_share_grows_while_live_objects_bear_it() -> None:
    share = ReadShare()
    rested = lived(share, 40.0, slower=1.0)
    assert share.at_a_time >= 4
    assert rested <= 1.1 * ALONE_S / TURN_S


def test_the_share_is_no_larger_than_live_objects_bear() -> None:
    share = ReadShare()
    lived(share, 60.0, slower=1.5)
    assert 0.15 < share.share < 0.8


def test_what_slows_down_live_objects_with_and_without_backlog_is_not_its_fault() -> None:
    share = ReadShare()
    random, slow = Random(1), 1.0
    for tick in range(40_000):
        slow = 5.0 if tick > 8_000 else 1.0
        now_s = tick / 400
        share.live(slow * 0.010 * random.lognormvariate(0, 0.4), now_s)
        if now_s % TURN_S < TURN_S - ALONE_S:
            rest_s(share, now_s)
    assert share.share > BEGIN


def test_live_objects_that_are_late_hold_declared_backlog_back() -> None:
    """They may be late because of it; if it ran freely then, they would stay late."""
    pace = BacklogPace()
    pace.live(20.0, 1.0)
    assert (pace.taken(1.0), pace.reads(1.0)) == (math.inf, 1)
    assert pace.rest_s(0.004, 1.0, is_wanted=True) > 0.0


def test_without_live_objects_backlog_is_read_as_the_store_allows() -> None:
    pace = BacklogPace()
    pace.live(0.01, 1.0)
    after_s = 1.0 + FRESH_S
    assert (pace.reads(after_s), pace.rest_s(0.004, after_s, is_wanted=True)) == (math.inf, 0.0)


def test_a_share_that_nothing_waits_for_does_not_grow() -> None:
    share = ReadShare()
    for tick in range(20_000):
        share.live(0.010, tick / 400)
        share.begin()
        share.rest_s(0.001, tick / 400, is_wanted=False)
    assert share.share == BEGIN
