"""What a row of each stream costs the model, learned from calls that carry rows of many streams.

Rule: a call's time is fitted as `base + sum(rows of a stream * cost of its row)`, by least squares
over the last calls. A call's error counts as a share of its time, because slow calls vary more.
Without evidence a stream costs what most streams cost: each cost is drawn to their median, the less
the further its calls say it is from there. So one dear stream is found, and sixty equal streams do
not differ by chance. Streams that always come together share their cost. No cost is negative.

To note a call takes 1 µs for each of its streams, and 2 µs. The fit takes 4 ms; it is made only
when figures are read, at most once a second. Its error after 200 calls that vary by 30 %, with 8
and 60 streams, one of them 50 times as dear: 3 to 12 % of the dear stream's cost, 4 to 9 % on
average of the others' if they are equal, and 27 % if they differ by half. Pure.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.rows.blocks import Block

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Fewer calls do not tell streams apart; more would take longer to follow a change.
CALLS: Final = 256
MEMORY_S: Final = 60.0
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
# otherwise nobody knows which of the two it is.
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
# So many streams are known: those that came last. Names may be long, so this is some megabytes.
MOST_STREAMS: Final = 5_000


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
    fixed cost. `beyond_s`: how much longer a call with its rows takes than one without.
    """

    stream: str
    row_s: float
    times: float
    share: float
    beyond_s: float


class _Known:
    __slots__ = ("row_s", "spent_s")

    def __init__(self, row_s: float) -> None:
        self.row_s = row_s
        self.spent_s = 0.0


class _Call(NamedTuple):
    rows: Mapping[str, int]
    took_s: float
    at_s: float


class StreamCosts:
    """`lately`: for each stream of the last calls, its cost. `base_s`: a call's fixed cost; None
    before the first fit. `busy`: the seconds of calls in a second.
    """

    def __init__(self) -> None:
        self.base_s: float | None = None
        self.lately: Mapping[str, StreamCost] = {}
        self.costly: Costly | None = None
        self.busy = 0.0
        self._calls: deque[_Call] = deque(maxlen=CALLS)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._usual_s = 0.0
        self._fitted_s = -FIT_S
        self._is_new = False

    def answered(self, blocks: Sequence[Block], took_s: float, now_s: float) -> None:
        """A call with these blocks took `took_s`, and ended now. Its time is shared by the costs
        known so far.
        """
        rows: dict[str, int] = {}
        for block in blocks:
            stream = block.ticket.stream
            rows[stream] = rows.get(stream, 0) + block.rows
        self._calls.append(_Call(rows, took_s, now_s))
        self._is_new = True
        each_s = (self.base_s or 0.0) / sum(rows.values())
        parts = [(self._of(stream), count) for stream, count in rows.items()]
        expected_s = [count * (one.row_s + each_s) for one, count in parts]
        whole_s = sum(expected_s)
        for (one, count), part_s in zip(parts, expected_s, strict=True):
            share = part_s / whole_s if whole_s else count / sum(rows.values())
            one.spent_s += took_s * share

    @property
    def spent_s(self) -> Mapping[str, float]:
        """For each known stream: the model's time that it has taken since it is known."""
        return {stream: one.spent_s for stream, one in self._known.items()}

    def spent_by(self, stream: str) -> float:
        one = self._known.get(stream)
        return 0.0 if one is None else one.spent_s

    def fit(self, now_s: float) -> None:
        """Bring `base_s`, `lately` and `costly` up to date, if a second has passed."""
        if now_s - self._fitted_s < FIT_S:
            return
        self._fitted_s = now_s
        while self._calls and self._calls[0].at_s < now_s - MEMORY_S:
            self._calls.popleft()
            self._is_new = True
        if not self._is_new:
            return
        self._is_new = False
        if not self._calls:
            self.lately, self.costly, self.busy = {}, None, 0.0
            return
        self._fit(now_s)

    def _of(self, stream: str) -> _Known:
        one = self._known.get(stream)
        if one is None:
            one = self._known[stream] = _Known(self._usual_s)
            if len(self._known) > MOST_STREAMS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(stream)
        return one

    def _fit(self, now_s: float) -> None:
        calls = self._calls
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
        self.base_s, self._usual_s = base_s, float(np.median(row_s))
        # The time of each call, divided among its streams.
        parts_s = counts * (row_s[column_of[place]] + (base_s / rows.sum(1))[number])
        whole_s = np.bincount(number, parts_s)
        spent_s = np.bincount(
            place, parts_s * (weight * took_s / np.maximum(whole_s, TINY_S))[number]
        )
        answered = np.bincount(place, counts * weight[number])
        self.lately = {
            stream: StreamCost(cost_s, spent, count / over_s)
            for stream, cost_s, spent, count in zip(
                names,
                row_s[column_of].tolist(),
                (spent_s / max(float(spent_s.sum()), TINY_S)).tolist(),
                answered.tolist(),
                strict=True,
            )
        }
        for stream, cost in self.lately.items():
            self._of(stream).row_s = cost.row_s
        self.busy = float((weight * took_s).sum()) / over_s
        self.costly = _costly(names, rows, column_of, took_s, weight)


def _solved(rows: Floats, took_s: Floats, weight: Floats) -> tuple[float, Floats]:
    """Returns the fixed cost, and the cost of a row for each column. `weight`: of each call."""
    base_s = float(np.median(took_s)) / 2
    row_s = np.full(rows.shape[1], float(np.median(took_s / rows.sum(1))) / 2)
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
        solved = np.maximum(np.linalg.solve(normal, right), 0.0)
        is_settled = bool(np.allclose(solved[1:], row_s, SETTLED, TINY_S))
        base_s, row_s = float(solved[0]), solved[1:]
        if is_settled:
            break
    return base_s, row_s


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
) -> Costly | None:
    """The stream whose calls take the most time beyond the calls without it. None: no call was
    without it; or too few calls were slow; or another stream was in all calls that were.
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
    if beyond_s[most] <= 0.0 or slow_calls < LEAST_SLOW_CALLS:
        return None
    beside = np.delete(squares @ is_in, most)
    if (beside > (1.0 - LEAST_APART) * squares.sum()).any():
        return None
    its_calls = is_in[:, most] * weight
    its_rows = float(its_calls @ rows[:, most])
    others_rows = whole_rows - its_calls @ rows.sum(1)
    others_s = float(usual_s[most] * without[most] / max(float(others_rows), TINY_S))
    its_s = float(calls_s[most] - others_s * (its_calls @ rows.sum(1) - its_rows))
    name = names[int(np.flatnonzero(column_of == most)[0])]
    row_s = its_s / its_rows
    times, share = row_s / max(others_s, TINY_S), its_s / float(whole_s)
    return Costly(name, row_s, times, share, float(beyond_s[most] / calls[most]))
