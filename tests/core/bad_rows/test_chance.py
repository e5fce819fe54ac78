"""After how many trials a row is blamed, and no longer the server."""

from itertools import count

import pytest

from penstock.core.bad_rows.verdicts import STEADY_ANSWERS, Chance


def server(*, steady: bool, answered: int, broken: int) -> Chance:
    chance = Chance()
    for _ in range(STEADY_ANSWERS if steady else 0):
        chance.succeeded()
    chance.failed()
    for _ in range(answered):
        chance.succeeded()
    if broken:
        chance.explains(broken)
    return chance


@pytest.mark.parametrize(
    ("steady", "answered", "broken", "trials"),
    [
        (True, 20, 0, 3),
        (True, 8, 0, 5),
        (False, 200, 0, 3),
        (False, 50, 0, 5),
        (False, 10, 0, 13),
        (False, 90, 10, 7),
        (False, 100, 100, 22),
    ],
)
def test_the_table_of_trials(answered: int, broken: int, trials: int, *, steady: bool) -> None:
    chance = server(steady=steady, answered=answered, broken=broken)
    assert next(number for number in count(1) if chance.blames(number)) == trials


def test_a_steady_server_that_broke_a_good_request_is_steady_no_longer() -> None:
    chance = server(steady=True, answered=20, broken=1)
    assert not chance.blames(4)


def test_a_server_that_fails_now_and_then_is_known_as_that_for_200_requests() -> None:
    chance = server(steady=False, answered=40, broken=10)
    for _ in range(1_000):
        chance.succeeded()
    assert (chance.broken, chance.answered <= 200) == (0, True)


def test_rows_are_cut_later_if_many_good_requests_fail() -> None:
    assert server(steady=True, answered=0, broken=0).cuts(1)
    half = server(steady=False, answered=50, broken=50)
    assert [half.cuts(number) for number in (1, 3, 4)] == [False, False, True]


@pytest.mark.parametrize("requests", [1, 150, 450])
def test_requests_that_went_well_may_be_noted_together(requests: int) -> None:
    one_by_one, together = (server(steady=False, answered=40, broken=100) for _ in range(2))
    for _ in range(requests):
        one_by_one.succeeded()
    together.succeeded(requests)
    assert (one_by_one.answered, one_by_one.broken) == (together.answered, together.broken)
