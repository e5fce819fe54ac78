"""Who is asked of several that do the same."""

from penstock.core.health.standby import Standby

LOOK_S = 3.0


def of(places: int) -> Standby:
    return Standby(places, look_again_s=LOOK_S)


def test_the_first_replica_is_asked_and_then_the_others() -> None:
    assert list(of(3).well()) == [0, 1, 2]


def test_a_replica_that_is_away_is_skipped_until_it_answers() -> None:
    standby = of(2)
    assert standby.failed(0, 10.0)
    assert list(standby.well()) == [1]
    assert not standby.failed(0, 11.0), "that is no news"
    standby.answered(0)
    assert list(standby.well()) == [0, 1]


def test_a_skipped_replica_is_tried_again_in_time_by_one_caller() -> None:
    standby = of(2)
    standby.failed(0, 10.0)
    assert standby.due(12.9) is None
    assert standby.due(13.0) == 0
    assert standby.due(13.0) is None
    assert standby.due(16.0) == 0


def test_a_caller_that_waits_at_one_replica_tries_the_others_even_if_none_is_well() -> None:
    standby = of(2)
    standby.failed(0, 10.0)
    standby.failed(1, 10.0)
    assert standby.due(13.0) is None, "all are asked in any case"
    assert not standby.is_another_well(1)
    assert standby.due(13.0, waits_at=1) == 0
    standby.answered(0)
    assert standby.is_another_well(1)
    assert not standby.is_another_well(0)


def test_failures_count_for_each_replica_alone() -> None:
    standby = of(2)
    told = [standby.failed(0, 1.0, is_away=False) for _ in range(2)]
    assert standby.failed(1, 1.0, is_away=False) is False
    assert (told, list(standby.well())) == ([False, False], [0, 1])
    assert standby.failed(0, 1.0, is_away=False)
    assert list(standby.well()) == [1]


def test_answers_make_up_for_a_tenth_of_a_failure() -> None:
    standby = of(2)
    for _ in range(20):
        assert not standby.failed(0, 1.0, is_away=False)
        for _ in range(10):
            standby.answered(0)
    assert list(standby.well()) == [0, 1]


def test_a_replica_that_is_just_back_is_skipped_after_the_next_failure() -> None:
    standby = of(2)
    standby.failed(0, 1.0)
    standby.answered(0)
    assert standby.failed(0, 2.0, is_away=False)


def test_when_no_replica_is_well_all_are_asked_in_order() -> None:
    standby = of(2)
    standby.failed(1, 1.0)
    standby.failed(0, 1.0)
    assert list(standby.well()) == [0, 1]
    assert standby.due(100.0) is None
