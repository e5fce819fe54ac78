"""Rates and CPU per row from what was observed."""

import pytest

from penstock.errors import Fatal
from penstock.tools.bench.reader import ReadAnswer
from penstock.tools.bench.throughput import (
    Round,
    ThroughputPlan,
    ThroughputSample,
    check_answered,
    cpu_s_per_row,
    steady_rate,
    summarise,
)


def answer(rows: int, *, disorders: int = 0, errors: int = 0) -> ReadAnswer:
    return ReadAnswer(1, rows, errors, disorders, [], [])


def a_round(
    rows_per_s: float = 1_000.0,
    direct_rows_per_s: float = 1_000.0,
    peak_rss_mb: float = 100.0,
    cpu_us_per_row: float | None = 3.0,
) -> Round:
    return Round(
        rows_per_object=500,
        objects=10,
        rows=5_000,
        rows_per_s=rows_per_s,
        objects_per_s=rows_per_s / 500,
        cpu_us_per_row=cpu_us_per_row,
        cpu_ms_per_object=1.5,
        peak_rss_mb=peak_rss_mb,
        direct_rows_per_s=direct_rows_per_s,
        direct_cpu_us_per_row=0.5,
        seed_rows_per_s=1_000.0,
        ratio_to_direct=rows_per_s / direct_rows_per_s,
        ratio_to_seed=rows_per_s / 1_000.0,
    )


def test_the_first_fifth_of_the_rows_is_not_counted() -> None:
    slow_start = [(0, 100), (5_000, 100)]
    steady = [(5_000 + 100 * number, 100) for number in range(1, 9)]
    assert steady_rate([*slow_start, *steady]) == pytest.approx(1_000)


def test_rows_that_all_come_at_once_have_no_rate() -> None:
    with pytest.raises(Fatal, match="too few rows"):
        steady_rate([(7, 1_000)])


def test_cpu_per_row_leaves_the_start_out() -> None:
    samples = [
        ThroughputSample(0, 0.0),
        ThroughputSample(0, 1.0),
        ThroughputSample(200, 1.2),
        ThroughputSample(600, 1.4),
        ThroughputSample(1_000, 1.6),
    ]
    assert cpu_s_per_row(samples) == pytest.approx(0.4 / 800)


def test_cpu_per_row_of_a_round_too_short_to_leave_the_start_out_counts_the_whole_round() -> None:
    assert cpu_s_per_row([ThroughputSample(0, 0.0), ThroughputSample(1_000, 2.0)]) == pytest.approx(
        0.002
    )


def test_a_part_of_a_few_steps_of_cpu_time_is_too_short_to_tell() -> None:
    samples = [ThroughputSample(0, 0.0), ThroughputSample(200, 1.0), ThroughputSample(1_000, 1.07)]
    assert cpu_s_per_row(samples) is None


def test_the_median_is_that_of_the_rounds_with_a_figure() -> None:
    rounds = [a_round(cpu_us_per_row=figure) for figure in (3.0, None, 5.0)]
    assert summarise(rounds).cpu_us_per_row == pytest.approx(4.0)
    assert summarise([a_round(cpu_us_per_row=None)]).cpu_us_per_row is None


@pytest.mark.parametrize(
    "spoiled", [answer(9), answer(11), answer(10, disorders=1), answer(10, errors=1)]
)
def test_rows_that_are_lost_out_of_order_or_rejected_are_no_measurement(
    spoiled: ReadAnswer,
) -> None:
    check_answered(answer(10), 10)
    with pytest.raises(Fatal, match="no measurement"):
        check_answered(spoiled, 10)


def test_the_summary_takes_the_median_of_the_ratios_and_the_highest_peak() -> None:
    rounds = [a_round(100, 200), a_round(150, 200, peak_rss_mb=120.0), a_round(120, 150)]
    summary = summarise(rounds)
    assert summary.ratio_to_direct == 0.75
    assert summary.rows_per_s == 120
    assert summary.peak_rss_mb == 120.0
    assert summary.rows_per_object == 500


def test_a_round_is_bounded_by_rows_and_by_objects() -> None:
    plan = ThroughputPlan(rows=100_000)
    assert plan.objects(5_000) == 20
    assert plan.objects(8) == 8_000
    assert plan.objects(1_000_000) == 1
