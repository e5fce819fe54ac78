"""The chart's scaling over days of load: it follows, never flaps, and adds no worker in vain."""

import subprocess
from functools import cache
from math import pi, sin
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.autoscaler import DAY_S, SYNC_S, Autoscaler, Day, Moment, Seen, day, flaps, wanted
from tests.deploy.tools import rendered, tool

(SCALED,) = [one["spec"] for one in rendered("fleet") if one["kind"] == "ScaledObject"]
KAFKA, PROMETHEUS = (trigger["metadata"] for trigger in SCALED["triggers"])
JOB = 'job="default/cams-penstock"'
# The values of the chart that the query has in it.
BACKLOG_S, TARGET = 30.0, 0.7
# Objects a second of one worker.
RATE = 20.0


def noise(at_s: int) -> float:
    """From -1 to 1, another one each minute, the same in every run."""
    return ((at_s // 60 * 2_654_435_761) % 2**32) / 2**31 - 1.0


def daily(at_s: int) -> float:
    return 60.0 - 50.0 * sin(2 * pi * at_s / DAY_S + pi / 2)


def noisy(at_s: int) -> float:
    return daily(at_s) * (1 + 0.3 * noise(at_s))


DAYS = {
    "steady": Day(lambda _: 40.0),
    "daily": Day(daily),
    "noisy": Day(noisy),
    "bursts": Day(lambda at_s: 60.0 if at_s % 3600 < 600 else 15.0),
    "at the edge": Day(lambda at_s: 2 * RATE * TARGET * (1 + 0.15 * noise(at_s))),
    "export": Day(lambda at_s: daily(at_s) + (400.0 if 7200 <= at_s < 7500 else 0.0)),
    "model bound": Day(noisy, model=lambda at_s: 45.0 if 28_800 <= at_s < 57_600 else 1e9),
    "store away": Day(noisy, is_away=lambda at_s: 36_000 <= at_s < 37_200),
    "silence": Day(lambda at_s: 0.0 if at_s % 1200 else 5.0),
}


@cache
def passed(name: str) -> tuple[Autoscaler, list[Moment]]:
    return day(DAYS[name], SCALED, RATE, BACKLOG_S, TARGET)


@pytest.mark.parametrize("name", DAYS)
def test_a_day_has_no_flaps_and_ends_without_a_backlog(name: str) -> None:
    scaler, moments = passed(name)
    assert flaps(scaler.changes) == []
    assert moments[-1].seen.backlog_s < BACKLOG_S


@pytest.mark.parametrize("name", DAYS)
def test_no_worker_is_added_in_vain(name: str) -> None:
    scaler, moments = passed(name)
    seen = {moment.at_s: moment.seen for moment in moments}
    added = [seen[at_s] for at_s, by in scaler.changes if by > 0]
    assert not [one for one in added if one.elsewhere > 0.5]
    assert not [one for one in added if one.backlog_s > BACKLOG_S and one.is_draining]


def test_it_follows_the_load() -> None:
    _, moments = passed("daily")
    counts = [moment.replicas for moment in moments]
    assert min(counts) == 1
    assert max(counts) == 8
    assert max(moment.seen.backlog_s for moment in moments) < BACKLOG_S


def test_a_model_that_is_the_limit_gets_no_more_workers() -> None:
    _, moments = day(DAYS["model bound"], SCALED, RATE, BACKLOG_S, TARGET)
    bound = [moment for moment in moments if moment.seen.elsewhere > 0.5]
    assert len(bound) * SYNC_S > 3600
    assert max(one.replicas for one in bound) <= bound[0].replicas


def test_the_judge_sees_flaps_where_there_are_some() -> None:
    behavior = {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
        },
    }
    nervous = SCALED | {"advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}}}
    scaler, _ = day(DAYS["bursts"], nervous, RATE, BACKLOG_S, TARGET)
    assert flaps(scaler.changes)


def test_the_first_worker_is_kafka_s_decision_and_the_others_are_not() -> None:
    assert KAFKA["activationLagThreshold"] == "0"
    assert float(KAFKA["lagThreshold"]) > 1e9
    # More workers than this there are never.
    assert float(PROMETHEUS["activationThreshold"]) > SCALED["maxReplicaCount"] * 1.5
    behavior = SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert SCALED["cooldownPeriod"] >= 300


SEEN = [
    Seen(3, 0.0, 0.1, False, 0.7),
    Seen(3, 0.0, 0.1, False, 0.2),
    Seen(2, 0.0, 5.0, False, 0.95),
    Seen(4, 0.0, 40.0, False, 1.0),
    Seen(4, 0.0, 40.0, True, 1.0),
    Seen(4, 1.0, 40.0, False, 0.3),
    Seen(1, 1.0, 0.1, False, 0.3),
]


def exported(seen: Seen) -> list[dict[str, str]]:
    """The metrics of so many workers, all alike, and of one of another job."""
    series: dict[str, str] = {'penstock_partitions{job="other",instance="a"}': "2x60"}
    for number in range(seen.workers):
        own = f'{JOB},instance="{number}"'
        series[f"penstock_partitions{{{own}}}"] = "2x60"
        series[f"penstock_backlog_seconds{{{own}}}"] = f"{seen.backlog_s}x60"
        series[f'penstock_bound_by{{{own},by="model"}}'] = f"{seen.elsewhere}x60"
        series[f'penstock_bound_by{{{own},by="worker"}}'] = f"{1 - seen.elsewhere}x60"
        series[f'penstock_busy{{{own},part="loop"}}'] = f"{seen.load}x60"
        series[f'penstock_busy{{{own},part="calls"}}'] = "1x60"
        if seen.is_draining:
            series[f"penstock_drain_seconds{{{own}}}"] = "100x60"
    return [{"series": name, "values": values} for name, values in series.items()]


def test_the_query_is_what_the_simulation_takes_it_for(tmp_path: Path) -> None:
    tests: list[dict[str, Any]] = []
    for seen in SEEN:
        # Promtool takes only the very same number, so it is asked whether they are near.
        query = f"abs({PROMETHEUS['query']} - {wanted(seen, BACKLOG_S, TARGET)}) < bool 1e-9"
        expected = [{"labels": "{}", "value": 1}]
        asked = [{"expr": query, "eval_time": "10m", "exp_samples": expected}]
        tests.append({"interval": "15s", "input_series": exported(seen), "promql_expr_test": asked})
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": tests}))
    command = [tool("promtool"), "test", "rules", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
