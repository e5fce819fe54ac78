"""Recordings for the alerts: what two or three workers export while a thing goes wrong, every 15 s.

Rule: written in promtool's notation, in the form that a worker exports (a test compares names and
labels); health first, and each scenario says only what is different. `FAIL` is when it begins.
"""

from collections.abc import Mapping
from typing import Final

# An hour of samples, 15 s apart; the failure begins after 20 minutes.
LAST: Final = 240
FAIL: Final = 80
REST: Final = LAST - FAIL

Series = dict[str, str]

HEALTH: Final[Series] = {
    "up": f"1x{LAST}",
    "penstock_records_total": f"0+60x{LAST}",
    "penstock_rows_delivered_total": f"0+1200x{LAST}",
    "penstock_latency_seconds_count": f"0+60x{LAST}",
    "penstock_objects_over_bound_total": f"0+0.2x{LAST}",
    "penstock_rejected_total{code='bad_row'}": f"0+0.5x{LAST}",
    "penstock_commits_total": f"0+30x{LAST}",
    "penstock_commit_failures_total": f"0x{LAST}",
    "penstock_buffer_bytes": f"5000000x{LAST}",
    "penstock_buffer_limit_bytes": f"268435456x{LAST}",
    "penstock_partitions": f"2x{LAST}",
    "penstock_lines_stopped": f"0x{LAST}",
    "penstock_backlog_seconds": f"0.1x{LAST}",
    "penstock_owed_objects": f"3x{LAST}",
    "penstock_input_retention_seconds": f"604800x{LAST}",
    "penstock_lag_records": f"5x{LAST}",
    "penstock_lag_age_seconds": f"1x{LAST}",
    **{
        f"penstock_bound_by{{by='{by}'}}": f"0x{LAST}"
        for by in ("worker", "model", "store", "kafka", "skew")
    },
    "penstock_shadow_rows_total{outcome='agreed'}": f"0+120x{LAST}",
    "penstock_shadow_rows_total{outcome='disagreed'}": f"0+0.5x{LAST}",
}


def level(before: float, after: str) -> str:
    """A gauge that changes when it fails."""
    return f"{before}x{FAIL} {after}"


def counter(before: float, after: float) -> str:
    """A counter whose growth per sample changes when it fails."""
    return f"0+{before}x{FAIL} {before * FAIL + after}+{after}x{REST - 1}"


def bound(by: str) -> Series:
    return {f"penstock_bound_by{{by='{by}'}}": level(0, f"1x{REST}")}


def problem(kind: str, service: str = "", stream: str = "") -> Series:
    """What the worker's page says in its first line."""
    labels = f"kind='{kind}',service='{service}',stream='{stream}'"
    return {f"penstock_problem{{{labels}}}": f"_x{FAIL} 1x{REST}"}


# All objects are late, as whenever something is the limit.
LATE: Final[Series] = {"penstock_objects_over_bound_total": counter(0.2, 60)}
_STANDS: Final[Series] = {
    "penstock_rows_delivered_total": counter(1200, 0),
    "penstock_latency_seconds_count": counter(60, 0),
    "penstock_objects_over_bound_total": counter(0.2, 0),
}
_GROWING: Final[Series] = {
    "penstock_lag_records": level(5, f"5+20x{REST}"),
    "penstock_backlog_seconds": level(0.1, f"0+5x{REST}"),
}

# By alert: what the first worker exports instead.
FAILURES: Final[Mapping[str, Series]] = {
    "PenstockBacklogOld": {
        "penstock_backlog_seconds": level(0.1, f"310000x{REST}"),
        "penstock_lag_records": level(5, f"2000000-40x{REST}"),
        **bound("worker"),
        **LATE,
    },
    "PenstockNoProgress": {
        **_STANDS,
        "penstock_records_total": counter(60, 0),
        "penstock_owed_objects": level(3, f"64x{REST}"),
        "penstock_lag_records": level(5, f"5+60x{REST}"),
        "penstock_backlog_seconds": level(0.1, f"0+15x{REST}"),
        **bound("store"),
    },
    "PenstockMetricsAbsent": {
        name: f"{values.removesuffix(f'x{LAST}')}x{FAIL} stale" for name, values in HEALTH.items()
    }
    | {"up": level(1, f"0x{REST}")},
    "PenstockObjectsLate": {**LATE, **bound("worker"), "penstock_lag_records": level(5, "9x159")},
    "PenstockModelBound": {**LATE, **_GROWING, **bound("model")},
    "PenstockCostlyStream": {
        **LATE,
        **_GROWING,
        **bound("model"),
        **problem("costly", stream="cam-3"),
    },
    "PenstockSkewed": {**LATE, **_GROWING, **bound("skew")},
    "PenstockServiceAway": {
        **_STANDS,
        **_GROWING,
        **bound("kafka"),
        **problem("away", service="Kafka broker"),
        "penstock_owed_objects": level(3, f"64x{REST}"),
        "penstock_lag_age_seconds": level(1, f"0+15x{REST}"),
    },
    "PenstockStarved": {**LATE, **_GROWING, **bound("worker"), **problem("starved")},
    "PenstockClockOff": {**LATE, **problem("clock")},
    "PenstockStreamsSilent": problem("silent", stream="cam-3"),
    "PenstockLineStopped": {
        **_STANDS,
        "penstock_rejected_total{code='bad_row'}": f"0+0.5x{FAIL} 140x{REST}",
        "penstock_lines_stopped": level(0, f"1x{REST}"),
        "penstock_owed_objects": level(3, f"64x{REST}"),
        "penstock_lag_records": level(5, f"5+60x{REST}"),
        "penstock_backlog_seconds": level(0.1, f"0+15x{REST}"),
    },
    "PenstockLettersRising": {"penstock_rejected_total{code='bad_row'}": counter(0.5, 60)},
    "PenstockStoreFailsOver": {
        "penstock_store_failovers_total{store='near'}": f"_x{FAIL} 1x30 2x{REST - 31}"
    },
    "PenstockBufferFull": {
        **LATE,
        **bound("worker"),
        "penstock_buffer_bytes": level(5e6, f"266000000x{REST}"),
    },
    "PenstockShadowDisagrees": {
        "penstock_shadow_rows_total{outcome='disagreed'}": counter(0.5, 30)
    },
    "PenstockScenesLose": {
        "penstock_scenes_predictions_total{site='s',what='arrived'}": counter(600, 600),
        "penstock_scenes_predictions_total{site='s',what='late'}": counter(6, 500),
    },
    "PenstockCommitsFail": {
        "penstock_commits_total": counter(30, 0),
        "penstock_commit_failures_total": counter(0, 3),
        "penstock_lag_records": level(5, f"5+60x{REST}"),
    },
}


def started_again(at: int) -> Series:
    """A worker drains, is away for half a minute, and begins again at 0 with a small backlog."""
    rest = LAST - at - 3
    found = {}
    for name, values in HEALTH.items():
        begin, step, _ = values.replace("+", "x").split("x") if "+" in values else (values, "", "")
        if step:
            found[name] = f"{begin}+{step}x{at} stale _ {begin}+{step}x{rest}"
        else:
            found[name] = f"{values.removesuffix(f'x{LAST}')}x{at} stale _ "
            found[name] += f"{values.removesuffix(f'x{LAST}')}x{rest}"
    return found | {
        "up": f"1x{at} 0 0 1x{rest}",
        "penstock_backlog_seconds": f"0.1x{at} stale _ 12 6 0.1x{rest - 2}",
        "penstock_lag_records": f"5x{at} stale _ 700 300 5x{rest - 2}",
        "penstock_objects_over_bound_total": f"0+0.2x{at} stale _ 0 60 90 90.2+0.2x{rest - 3}",
    }


def bystander(at: int) -> Series:
    """What another worker exports meanwhile: a pause, a failed commit, then the other's load."""
    return {
        "penstock_partitions": f"2x{at} 4 4 2x{LAST - at - 2}",
        "penstock_commit_failures_total": f"0x{at} 1x{LAST - at - 1}",
        "penstock_bound_by{by='kafka'}": f"0x{at} 1 0x{LAST - at - 2}",
        "penstock_backlog_seconds": f"0.1x{at} 4 1 0.1x{LAST - at - 2}",
        "penstock_objects_over_bound_total": f"0+0.2x{at} 40 60+0.2x{LAST - at - 2}",
    }


# No alert fires in any of these; a list of what each worker exports instead of health.
QUIET: Final[Mapping[str, list[Series]]] = {
    "health": [{}, {}],
    "restart": [started_again(FAIL), bystander(FAIL)],
    "rolling restart": [started_again(FAIL), started_again(FAIL + 8), bystander(FAIL + 16)],
}


def named(instance: int, changes: Series) -> Series:
    """The worker's series with the labels that Prometheus adds."""
    labels = f'job="penstock",instance="10.0.0.{instance}:8900"'
    found = {}
    for name, values in (HEALTH | changes).items():
        metric, _, own = name.replace("'", '"').partition("{")
        found[f"{metric}{{{labels}{',' + own if own else '}'}"] = values
    return found
