"""The verdict on a trial's ticks: percentiles, misses, where the time went."""

from collections.abc import Sequence

import pytest

from penstock.tools.bench.reader import Tick
from penstock.tools.bench.verdict import Sent, Verdict, judge, misses_by_s, stage_means_ms

SENT = Sent(ticks=0, lag_mean_ms=0.2, lag_p99_ms=1.0, lag_max_ms=2.0, cpu_s=0.1)


def ticks_of(stream: str, latencies: Sequence[int | None]) -> list[Tick]:
    """Due every 50 ms, appended 2 ms later, answered after the given times."""
    return [
        Tick(stream, due, due + 2, None if latency is None else due + latency)
        for due, latency in zip(range(0, 50 * len(latencies), 50), latencies, strict=True)
    ]


def judged(*streams: Sequence[int | None]) -> Verdict:
    ticks = [tick for number, each in enumerate(streams) for tick in ticks_of(str(number), each)]
    return judge(len(streams), 50.0, ticks, SENT, {"worker": 0.5, "others": 0.2}, 10.0, {})


def test_latency_runs_from_the_due_time_and_from_the_append() -> None:
    trial = judged([10] * 500)
    assert (trial.p50_ms, trial.p99_ms, trial.max_ms) == (10, 10, 10)
    assert (trial.append_to_append_p50_ms, trial.append_to_append_p99_ms) == (8, 8)


def test_a_tick_at_the_bound_is_in_time_and_one_beyond_it_is_a_miss() -> None:
    trial = judged([50] * 99 + [51])
    assert trial.misses == 1
    assert trial.held
    assert not judged([50] * 98 + [51] * 2).held


def test_an_unanswered_tick_is_a_miss_and_has_no_latency() -> None:
    trial = judged([10] * 98 + [None] * 2)
    assert (trial.misses, trial.unanswered) == (2, 2)
    assert trial.p50_ms == 10
    assert trial.p99_ms is None
    assert trial.max_ms is None
    assert not trial.held


def test_the_worst_stream_must_hold_as_well_as_all_together() -> None:
    good = [[10] * 100] * 9
    trial = judged(*good, [10] * 95 + [90] * 5)
    assert trial.p99_ms == 10
    assert trial.worst_stream_p99_ms == 90
    assert trial.worst_stream_misses == 5
    assert sorted(trial.stream_p99s_ms, key=str) == [10] * 9 + [90]
    assert trial.streams_within == 9
    assert not trial.held


def test_a_proof_needs_enough_ticks_of_every_stream() -> None:
    assert judged([10] * 459, [10] * 459).proven
    assert not judged([10] * 458, [10] * 458).proven
    assert judged([10] * 661 + [90], [10] * 662).proven
    assert not judged([10] * 660 + [90] * 2, [10] * 662).proven


def test_misses_are_counted_by_the_second_in_which_they_were_due() -> None:
    ticks = ticks_of("0", [10] * 19 + [90] + [10] * 20 + [None] * 3)
    assert misses_by_s(ticks, 50.0, 0) == [1, 0, 3]


def test_cpu_is_told_by_tick_and_in_cores() -> None:
    trial = judged([10] * 500)
    assert trial.cpu_ms_per_tick["worker"] == pytest.approx(1.0)
    assert trial.cores["worker"] == pytest.approx(0.05)


def test_others_are_judged_by_their_busiest_second() -> None:
    trial = judged([10] * 500)
    assert trial.others_cores == 0.0
    trial.others_by_s = [0.0, 0.7, 0.1]
    assert trial.others_cores == 0.7


def test_the_times_of_the_stages_and_the_rest_add_up_to_the_mean() -> None:
    stages_ms = {"wait": 4.0, "call": 3.0}
    trial = judge(1, 50.0, ticks_of("0", [10] * 500), SENT, {}, 10.0, stages_ms)
    assert trial.stages_ms["schedule"] == 0.2
    assert trial.stages_ms["wait"] == 4.0
    # Half a millisecond is what the broker's time stamps cut off.
    assert sum(trial.stages_ms.values()) == pytest.approx(10.5)


def test_a_stage_is_the_mean_over_the_objects_of_the_measured_part_only() -> None:
    count, call = ("penstock_latency_seconds_count", ""), ("penstock_way_seconds_total", "call")
    means_ms = stage_means_ms({count: 10.0, call: 1.0}, {count: 110.0, call: 1.5})
    assert means_ms["call"] == pytest.approx(5.0)
    assert means_ms["publish"] == 0.0


def test_without_a_delivered_object_there_are_no_stages() -> None:
    assert stage_means_ms({}, {}) == {}
