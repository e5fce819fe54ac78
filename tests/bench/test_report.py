"""Reports: the same figures as a table, as a sentence and as JSON."""

from io import StringIO
from pathlib import Path

import orjson
import pytest
from rich.console import Console, RenderableType

from penstock.tools.bench import report
from penstock.tools.bench.streams import StreamsReport
from penstock.tools.bench.throughput import ThroughputReport, ThroughputSummary
from penstock.tools.bench.verdict import Verdict


def trial(streams: int, p99_ms: float | None, *, held: bool, proven: bool = False) -> Verdict:
    return Verdict(
        streams=streams,
        ticks=4_000,
        misses=0 if held else 99,
        unanswered=0,
        p50_ms=11.0,
        p90_ms=16.0,
        p99_ms=p99_ms,
        max_ms=None if p99_ms is None else p99_ms + 10,
        worst_stream_p99_ms=p99_ms,
        worst_stream_misses=0 if held else 9,
        stream_p99s_ms=[p99_ms] * streams,
        streams_within=streams if held else 0,
        held=held,
        proven=proven,
        append_to_append_p50_ms=9.0,
        append_to_append_p99_ms=12.0,
        stages_ms={"schedule": 0.11, "call": 2.64},
        cpu_ms_per_tick={"worker": 0.41, "kafka": 0.3, "others": 0.1},
        cores={"worker": 0.3, "kafka": 0.2, "others": 0.08},
        generator_lag_p99_ms=1.0,
        generator_lag_max_ms=2.0,
        wakeups_per_tick={"worker": 3.14, "kafka": 5.0},
    )


def streams_report(*trials: Verdict, streams: int) -> StreamsReport:
    return StreamsReport(
        hz=20.0,
        bound_ms=50.0,
        rows=8,
        beside_rows=0,
        streams=streams,
        proof=trials[-1] if streams else None,
        trials=list(trials),
        lone_tick={"python": 1841.25, "turns": 26, "sends": 4, "receives": 4, "selects": 26},
    )


def throughput_report(cpu_us_per_row: float | None = 2.345) -> ThroughputReport:
    summary = ThroughputSummary(
        rows_per_object=5_000,
        ratio_to_direct=0.754,
        ratio_to_seed=131.2,
        cpu_us_per_row=cpu_us_per_row,
        cpu_ms_per_object=11.7,
        peak_rss_mb=277.0,
        rows_per_s=156_811.0,
        objects_per_s=31.4,
        direct_rows_per_s=207_974.0,
        direct_cpu_us_per_row=0.5,
        seed_rows_per_s=1_195.0,
    )
    return ThroughputReport(
        columns=16,
        batch_rows=512,
        in_flight=4,
        partitions=4,
        protocol="oip",
        request="float32",
        summaries=[summary],
        rounds=[],
    )


def printed(renderable: RenderableType) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(renderable)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_the_throughput_table_begins_with_the_ratios() -> None:
    text = printed(report.throughput_table(throughput_report()))
    assert text.index("0.75") < text.index("131") < text.index("2.35") < text.index("156,811")


def test_cpu_time_that_was_too_short_to_measure_is_shown_in_words() -> None:
    text = printed(report.throughput_table(throughput_report(cpu_us_per_row=None)))
    assert "too short to tell" in text


def test_the_trials_table_shows_every_trial_with_its_verdict() -> None:
    trials = (
        trial(40, None, held=False),
        trial(20, 21.0, held=True),
        trial(20, 22.0, held=True, proven=True),
    )
    text = printed(report.trials_table(streams_report(*trials, streams=20)))
    assert [word for word in text.split() if word in ("missed", "held", "proven")] == [
        "missed", "missed", "held", "proven",
    ]  # fmt: skip


def test_where_the_time_goes_shows_stages_beside_processes() -> None:
    text = printed(report.where_table(trial(20, 21.0, held=True)))
    assert all(figure in text for figure in ("schedule", "0.11", "call", "2.64", "kafka", "0.30"))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            streams_report(trial(20, 21.0, held=True, proven=True), streams=20),
            "20 streams[/bold] at",
        ),
        (streams_report(trial(20, 21.0, held=True), streams=0), "--seconds 23 may do"),
        (streams_report(trial(20, 80.0, held=False), streams=0), "20 streams missed"),
    ],
)
def test_the_result_is_a_sentence(found: StreamsReport, sentence: str) -> None:
    assert sentence in report.result_line(found)


def test_the_json_has_every_figure_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report.write_json(path, "throughput", throughput_report())
    document = orjson.loads(path.read_bytes())
    assert document["bench"] == "throughput"
    assert document["summaries"][0]["ratio_to_direct"] == 0.754
    assert document["machine"]["cores"] >= 1


def test_wake_ups_are_shown_for_the_processes_that_they_are_counted_for() -> None:
    rows = printed(report.where_table(trial(20, 9.0, held=True))).splitlines()
    (worker,) = [line for line in rows if "worker" in line]
    (others,) = [line for line in rows if "others" in line]
    assert "3.1" in worker
    assert "3.1" not in others


def test_the_report_says_what_a_lone_tick_calls() -> None:
    line = report.lone_tick_line(streams_report(trial(20, 16.0, held=True), streams=0))
    assert "1,841.2 calls in Python, 26.0 turns of the event loop, and 4.0 sends" in line
