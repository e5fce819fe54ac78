"""When a region is helped, and when it is left again."""

from collections.abc import Sequence

from penstock.core.health.other_groups import (
    MOST_PATIENCE,
    SOON,
    HelpTerms,
    RegionHelp,
    RegionState,
)

TERMS = HelpTerms(lag=100, after_s=10.0)
WELL = RegionState(lag=0, workers=2)
BEHIND = RegionState(lag=101, workers=2)
GONE = RegionState(lag=0, workers=0)


def looked(
    one: RegionHelp, standing: RegionState | None, begin_s: float, looks: int
) -> Sequence[bool]:
    """Every 2 s."""
    return [one.look(standing, begin_s + 2.0 * number) for number in range(looks)]


def helping(at_s: float = 0.0) -> RegionHelp:
    one = RegionHelp(TERMS)
    looked(one, GONE, at_s - 10.0, 6)
    assert one.is_on
    return one


def test_a_region_that_is_well_is_left_alone() -> None:
    assert not any(looked(RegionHelp(TERMS), WELL, 0.0, 100))


def test_a_region_without_workers_is_helped_after_a_while() -> None:
    assert looked(RegionHelp(TERMS), GONE, 0.0, 7) == [False] * 5 + [True] * 2


def test_a_region_above_its_limit_is_helped_after_a_while() -> None:
    assert looked(RegionHelp(TERMS), BEHIND, 0.0, 7) == [False] * 5 + [True] * 2


def test_lag_that_comes_and_goes_calls_no_help() -> None:
    one = RegionHelp(TERMS)
    for round_s in range(0, 100, 10):
        assert not any(looked(one, BEHIND, round_s, 4))
        assert not one.look(WELL, round_s + 8.0)


def test_an_unknown_state_changes_nothing_and_proves_nothing() -> None:
    one = RegionHelp(TERMS)
    looked(one, GONE, 0.0, 4)
    one.look(None, 8.0)
    assert not any(looked(one, GONE, 10.0, 5))
    on = helping()
    assert all(looked(on, None, 0.0, 100))


def test_a_worker_in_trouble_itself_does_not_begin_to_help() -> None:
    one = RegionHelp(TERMS)
    assert not any(one.look(GONE, 2.0 * number, is_free=False) for number in range(50))
    on = helping()
    assert on.look(GONE, 2.0, is_free=False), "what was begun is not left for that"


def test_a_region_is_given_back_once_it_is_well_for_a_while() -> None:
    assert looked(helping(), WELL, 0.0, 7) == [True] * 5 + [False] * 2


def test_a_region_is_well_only_at_half_of_the_limit() -> None:
    assert not looked(helping(), RegionState(lag=50, workers=1), 0.0, 6)[-1]
    assert all(looked(helping(), RegionState(lag=51, workers=1), 0.0, 60))


def test_without_workers_of_its_own_no_region_is_well() -> None:
    assert all(looked(helping(), GONE, 0.0, 60))


def test_help_that_is_needed_again_soon_stays_longer_each_time_up_to_a_bound() -> None:
    one, now_s, stays_s = RegionHelp(TERMS), 0.0, []
    for _ in range(6):
        while not one.look(BEHIND, now_s):
            now_s += 1.0
        began_s = now_s
        while one.look(WELL, now_s):
            now_s += 1.0
        stays_s.append(now_s - began_s)
    assert stays_s == [10.0, 20.0, 40.0, 80.0, 80.0, 80.0]
    assert stays_s[-1] == MOST_PATIENCE * TERMS.after_s


def test_after_a_long_time_without_help_it_begins_as_at_first() -> None:
    one = helping()
    looked(one, WELL, 0.0, 6)
    again_s = 10.0 + SOON * TERMS.after_s
    looked(one, GONE, again_s, 6)
    assert one.is_on
    assert not looked(one, WELL, again_s + 10.0, 6)[-1]


def test_a_help_that_failed_is_begun_anew_only_where_it_is_needed() -> None:
    one = helping()
    one.failed()
    assert not one.is_on
    assert looked(one, GONE, 60.0, 6) == [False] * 5 + [True]
