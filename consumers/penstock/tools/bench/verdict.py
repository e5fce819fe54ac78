"""The outcome of a trial: percentiles, misses, and the time in each part of a tick's way.

Rule: a tick without an answer is slower than every bound. The bound must hold for all ticks
together and for every single stream. What proves a percentile is the early stopping of MLPerf
Inference (rules, appendix): n ticks with m misses prove it if a service that just fails it would
have m or fewer in at most 1 % of such runs.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.tools.bench.reader import Tick

# The broker cuts its stamps to whole milliseconds, so on average a stamp is half a millisecond too
# low.
BROKER_CUT_MS = 0.5

Samples = Mapping[tuple[str, str], float]
# The parts of an object's way, in the order of the flow. For each part: the report's name, and the
# name in the worker's metric `penstock_way_seconds_total`.
WAY = {
    "Kafka out": "kafka_in",
    "queue": "queue",
    "fetch": "fetch",
    "decode": "decode",
    "wait": "wait",
    "call": "call",
    "hold-back": "hold_back",
    "publish": "publish",
}


class Sent(Struct):
    """What the tick generator says at its end: how late the ticks were when the producer got them,
    and how much CPU time the generator used.
    """

    ticks: int
    lag_mean_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    cpu_s: float


class Verdict(Struct, kw_only=True):
    """The outcome of a trial. A percentile is None if the tick at its rank was not answered."""

    streams: int
    ticks: int
    misses: int
    unanswered: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    worst_stream_p99_ms: float | None
    worst_stream_misses: int
    # In the order of the streams' names.
    stream_p99s_ms: list[float | None]
    streams_within: int
    held: bool
    proven: bool
    append_to_append_p50_ms: float | None
    append_to_append_p99_ms: float | None
    stages_ms: dict[str, float]
    cpu_ms_per_tick: dict[str, float]
    cores: dict[str, float]
    generator_lag_p99_ms: float
    generator_lag_max_ms: float
    # Rows of the objects beside the streams, a second.
    beside_rows_per_s: float = 0.0
    wakeups_per_tick: dict[str, float] = {}
    # What the worker called for a tick, if it was counted.
    calls_per_tick: dict[str, float] = {}
    # These two lists have a value for each second. Other processes are blamed for misses only if
    # the misses come in the seconds in which those processes worked: if the worker itself is
    # overloaded, it has misses in all other seconds, too.
    misses_by_s: list[int] = []
    others_by_s: list[float] = []

    @property
    def others_cores(self) -> float:
        """How many cores unrelated processes used in their busiest second; 0 if this is unknown."""
        return max(self.others_by_s, default=0.0)


def judge(
    streams: int,
    bound_ms: float,
    ticks: Sequence[Tick],
    sent: Sent,
    used_s: Mapping[str, float],
    seconds: float,
    stages_ms: Mapping[str, float],
) -> Verdict:
    """`used_s`: the CPU time of each process during `seconds`. `stages_ms`: the result of
    `stage_means_ms`.
    """
    by_stream: dict[str, list[float]] = defaultdict(list)
    for tick in ticks:
        by_stream[tick.stream].append(_since(tick.due_ms, tick))
    pool = [latency for latencies in by_stream.values() for latency in latencies]
    inside = [_since(tick.appended_ms, tick) for tick in ticks]
    misses = [_misses(latencies, bound_ms) for latencies in by_stream.values()]
    p99s_ms = [percentile(by_stream[stream], 0.99) for stream in sorted(by_stream)]
    worst_ms = max(p99s_ms)
    return Verdict(
        streams=streams,
        ticks=len(pool),
        misses=sum(misses),
        unanswered=pool.count(math.inf),
        p50_ms=_finite(percentile(pool, 0.5)),
        p90_ms=_finite(percentile(pool, 0.9)),
        p99_ms=_finite(percentile(pool, 0.99)),
        max_ms=_finite(max(pool)),
        worst_stream_p99_ms=_finite(worst_ms),
        worst_stream_misses=max(misses),
        stream_p99s_ms=[_finite(p99_ms) for p99_ms in p99s_ms],
        streams_within=sum(p99_ms <= bound_ms for p99_ms in p99s_ms),
        held=max(percentile(pool, 0.99), worst_ms) <= bound_ms,
        proven=is_proven(len(pool), sum(misses))
        and all(
            is_proven(len(latencies), _misses(latencies, bound_ms))
            for latencies in by_stream.values()
        ),
        append_to_append_p50_ms=_finite(percentile(inside, 0.5)),
        append_to_append_p99_ms=_finite(percentile(inside, 0.99)),
        stages_ms=_where(ticks, sent, stages_ms),
        cpu_ms_per_tick={name: 1000 * cpu_s / len(pool) for name, cpu_s in used_s.items()},
        cores={name: cpu_s / seconds for name, cpu_s in used_s.items()},
        generator_lag_p99_ms=sent.lag_p99_ms,
        generator_lag_max_ms=sent.lag_max_ms,
    )


def misses_by_s(ticks: Sequence[Tick], bound_ms: float, begin_ms: float) -> list[int]:
    """For each second, how many of the ticks that were due in it are misses."""
    misses: Counter[int] = Counter()
    for tick in ticks:
        misses[int((tick.due_ms - begin_ms) // 1000)] += _since(tick.due_ms, tick) > bound_ms
    return [misses[second] for second in range(max(misses) + 1)]


def _since(began_ms: int, tick: Tick) -> float:
    return math.inf if tick.answered_ms is None else tick.answered_ms - began_ms


def _misses(latencies: Sequence[float], bound_ms: float) -> int:
    return sum(latency > bound_ms for latency in latencies)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _where(ticks: Sequence[Tick], sent: Sent, stages_ms: Mapping[str, float]) -> dict[str, float]:
    """For each part of a tick's way, the mean time of a tick. A further entry has the time that
    belongs to no part.
    """
    to_append = [tick.appended_ms - tick.due_ms for tick in ticks]
    in_ms = sum(to_append) / len(to_append) + BROKER_CUT_MS - sent.lag_mean_ms
    where = {"schedule": sent.lag_mean_ms, "Kafka in": in_ms, **stages_ms}
    answered = [_since(tick.due_ms, tick) for tick in ticks if tick.answered_ms is not None]
    if answered:
        mean_ms = sum(answered) / len(answered) + BROKER_CUT_MS
        where["in no stage"] = mean_ms - sum(where.values())
    return where


def stage_means_ms(before: Samples, after: Samples) -> dict[str, float]:
    """For each part of the way that the worker measures, the mean time of an object. It is computed
    from the difference between two readings of the worker's metrics.
    """

    def gain(name: str, label: str = "") -> float:
        return after.get((name, label), 0.0) - before.get((name, label), 0.0)

    objects = gain("penstock_latency_seconds_count")
    if not objects:
        return {}
    return {
        stage: 1000 * gain("penstock_way_seconds_total", part) / objects
        for stage, part in WAY.items()
    }


PERCENTILE = 0.99
CONFIDENCE = 0.99


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile. The value of a tick without an answer must be infinite."""
    # Rounding may put the product just above a whole number. This must not raise the rank.
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]


def is_proven(ticks: int, misses: int) -> bool:
    """True if this many ticks with this many misses prove that the 99th percentile holds."""
    return _at_most(misses, ticks, 1 - PERCENTILE) <= 1 - CONFIDENCE


def ticks_needed(misses: int) -> int:
    """The fewest ticks that prove the 99th percentile with this many misses."""
    low, high = misses, max(1, misses)
    while not is_proven(high, misses):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_proven(middle, misses) else (middle, high)
    return high


def _at_most(misses: int, ticks: int, chance: float) -> float:
    """The probability of at most `misses` misses in `ticks` ticks, if each tick misses with
    probability `chance`. It is computed by logarithms, because the factorials are too large for
    floats.
    """
    if misses >= ticks:
        return 1.0
    hit, miss = math.log1p(-chance), math.log(chance)
    terms = (
        math.lgamma(ticks + 1)
        - math.lgamma(count + 1)
        - math.lgamma(ticks - count + 1)
        + count * miss
        + (ticks - count) * hit
        for count in range(misses + 1)
    )
    return math.fsum(math.exp(term) for term in terms)
