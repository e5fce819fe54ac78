"""A group that is late is known by time, not by how many records it has left."""

import pytest

from penstock.core.health.other_groups import LIVE_S, KeepingUp

WITHIN_S = 2.0


def looks(*seen: tuple[float, int, int]) -> list[str]:
    """What is said at each look at (time, end, committed)."""
    group = KeepingUp[str](WITHIN_S)
    return [group.look(now_s, {"p": end}, {"p": at}).neighbour for now_s, end, at in seen]


def test_a_group_that_commits_a_moment_later_keeps_up_however_many_records_come() -> None:
    said = looks(
        *((float(second), 400_000 * second, 400_000 * (second - 1)) for second in range(9))
    )
    assert said[3:] == ["live"] * 6


def test_a_record_that_is_left_longer_makes_it_behind_and_its_commit_ends_that() -> None:
    said = looks((0.0, 5, 5), (1.0, 6, 5), (2.0, 6, 5), (3.0, 6, 5), (4.0, 6, 6))
    assert said[3:] == ["behind", "live"]


def test_a_group_just_watched_is_behind_while_it_has_records_left() -> None:
    assert looks((0.0, 6, 5)) == ["behind"]
    assert looks((0.0, 5, 5)) == ["quiet"]


def test_a_group_without_new_records_is_quiet() -> None:
    said = looks((0.0, 5, 5), (1.0, 6, 6), (2.0, 6, 6), (1.0 + LIVE_S, 6, 6))
    assert said[1:] == ["live", "live", "quiet"]


def test_a_group_that_reads_nothing_is_not_waited_for() -> None:
    group = KeepingUp[str](WITHIN_S)
    for second in range(5):
        assert group.look(float(second), {"p": second}, {}).neighbour == "quiet"


@pytest.mark.parametrize("lag", [0, 3])
def test_the_number_of_uncommitted_records_is_told(lag: int) -> None:
    assert KeepingUp[str](WITHIN_S).look(0.0, {"p": 9, "q": 4}, {"p": 9 - lag, "q": 4}).lag == lag
