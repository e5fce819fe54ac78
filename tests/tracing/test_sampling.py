"""Which objects are sampled."""

import random

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from penstock.messages.traceparent import Caller
from penstock.tracing import BLOCK, MOST_ERRORS_PER_S, Errors, Ratio, Slowest


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_a_ratio_chooses_the_traces_that_opentelemetrys_own_sampler_chooses(share: float) -> None:
    ours, theirs, draw = Ratio(share), TraceIdRatioBased(share), random.Random(7)
    for trace_id in [draw.getrandbits(128) for _ in range(2_000)]:
        expected = theirs.should_sample(None, trace_id, "x").decision is Decision.RECORD_AND_SAMPLE
        assert (ours.why(trace_id, None) == "ratio") == expected


def test_what_the_caller_samples_is_sampled_and_otherwise_the_ratio_decides() -> None:
    low, high = 1, (1 << 64) - 1
    ratio = Ratio(0.01)
    assert ratio.why(high, Caller(high, 5, is_sampled=True)) == "caller"
    assert ratio.why(high, Caller(high, 5, is_sampled=False)) is None
    assert ratio.why(low, Caller(low, 5, is_sampled=False)) == "ratio"


def test_the_slowest_are_those_above_all_but_a_share_of_the_last() -> None:
    slowest, draw = Slowest(0.01), random.Random(3)
    times = [draw.random() for _ in range(50 * BLOCK)]
    chosen = [time for time in times if slowest.is_one(time)]
    assert 0.003 * len(times) < len(chosen) <= 0.01 * len(times)
    assert min(chosen) > 0.95


def test_no_more_than_the_share_is_slow_while_all_become_slower() -> None:
    slowest = Slowest(0.01)
    count = sum(slowest.is_one(float(number)) for number in range(10_000))
    assert 0 < count <= 100


def test_none_is_slow_where_none_is_asked_for() -> None:
    slowest = Slowest(0.0)
    assert not any(slowest.is_one(float(number)) for number in range(10_000))


def test_of_a_flood_of_errors_the_first_of_each_second_are_sampled() -> None:
    errors = Errors()
    assert sum(errors.passes(1.0 + number / 10_000) for number in range(1_000)) == MOST_ERRORS_PER_S
    assert errors.passes(2.5)
