import math

import pytest

from penstock.core.window.pace import EXPECT_S, FRESH_S, MOST_REST_S, REST, BacklogPace


def live(now_s: float) -> BacklogPace:
    """A small object came fresh at this time."""
    pace = BacklogPace()
    pace.read(8, 0.01, now_s)
    return pace


def test_alone_a_huge_object_is_never_held() -> None:
    pace = BacklogPace()
    pace.read(1_000_000, 0.01, 1.0)
    assert (pace.taken(1.0), pace.answered(0.003, 1.003)) == (0.0, 0.0)


def test_beside_small_live_objects_backlog_goes_one_batch_at_a_time_and_rests_after_it() -> None:
    pace = live(1.0)
    assert pace.taken(1.0) == math.inf
    assert pace.answered(0.004, 1.004) == pytest.approx(1.004 + REST * 0.004)


def test_the_rest_after_a_very_long_call_is_bounded() -> None:
    pace = live(1.0)
    pace.read(8, 0.01, 31.0)
    assert pace.answered(30.0, 31.0) == pytest.approx(31.0 + MOST_REST_S)


def test_when_small_objects_stop_coming_backlog_goes_on() -> None:
    pace = live(1.0)
    assert pace.taken(1.0 + EXPECT_S) == 0.0


def test_small_objects_that_are_read_late_hold_no_backlog_back() -> None:
    pace = BacklogPace()
    pace.read(8, FRESH_S + 1.0, 1.0)
    assert pace.taken(1.0) == 0.0
