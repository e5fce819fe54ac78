"""When ticks are due."""

from collections import defaultdict

import pytest

from penstock.tools.bench.tick_generator import (
    GRID_MS,
    Ticks,
    bodies,
    huge_references,
    key_of,
    schedule,
)


def due_by_stream(streams: int, hz: float, ticks: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for due in schedule(streams, hz, ticks):
        for stream in due.streams:
            found[stream].append(due.at_ms)
    return found


@pytest.mark.parametrize("streams", [1, 2, 7, 25, 60, 500])
def test_every_stream_has_all_its_ticks_one_period_apart(streams: int) -> None:
    due = due_by_stream(streams, 20, 5)
    assert sorted(due) == list(range(streams))
    for times in due.values():
        assert [later - times[0] for later in times] == [0, 50, 100, 150, 200]


def test_a_period_that_is_no_whole_number_of_milliseconds_does_not_drift() -> None:
    assert due_by_stream(1, 15, 31)[0][30] == 2_000


def test_streams_are_spread_over_the_period() -> None:
    first = [times[0] for times in due_by_stream(25, 20, 1).values()]
    assert first == list(range(0, 50, GRID_MS["grid"]))


def test_streams_that_are_evenly_spread_have_instants_of_their_own() -> None:
    first = [(due.at_ms, len(due.streams)) for due in schedule(40, 20, 1, "even")]
    assert first == [(int(stream * 50 / 40), 1) for stream in range(40)]


def test_ticks_come_in_the_order_in_which_they_are_due() -> None:
    times = [due.at_ms for due in schedule(60, 20, 4)]
    assert times == sorted(times)


def test_every_tick_names_an_object_that_is_stored() -> None:
    stored = bodies(8, 0, 3)
    assert all(key_of(8, stream, tick) in stored for stream in range(3) for tick in range(50))
    assert {body.count(b"\n") for body in stored.values()} == {8}
    assert {body.count(b",") for body in stored.values()} == {8 * 15}


@pytest.mark.parametrize(("rows", "references"), [(1_000_000, 6), (5_000, 1_150), (8, 92_000)])
def test_more_objects_are_announced_beside_the_ticks_than_a_worker_reads(
    rows: int, references: int
) -> None:
    ticks = Ticks(bucket="b", rows=8, streams=1, hz=20, seconds=20, beside_rows=rows)
    assert huge_references(ticks) == references
