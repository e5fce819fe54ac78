"""How an object came to its topic is remembered for a while."""

import pytest

from penstock.telemetry.delivery_times import Way, Ways
from penstock.telemetry.worker import TimeSpent

WAY = Way(TimeSpent(0.25, 0.5, 1.0, 0.125, 2.0, 4.0, 0.75, 0.0625), 8.6875, 64, 8, 2)


def test_an_object_is_remembered_with_its_times_and_its_batch() -> None:
    ways = Ways()
    ways.add("refs/0/7/0", None, WAY)
    assert ways.look("refs/0/7/0", None) == WAY
    assert ways.look("refs/0/7/1", None) is None


def test_each_model_that_answers_an_object_has_its_own() -> None:
    ways = Ways()
    other = WAY._replace(request=1)
    ways.add("refs/0/7/0", None, WAY)
    ways.add("refs/0/7/0", "night", other)
    assert ways.look("refs/0/7/0", "night") == other
    assert ways.look("refs/0/7/0", None) == WAY


@pytest.mark.parametrize("again", [False, True])
def test_the_oldest_is_forgotten_first(again: bool) -> None:
    ways = Ways(most=2)
    ways.add("refs/0/1/0", None, WAY)
    ways.add("refs/0/2/0", None, WAY)
    if again:  # delivered once more, it is the newest
        ways.add("refs/0/1/0", None, WAY)
    ways.add("refs/0/3/0", None, WAY)
    known = {n for n in (1, 2, 3) if ways.look(f"refs/0/{n}/0", None) is not None}
    assert known == ({1, 3} if again else {2, 3})
