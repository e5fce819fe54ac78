"""What is advised for which figures, and what is said not to be known."""

from typing import Any

import pytest

from penstock.core.diagnosis.advice import Advice, Advised, Present, advise
from tests.support.status_documents import document

PRESENT = Present(max_rows=512, max_wait_s=0.010, most_calls=None)


def status(**changes: Any) -> dict[str, Any]:
    """The document of a worker with changes, by `part__key`."""
    found = document()
    for path, value in changes.items():
        *parts, key = path.split("__")
        place = found
        for part in parts:
            place = place[part]
        place[key] = value
    return found


def times(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = document()["calls"]["times"]
    return found | changes


def of_kind(advised: Advised, kind: str) -> Advice:
    (one,) = [advice for advice in advised.advice if advice.kind == kind]
    return one


@pytest.mark.parametrize(
    ("changes", "better", "words"),
    [
        # 50 ms less 14.0 elsewhere leave 36; half of it is 18: 4 ms and 700 rows.
        ({}, 700, "window.max_rows = 512 keeps them smaller"),
        ({"bound_ms": 30}, 200, "window.max_rows = 512 allows them"),
        # Larger calls than twice the largest are not judged.
        ({"bound_ms": 500}, 800, "larger ones were not seen"),
        (
            {"calls__elsewhere_ms": None, "flow__way_ms": {"fetch": 22.0, "call": 9.0}},
            500,
            "allows",
        ),
    ],
)
def test_the_size_that_fits_is_what_a_call_answers_in_half_of_what_is_left(
    changes: dict[str, Any], better: int, words: str
) -> None:
    advice = of_kind(advise(status(**changes), PRESENT), "size")
    assert advice.better == pytest.approx(better, abs=1)
    assert advice.sure is not None
    assert advice.better is not None
    assert advice.sure[0] <= advice.better <= advice.sure[1]
    assert words in advice.said


def test_the_wait_is_within_the_bound_and_long_enough_for_the_calls() -> None:
    advice = of_kind(advise(status(), PRESENT), "wait")
    assert (advice.now, advice.better) == (10.0, 18.0)
    assert "within it" in advice.said
    slow = times(base_s=0.03, row_s=0.0001, mean_s=0.0512)
    crowded = status(bound_ms=100, calls__times=slow, model__calls_allowed=1)
    advice = of_kind(advise(crowded, PRESENT), "wait")
    assert "rows that a call needs" in advice.said


@pytest.mark.parametrize(
    ("changes", "present", "better", "words"),
    [
        ({}, PRESENT, 1, "4 are allowed (learned)"),
        (
            {"rates__rows_per_s": 200_000.0, "calls__held_by": "model"},
            PRESENT, 7, "the server is full",
        ),
        (
            {"rates__rows_per_s": 200_000.0},
            PRESENT._replace(most_calls=4), 7, "model.max_in_flight = 4",
        ),
    ],
)  # fmt: skip
def test_how_many_calls_carry_the_load(
    changes: dict[str, Any], present: Present, better: int, words: str
) -> None:
    advice = of_kind(advise(status(**changes), present), "calls")
    assert advice.better == better
    assert words in advice.said


def test_the_part_that_ends_first_is_named_with_what_more_of_it_would_bring() -> None:
    advised = advise(status(), PRESENT)
    carried = {carry.part: carry.rows_per_s for carry in advised.carries}
    # 3,840 rows a second keep the loop busy for 0.4 of the time; at 0.8 it is full.
    assert carried["the worker's event loop"] == pytest.approx(7_680)
    assert carried["the model"] == pytest.approx(0.8 * 4 * 700 / 0.018, rel=0.01)
    hardware = of_kind(advised, "hardware")
    assert hardware.said.startswith("the worker's event loop ends first, at 7,680")
    assert "(24 streams)" in hardware.said
    assert hardware.better == 15_360
    slow = times(base_s=0.1, row_s=0.0, mean_s=0.1, row_error_s=1e-7)
    advised = advise(status(bound_ms=1_000, calls__times=slow, calls__elsewhere_ms=0.0), PRESENT)
    hardware = of_kind(advised, "hardware")
    assert hardware.said.startswith("the worker's event loop")
    advised = advise(status(calls__times=times(row_s=0.001, mean_s=0.216), bound_ms=2_000), PRESENT)
    hardware = of_kind(advised, "hardware")
    assert hardware.said.startswith("the model ends first")
    assert "a second model server would bring" in hardware.said


def test_a_load_above_one_worker_s_is_told_in_workers() -> None:
    busy = document()["flow"]["busy"] | {"loop": 0.99}
    advised = advise(status(flow__busy=busy), PRESENT)
    assert of_kind(advised, "workers").better == 2
    alone = advise(status(flow__busy=busy, assignments=[]), PRESENT)
    assert "more than one partition" in of_kind(alone, "hardware").said


def test_the_fixed_cost_of_small_calls_is_told_in_time_and_money() -> None:
    small = times(rows_least=2, rows_mean=16.0, rows_most=600, mean_s=0.00432)
    advice = of_kind(advise(status(calls__times=small), PRESENT), "waste")
    assert advice.now == pytest.approx(0.004 / 0.00432, abs=0.01)
    assert advice.better is not None
    # 69 rows come in 18 ms: a call of so many takes 5.4 ms, 4.0 of them fixed.
    assert advice.better == pytest.approx(0.004 / 0.00538, abs=0.01)
    priced = PRESENT._replace(cost_per_hour=2.0)
    said = of_kind(advise(status(calls__times=small), priced), "waste").said
    assert "71 % of the model's time less (1.42 an hour)" in said


def test_a_bound_below_the_smallest_call_is_out_of_reach_and_nothing_else_is_said_of_it() -> None:
    advised = advise(status(bound_ms=18), PRESENT)
    bound = of_kind(advised, "bound")
    assert "no size of batches holds the bound" in bound.said
    # 14 ms elsewhere, and twice the 4.02 ms of a call of one row.
    assert bound.better == 23
    assert {one.kind for one in advised.advice}.isdisjoint({"size", "wait"})


def test_a_size_below_all_that_were_seen_may_hold_the_bound() -> None:
    large = times(
        rows_least=150, rows_mean=300.0, rows_most=512, mean_s=0.302, base_s=0.002, row_s=0.001
    )
    advised = advise(status(bound_ms=100, calls__times=large, calls__elsewhere_ms=20.0), PRESENT)
    assert of_kind(advised, "size").better == 38
    unknown = large | {"row_s": None, "row_error_s": None}
    advised = advise(status(bound_ms=100, calls__times=unknown, calls__elsewhere_ms=20.0), PRESENT)
    assert "no size of batches that was seen holds" in of_kind(advised, "bound").said


def test_a_dear_stream_is_named() -> None:
    costly = {"stream": "site-a/cam-2", "row_s": 1.5, "times": 55.0, "share": 0.6}
    assert (
        "site-a/cam-2 takes 60 %" in of_kind(advise(status(costly=costly), PRESENT), "costly").said
    )
    assert all(one.kind != "costly" for one in advise(status(costly=None), PRESENT).advice)


@pytest.mark.parametrize(
    ("changes", "words", "kinds"),
    [
        ({"calls__times": None}, "fewer than 20 calls", set()),
        ({"rates__rows_per_s": 0.0}, "no rows arrive", set()),
        ({"settled_s": 3.0}, "only just begun", None),
        (
            {"calls__times": times(row_s=None, row_error_s=None, base_s=0.00824)},
            "does not tell how their time grows", {"calls", "hardware"},
        ),
        ({"bound_ms": None}, "no bound", {"calls", "hardware", "waste"}),
        ({"costs__busy_s": 2.6}, "timed at 2.6 at a time", None),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said_and_nothing_is_advised_from_it(
    changes: dict[str, Any], words: str, kinds: set[str] | None
) -> None:
    advised = advise(status(**changes), PRESENT)
    assert any(words in one for one in advised.unknown)
    if kinds is not None:
        assert {one.kind for one in advised.advice} == kinds
