"""Learns what a row of each stream costs the model, from calls that carry rows of many streams.

Rule: a call's time is fitted as `base + sum(rows of a stream * cost of its row)`, by least squares
over the last calls. A call's error counts as a share of its time, because slow calls vary more.
Without evidence a stream costs what most streams cost: each cost is drawn to their median, the less
the further its calls say it is from there. So one dear stream is found, and sixty equal streams do
not differ by chance. Streams that always come together share their cost. No cost is negative. A fit
takes 4 ms, and some 40 with 5,000 streams. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import log, log2
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A call that is this old counts half, so that a stream that has become dear is known within some
# seconds although calls are few.
HALF_S: Final = 6.0
FIT_S: Final = 1.0
# The fit looks at this many streams one by one: those in the slowest calls. All others have one
# cost together. From 64 columns on OpenBLAS uses threads, as it does for products of more than
# 262,144 terms, so these are made of `PART` calls at a time: with threads a fit takes 13 to 30 ms
# of CPU instead of 4 ms.
FITTED: Final = 60
PART: Final = 64
# The fit is repeated, because its weights follow from the costs, until they change by less than
# `SETTLED`. Each fit begins anew: from former costs of nothing it would not find its way, because
# how strongly costs are drawn to their median counts by it. A dear stream in few calls takes 9 to
# 14 rounds.
ITERATIONS: Final = 16
SETTLED: Final = 0.01
# A stream is blamed for slow calls if there were so many of them, and at least this share of calls
# was without it. Each other stream must have been away from at least that share of its slow calls:
# otherwise nobody knows which of the two it is. They are in doubt if calls with them take twice as
# long as others.
LEAST_SLOW_CALLS: Final = 3.0
LEAST_WITHOUT: Final = 0.05
LEAST_APART: Final = 0.02
# What is taken for granted, as shares: how much calls vary, and how far a stream's cost is from the
# median if nothing is known. `FREED` of the distance that its calls show weakens the drawing.
NOISE: Final = 0.3
SPREAD: Final = 0.2
FREED: Final = 0.3
# A call that should take much less than most counts like one that takes a tenth of them.
LEAST_CALL: Final = 0.1
TINY_S: Final = 1e-9
# If calls wait for each other for at least this share of their time, perhaps the server works on
# one at a time. It does if the times since the answers before are explained so much better, and
# those of the calls are not: by shares of their time.
WAITED: Final = 0.1
CLEARER: Final = 0.7
EXPLAINED: Final = 0.05
# A row has a price if it costs this many times the usual, both with their parts of the fixed cost.
# Costs of equal streams are learned to within a factor of two.
DEAR: Final = 3.0
# Of a dear stream's calls, at least this many, and this share, must have taken longer than calls
# usually do by at least half of what its rows cost, and by more than they vary. So one slow call
# tells nothing. For the share a call counts half when it is 2 s old, because a stream that has
# become dear was cheap in many calls.
DEAR_CALLS: Final = 3.0
DEAR_SHARE: Final = 0.5
DEAR_LATELY: Final = 3.0


class NotedCall(NamedTuple):
    """`since_s`: from the answer to the call before, if that came later than this call began. So
    long a server worked on the call that works on one at a time.
    """

    rows: Mapping[str, int]
    took_s: float
    since_s: float
    at_s: float


class StreamCost(NamedTuple):
    """`row_s`: what a further row costs in a call. `share`: of the model's time lately, with the
    stream's part of the calls' fixed cost. `rows_per_s`: answered lately.
    """

    row_s: float
    share: float
    rows_per_s: float


class Costly(NamedTuple):
    """The stream whose rows bring the calls the most time beyond what other rows take. `row_s`: its
    time a row. `times`: how many times the others' time a row. Both with their parts of the calls'
    fixed cost. `beyond_s`: how much longer a call with its rows takes than one without. `ago_s`:
    since the last of them that took long.
    """

    stream: str
    row_s: float
    times: float
    share: float
    beyond_s: float
    ago_s: float


class DearStream(NamedTuple):
    """A stream whose row costs `times` the usual, with their parts of the fixed cost. `visits`: as
    how many usual calls its rows of one call take. `is_proven`: most of its calls say so.
    """

    stream: str
    times: float
    visits: float
    is_proven: bool


@dataclass(frozen=True, slots=True)
class CostFit:
    """`base_s`: a call's fixed cost. `usual_s`: what a row of most streams costs. `busy`: the
    seconds of calls in a second. `doubtful`: streams that were in all slow calls, so that nobody
    knows which of them makes these slow. `usual_rows`: how many rows a call has on average.
    """

    base_s: float
    usual_s: float
    busy: float
    lately: Mapping[str, StreamCost]
    costly: Costly | None
    doubtful: Set[str]
    usual_rows: float
    _names: Sequence[str]
    _column_of: Integers
    _evidence: "_Evidence"

    def dear(self, times: float) -> Iterator[DearStream]:
        """The streams whose row costs at least this many times the usual."""
        evidence, column_of = self._evidence, self._column_of
        for place in np.flatnonzero(evidence.times[column_of] >= times).tolist():
            column = int(column_of[place])
            # With more streams than columns, the last column is that of many.
            if len(self._names) <= FITTED or column < FITTED - 1:
                yield DearStream(
                    self._names[place],
                    float(evidence.times[column]),
                    float(evidence.visits[column]),
                    bool(evidence.is_dear[column]),
                )


def fitted(calls: Sequence[NotedCall], now_s: float) -> "CostFit":
    """The costs by these calls. There is at least one."""
    weight = 0.5 ** ((now_s - np.array([call.at_s for call in calls])) / HALF_S)
    span_s = max(now_s - calls[0].at_s, FIT_S)
    over_s = HALF_S / log(2.0) * (1.0 - 0.5 ** (span_s / HALF_S))
    took_s = np.array([call.took_s for call in calls])
    streams = [stream for call in calls for stream in call.rows]
    counts = np.array([count for call in calls for count in call.rows.values()], float)
    number = np.repeat(np.arange(len(calls)), [len(call.rows) for call in calls])
    names = list(dict.fromkeys(streams))
    place_of = {stream: place for place, stream in enumerate(names)}
    place = np.array([place_of[stream] for stream in streams])
    column_of = _columns(place, took_s[number], len(names))
    shape = len(calls), int(column_of.max()) + 1
    cells = number * shape[1] + column_of[place]
    flat: Floats = np.bincount(cells, counts, shape[0] * shape[1]).astype(np.float64)
    rows = flat.reshape(shape)
    base_s, row_s = _solved(rows, took_s, weight)
    since_s = np.array([call.since_s for call in calls])
    if (weight @ since_s) < (1.0 - WAITED) * (weight @ took_s):
        solution = _solved(rows, since_s, weight)
        off = _error(rows, took_s, weight, base_s, row_s)
        # Answers that come at a steady pace would also be explained by that alone.
        mean_s = float(weight @ since_s) / float(weight.sum())
        steady = _error(rows, since_s, weight, mean_s, np.zeros(shape[1]))
        is_clearer = _error(rows, since_s, weight, *solution) < CLEARER * min(off, steady)
        if off > EXPLAINED and is_clearer:
            took_s, (base_s, row_s) = since_s, solution
    usual_s = float(np.median(row_s))
    # The time of each call, divided among its streams.
    parts_s = counts * (row_s[column_of[place]] + (base_s / rows.sum(1))[number])
    whole_s = np.bincount(number, parts_s)
    spent_s = np.bincount(place, parts_s * (weight * took_s / np.maximum(whole_s, TINY_S))[number])
    answered = np.bincount(place, counts * weight[number])
    lately = {
        stream: StreamCost(cost_s, spent, count / over_s)
        for stream, cost_s, spent, count in zip(
            names,
            row_s[column_of].tolist(),
            (spent_s / max(float(spent_s.sum()), TINY_S)).tolist(),
            answered.tolist(),
            strict=True,
        )
    }
    busy = float(weight @ np.array([call.took_s for call in calls])) / over_s
    costly, doubtful = _costly(names, rows, column_of, took_s, weight)
    evidence = _Evidence(rows, took_s, weight, base_s, row_s, usual_s)
    return CostFit(
        base_s,
        usual_s,
        busy,
        lately,
        costly,
        doubtful,
        evidence.usual_rows,
        names,
        column_of,
        evidence,
    )


class _Evidence:
    """For each column of the fit: `times` the usual that its row costs, with their parts of the
    fixed cost; `visits`: as how many usual calls its rows of one call take; `is_dear`: its row
    costs more, and most of its calls say so. `usual_rows`: how many rows a call has on average.
    """

    def __init__(
        self,
        rows: Floats,
        took_s: Floats,
        weight: Floats,
        base_s: float,
        row_s: Floats,
        usual_s: float,
    ) -> None:
        counts: Floats = rows.sum(1)
        self.usual_rows = usual_rows = float((weight * counts).sum() / weight.sum())
        each_s = base_s / usual_rows
        self.times: Floats = (row_s + each_s) / max(usual_s + each_s, TINY_S)
        is_in: Floats = (rows > 0.0).astype(np.float64)
        calls = np.maximum(is_in.sum(0), 1.0)
        own_s = row_s * rows.sum(0) / calls
        self.visits: Floats = own_s / max(base_s + usual_s * usual_rows, TINY_S)
        usual_call_s = base_s + usual_s * counts
        beyond_s, noise_s = took_s - usual_call_s, NOISE * usual_call_s
        tells = np.maximum(0.5 * rows * (row_s - usual_s), noise_s[:, None])
        tell = is_in * (beyond_s[:, None] >= tells)
        lately = weight**DEAR_LATELY
        most_tell = lately @ tell >= DEAR_SHARE * (lately @ is_in)
        self.is_dear = (self.times >= DEAR) & (tell.sum(0) >= DEAR_CALLS) & most_tell


def _solved(rows: Floats, took_s: Floats, weight: Floats) -> tuple[float, Floats]:
    """Returns the fixed cost, and the cost of a row for each column. `weight`: of each call."""
    # Not of the median: where most calls are those of one dear stream, all would be fixed cost.
    base_s = float(np.quantile(took_s, 0.1)) / 2
    # Half of the most that calls have proven.
    row_s = np.min(took_s[:, None] / np.maximum(rows, TINY_S), axis=0) / 2
    matrix = np.column_stack([np.ones(len(took_s)), rows])
    own = np.arange(1, matrix.shape[1])
    parts = [slice(first, first + PART) for first in range(0, len(took_s), PART)]
    for _ in range(ITERATIONS):
        usual_s = max(float(np.median(row_s)), TINY_S)
        expected_s = base_s + rows @ row_s
        least_s = max(LEAST_CALL * float(np.median(expected_s)), TINY_S)
        error_s = NOISE * np.maximum(expected_s, least_s)
        weighted = matrix * (weight / error_s**2)[:, None]
        normal = sum(weighted[part].T @ matrix[part] for part in parts)
        right = weighted.T @ took_s
        drawn = 1.0 / ((SPREAD * usual_s) ** 2 + FREED * (row_s - usual_s) ** 2)
        normal[own, own] += drawn
        right[1:] += usual_s * drawn
        solved = np.linalg.solve(normal, right)
        # Rows that are too dear beside a fixed cost below zero would be left when that is cut.
        if solved[0] < 0.0:
            solved[0], solved[1:] = 0.0, np.linalg.solve(normal[1:, 1:], right[1:])
        solved = np.maximum(solved, 0.0)
        is_settled = bool(np.allclose(solved[1:], row_s, SETTLED, TINY_S))
        base_s, row_s = float(solved[0]), solved[1:]
        if is_settled:
            break
    return base_s, row_s


def _error(rows: Floats, took_s: Floats, weight: Floats, base_s: float, row_s: Floats) -> float:
    """By which share of their time calls differ from what is expected."""
    off_s = np.abs(took_s - base_s - rows @ row_s)
    return float(weight @ off_s) / max(float(weight @ took_s), TINY_S)


def _columns(place: Integers, call_s: Floats, streams: int) -> Integers:
    """For each stream, its column in the fit. `place`: the stream of each part of a call; `call_s`:
    how long that call took.
    """
    order = np.arange(streams)
    if streams > FITTED:
        mean_s = np.bincount(place, call_s) / np.bincount(place)
        order[np.argsort(-mean_s)] = np.minimum(np.arange(streams), FITTED - 1)
    return order


def _costly(
    names: Sequence[str], rows: Floats, column_of: Integers, took_s: Floats, weight: Floats
) -> tuple[Costly | None, Set[str]]:
    """The stream whose calls take the most time beyond the calls without it. None: no call was
    without it; or too few calls were slow; or other streams were in all calls that were: then these
    and it.
    """
    # With more streams than columns, the last column is that of many.
    alone = len(names) if len(names) <= FITTED else FITTED - 1
    is_in: Floats = (rows[:, :alone] > 0.0).astype(np.float64)
    whole, whole_s, whole_rows = weight.sum(), (weight * took_s).sum(), (weight @ rows).sum()
    calls, calls_s = weight @ is_in, (weight * took_s) @ is_in
    without = whole - calls
    is_known = without > LEAST_WITHOUT * whole
    usual_s = (whole_s - calls_s) / np.maximum(without, TINY_S)
    beyond_s = np.where(is_known, calls_s - calls * usual_s, -1.0)
    most = int(np.argmax(beyond_s))
    slow_s = is_in[:, most] * np.maximum(0.0, took_s - usual_s[most])
    weighed_s = weight * slow_s
    # Squared, so that calls that are hardly slower than usual do not count.
    squares = weighed_s**2
    slow_calls = weighed_s.sum() ** 2 / max(float(squares.sum()), TINY_S**2)
    if beyond_s[most] <= 0.0:
        return None, frozenset()
    beside = np.flatnonzero(squares @ is_in > (1.0 - LEAST_APART) * squares.sum())
    if len(beside) > 1 and beyond_s[most] > calls[most] * usual_s[most]:
        return None, frozenset(
            names[int(np.flatnonzero(column_of == column)[0])] for column in beside
        )
    if len(beside) > 1 or slow_calls < LEAST_SLOW_CALLS:
        return None, frozenset()
    its_calls = is_in[:, most] * weight
    its_rows = float(its_calls @ rows[:, most])
    others_rows = whole_rows - its_calls @ rows.sum(1)
    others_s = float(usual_s[most] * without[most] / max(float(others_rows), TINY_S))
    its_s = float(calls_s[most] - others_s * (its_calls @ rows.sum(1) - its_rows))
    if its_s <= 0.0:
        return None, frozenset()
    name = names[int(np.flatnonzero(column_of == most)[0])]
    row_s = its_s / its_rows
    times, share = row_s / max(others_s, TINY_S), its_s / float(whole_s)
    its_beyond_s = float(beyond_s[most] / calls[most])
    ago_s = -HALF_S * log2(float(weight[slow_s >= its_beyond_s / 2].max()))
    return Costly(name, row_s, times, share, its_beyond_s, ago_s), frozenset()
