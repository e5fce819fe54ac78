"""The figures of the last ten minutes, window by window."""

from typing import Any

from penstock.telemetry.recent import HISTORY, NAMES, RecentHistory

MOST = 80
WORKER = dict.fromkeys(NAMES, 1.0)


def note(history: RecentHistory, *streams: dict[str, Any]) -> None:
    history.note(WORKER, streams)


def test_ages_are_told_by_window_with_gaps_for_as_long_as_a_page_shows() -> None:
    history = RecentHistory(MOST)
    assert history.ages_of("a") == []
    for number in range(3):
        note(history, {"stream": "a", "age_s": float(number)})
    note(history, {"stream": "b", "age_s": 9.0})
    assert history.ages_of("a") == [0.0, 1.0, 2.0, None]
    assert history.ages_of("b") == [9.0]
    for _ in range(HISTORY):
        note(history)
    assert history.ages_of("a") == []
    assert history.of_worker["p99_ms"] == [1.0] * HISTORY


def test_names_that_come_and_go_take_no_memory() -> None:
    history = RecentHistory(MOST)
    note(history, *({"stream": str(number), "age_s": 1.0} for number in range(3 * MOST)))
    assert sum(bool(history.ages_of(str(number))) for number in range(3 * MOST)) == MOST
