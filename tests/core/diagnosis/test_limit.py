"""What limits a worker, by each rule."""

from typing import Any

import pytest

from penstock.core.diagnosis.limit import are_most_late, is_late, limit
from penstock.ops.service_answers import Growth
from tests.support.partitions import P0, P1
from tests.support.status_documents import assignment, document
from tests.support.troubles import LATE, cpu, flow

IDLE = {"loop": 0.1, "calls": 0.1, "buffer": 0.1, "fetchers": 0.1, "decoders": 0.1}
WAY = {"kafka_in": 900.0, "queue": 10.0, "fetch": 10.0, "wait": 10.0, "call": 10.0, "publish": 9.0}


def kind(
    busy: dict[str, float] | None = None,
    *,
    late: bool = True,
    widely: bool = True,
    lags: tuple[int, ...] = (5, 5),
    done: tuple[float, ...] = (),
    way: dict[str, float] = WAY,
    ran: float = 0.9,
    stopped: int | None = None,
) -> str | None:
    late_s = 3.0 if widely else 0.01
    whole = flow(
        **(LATE if late else {}), busy=IDLE | (busy or {}), way_ms=way, cpu=cpu(ran=ran)
    ) | {
        "streams": [stream | {"age_s": late_s} for stream in document()["streams"]],
        "assignments": [
            assignment(number)
            | {"lag": lag, "committed_per_s": done[number] if done else 0.0}
            | ({"stopped": [{"stream": "cam-1"}]} if number == stopped else {})
            for number, lag in enumerate(lags)
        ],
    }
    problem = limit(document() | whole)
    return None if problem is None else problem.kind


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ({"loop": 0.9, "calls": 1.0, "fetchers": 1.0}, "worker"),
        ({"calls": 0.9, "fetchers": 1.0, "buffer": 1.0}, "model"),
        ({"publishing": 0.9, "calls": 1.0}, "kafka"),
        ({"fetchers": 0.9, "buffer": 1.0}, "store"),
        ({"decoders": 0.9, "fetchers": 1.0}, "worker"),
        ({"buffer": 0.9}, "buffer"),
        ({"loop": 0.7, "calls": 0.7, "fetchers": 0.7}, None),
    ],
)
def test_the_part_that_is_full_is_the_limit(busy: dict[str, float], expected: str | None) -> None:
    assert kind(busy) == expected
    assert kind(busy, late=False) is None


def test_a_loop_that_gets_no_processor_is_starved_and_not_busy() -> None:
    assert kind({"loop": 0.95}, ran=0.2) == "starved"
    assert kind({"loop": 0.95}, ran=0.9) == "worker"
    assert kind({"loop": 0.95}, ran=0.2, late=False) is None
    # It waits longer than it works; with a full part beside, that part is the limit.
    assert kind({"loop": 0.6}, ran=0.15) == "starved"
    assert kind({"loop": 0.6}, ran=0.4) is None
    assert kind({"loop": 0.6, "calls": 0.9}, ran=0.15) == "model"


@pytest.mark.parametrize(
    ("part", "expected"),
    [("fetch", "store"), ("decode", "worker"), ("call", "model"), ("publish", "kafka")],
)
def test_with_nothing_full_the_slowest_part_is_the_limit(part: str, expected: str) -> None:
    assert kind(way=WAY | {part: 100.0}) == expected


def test_one_hot_partition_is_skew_and_no_lack_of_workers() -> None:
    hot = (0, 100, 3)
    assert kind(lags=hot) == "skew"
    assert kind({"loop": 1.0}, lags=hot) == "skew"
    assert kind({"calls": 1.0}, lags=hot) == "model"
    assert kind(lags=(100,)) is None


def test_a_partition_that_waits_for_one_slow_object_is_not_hot() -> None:
    hot = (0, 100, 3)
    assert kind(lags=hot, done=(40, 80, 40)) == "skew"
    assert kind(lags=hot, done=(40, 40, 40)) is None
    assert kind({"loop": 1.0}, lags=hot, done=(40, 2, 40)) == "worker"


def test_a_partition_whose_line_stopped_is_not_hot() -> None:
    assert kind(lags=(0, 100, 3), done=(40, 80, 40), stopped=1) is None
    assert kind(lags=(0, 100, 3), done=(40, 80, 40), stopped=0) == "skew"


def test_no_part_is_blamed_for_what_few_streams_suffer() -> None:
    slow = WAY | {"fetch": 900.0}
    assert kind(way=slow) == "store"
    assert kind(way=slow, widely=False) is None
    assert kind({"calls": 0.9}, widely=False) == "model"


def test_a_part_that_takes_next_to_nothing_makes_nobody_late() -> None:
    """As when one camera is slow, and the others have what they always have."""
    assert kind(way=dict.fromkeys(WAY, 0.1) | {"fetch": 26.0}) == "store"
    assert kind(way=dict.fromkeys(WAY, 0.1) | {"fetch": 7.0}) is None


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
        {"age_s": 2.0, "now_p99_ms": None},
        {"age_s": 0.01, "now_p99_ms": 60.0},
    ] * late
    well = {"age_s": 0.01, "now_p99_ms": 40.0}
    stopped = {"age_s": 900.0, "now_p99_ms": None, "stopped": True}
    streams = [*slow[:late], *[well] * on_time, stopped]
    others = None if others_ms is None else well | {"now_p99_ms": others_ms}
    assert are_most_late({"streams": streams, "streams_others": others}, 50.0) == expected


def test_large_batches_of_a_backlog_that_shrinks_do_not_make_the_model_slow() -> None:
    streams = [one | {"now_p99_ms": 900.0} for one in document()["streams"]]
    way = WAY | {"call": 400.0}
    slow = flow(**LATE, busy=IDLE, way_ms=way) | {"streams": streams}
    assert (problem := limit(slow)) is not None
    assert problem.kind == "model"
    assert limit(slow | {"flow": slow["flow"] | {"drain_s": 8.0}}) is None


def test_results_that_wait_for_their_store_do_not_wait_for_kafka() -> None:
    slow = flow(**LATE, busy=IDLE | {"publishing": 1.0}, way_ms=WAY | {"publish": 900.0})
    for write_ms, kind, what in (
        (800.0, "store", "the store of the results is slow: 9 of 16 writes in flight, 800 ms"),
        (300.0, "store", "the store of the results is slow: 9 of 16 writes in flight, 300 ms"),
        (80.0, "kafka", "Kafka is the limit"),
    ):
        results = {"in_flight": 9, "limit": 16, "answer_ms": write_ms}
        problem = limit(slow | {"results": results})
        assert problem is not None
        assert (problem.kind, problem.what.startswith(what)) == (kind, True)


def test_a_worker_is_late_by_age_by_lag_or_by_its_bound() -> None:
    assert not is_late(flow(moving_s=0.5, lag_s=0.5, over_bound=None))
    assert is_late(flow(moving_s=1.1))
    assert is_late(flow(lag_s=1.1))
    assert is_late(flow(over_bound=0.06, over_bound_objects=9))
    # One in a hundred is what the window aims at, and a few objects prove nothing.
    assert not is_late(flow(over_bound=0.02, over_bound_objects=900))
    assert not is_late(flow(over_bound=0.5, over_bound_objects=2))


def test_growth_is_that_of_partitions_that_were_there_all_the_time() -> None:
    growth = Growth()
    growth.add(0.0, {P0: 100})
    assert growth.per_s is None
    for second in range(2, 31, 2):
        growth.add(second, {P0: 100 + 5 * second, P1: 70_000})
    assert growth.per_s == pytest.approx(5.0)
