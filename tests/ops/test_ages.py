"""How far streams were behind, window by window."""

from penstock.ops.ages import MOST, Ages
from penstock.telemetry.recent import HISTORY


def test_ages_are_told_by_window_with_gaps_for_as_long_as_a_page_shows() -> None:
    ages = Ages()
    assert ages.of("a") == []
    for number in range(3):
        ages.note([{"stream": "a", "age_s": float(number)}])
    ages.note([{"stream": "b", "age_s": 9.0}])
    assert ages.of("a") == [0.0, 1.0, 2.0, None]
    assert ages.of("b") == [9.0]
    for _ in range(HISTORY):
        ages.note([])
    assert ages.of("a") == []


def test_names_that_come_and_go_take_no_memory() -> None:
    ages = Ages()
    ages.note([{"stream": str(number), "age_s": 1.0} for number in range(3 * MOST)])
    assert sum(bool(ages.of(str(number))) for number in range(3 * MOST)) == MOST
