"""What limits a worker, by each rule."""

from typing import Any

import pytest

from penstock.core.health.bound_by import Away, Backlogs, Busy, are_most_late, bound_by, is_late
from penstock.ops.service_answers import Growth

WAY = {"kafka_in": 9.0, "queue": 0.1, "fetch": 0.1, "wait": 0.1, "call": 0.1, "publish": 0.1}


IDLE, NONE_AWAY = Busy(), Away()


def verdict(
    busy: Busy = IDLE,
    away: Away = NONE_AWAY,
    way_s: dict[str, float] | None = None,
    lags: tuple[int, ...] = (5, 5),
    done: tuple[int, ...] = (),
    *,
    late: bool = True,
    widely: bool = True,
) -> str | None:
    backlogs = Backlogs(dict(enumerate(lags)), dict(enumerate(done)))
    way_s = WAY if way_s is None else way_s
    return bound_by(busy, away, way_s, backlogs, late=late, widely=widely)


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        (Busy(loop=0.9, calls=1.0, fetchers=1.0), "worker"),
        (Busy(calls=0.9, fetchers=1.0, buffer=1.0), "model"),
        (Busy(publishing=0.9, calls=1.0), "kafka"),
        (Busy(fetchers=0.9, buffer=1.0), "store"),
        (Busy(decoders=0.9, fetchers=1.0), "worker"),
        (Busy(buffer=0.9), "worker"),
        (Busy(loop=0.7, calls=0.7, fetchers=0.7), None),
    ],
)
def test_the_part_that_is_full_is_the_limit(busy: Busy, expected: str | None) -> None:
    assert verdict(busy) == expected
    assert verdict(busy, late=False) is None


def test_a_service_that_is_away_comes_before_whatever_is_full() -> None:
    full = Busy(1.0, 1.0, 1.0, 1.0)
    assert verdict(full, Away(model=True)) == "model"
    assert verdict(full, Away(store=True)) == "store"
    assert verdict(full, Away(kafka=True), late=False) == "kafka"


@pytest.mark.parametrize(
    ("part", "expected"),
    [("fetch", "store"), ("decode", "worker"), ("call", "model"), ("publish", "kafka")],
)
def test_with_nothing_full_the_slowest_part_is_the_limit(part: str, expected: str) -> None:
    assert verdict(way_s=WAY | {part: 1.0}) == expected


def test_one_hot_partition_is_skew_and_no_lack_of_workers() -> None:
    hot = (0, 100, 3)
    assert verdict(lags=hot) == "skew"
    assert verdict(Busy(loop=1.0), lags=hot) == "skew"
    assert verdict(Busy(calls=1.0), lags=hot) == "model"
    assert verdict(lags=(100,)) is None


def test_a_partition_that_waits_for_one_slow_object_is_not_hot() -> None:
    hot = (0, 100, 3)
    assert verdict(lags=hot, done=(40, 80, 40)) == "skew"
    assert verdict(lags=hot, done=(40, 40, 40)) is None
    assert verdict(Busy(loop=1.0), lags=hot, done=(40, 2, 40)) == "worker"


def test_no_part_is_blamed_for_what_few_streams_suffer() -> None:
    slow = WAY | {"fetch": 9.0}
    assert verdict(way_s=slow) == "store"
    assert verdict(way_s=slow, widely=False) is None
    assert verdict(Busy(calls=0.9), widely=False) == "model"


@pytest.mark.parametrize(
    ("late", "on_time", "others_ms", "expected"),
    [
        (1, 3, None, False),
        (2, 2, None, False),
        (3, 1, None, True),
        (1, 0, None, True),
        (0, 0, None, False),
        (20, 0, 30.0, False),
        (20, 0, 90.0, True),
        (19, 1, 90.0, False),
    ],
)
def test_most_streams_are_late_or_only_a_few(
    late: int, on_time: int, others_ms: float | None, expected: bool
) -> None:
    slow: list[dict[str, Any]] = [
        {"age_s": 2.0, "p99_ms": None},
        {"age_s": 0.01, "p99_ms": 60.0},
    ] * late
    well = {"age_s": 0.01, "p99_ms": 40.0}
    stopped = {"age_s": 900.0, "p99_ms": None, "stopped": True}
    streams = [*slow[:late], *[well] * on_time, stopped]
    others = None if others_ms is None else well | {"p99_ms": others_ms}
    assert are_most_late(streams, others, 50.0) == expected


def test_a_part_that_takes_next_to_nothing_makes_nobody_late() -> None:
    """As when one camera is slow, and the others have what they always have."""
    streams: list[dict[str, Any]] = [{"age_s": 0.01, "p99_ms": 40.0}] * 3
    assert are_most_late(streams, None, 26.0, 25.0)
    assert not are_most_late(streams, None, 7.0, 25.0)


def test_a_worker_is_late_by_age_by_lag_or_by_its_bound() -> None:
    assert not is_late(0.5, 0.5, None)
    assert not is_late(0.0, 0.0, 0.01)
    assert is_late(1.1, 0.0, None)
    assert is_late(0.0, 1.1, None)
    assert is_late(0.0, 0.0, 0.02)


def test_growth_is_that_of_partitions_that_were_there_all_the_time() -> None:
    growth = Growth()
    growth.add(0.0, {0: 100})
    assert growth.per_s is None
    for second in range(2, 31, 2):
        growth.add(second, {0: 100 + 5 * second, 1: 70_000})
    assert growth.per_s == pytest.approx(5.0)
