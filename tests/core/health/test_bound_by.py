"""What limits a worker, by each rule."""

import pytest

from penstock.core.health.bound_by import Away, Busy, bound_by, is_late
from penstock.core.health.growth import Growth

WAY = {"kafka_in": 9.0, "queue": 0.1, "fetch": 0.1, "wait": 0.1, "call": 0.1, "publish": 0.1}


IDLE, NONE_AWAY = Busy(), Away()


def verdict(
    busy: Busy = IDLE,
    away: Away = NONE_AWAY,
    way_s: dict[str, float] | None = None,
    lags: tuple[int, ...] = (5, 5),
    *,
    late: bool = True,
) -> str | None:
    return bound_by(busy, away, WAY if way_s is None else way_s, lags, late=late)


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
