"""What a row of each stream costs the model, learned from calls that carry rows of many streams.

Rule: a call's time is fitted as `base + sum(rows of a stream * cost of its row)`, by least squares
over the last calls. A call's error counts as a share of its time, because slow calls vary more.
Without evidence a stream costs what most streams cost: each cost is drawn to their median, the less
the further its calls say it is from there. So one dear stream is found, and sixty equal streams do
not differ by chance. Streams that always come together share their cost. No cost is negative.

To note a call takes 1 µs for each of its streams, and 4 µs. The fit takes 4 ms, and some 40 with
5,000 streams; it is made when figures are read, and while the number of rows does not tell how long
calls take, at most once a second. Its error after 200 calls that vary by 30 %, with 8 and 60
streams, one of them 50 times as dear: 3 to 12 % of the dear stream's cost, 4 to 9 % on average of
the others' if they are equal, and 27 % if they differ by half.

`prices` is what the window makes of this. A row that costs less than `DEAR` times the usual counts
as usual, so while rows cost about the same, batches are formed by count alone. A stream goes apart
if its rows take longer than all that a call usually carries.

A fit needs many calls, and if one takes a second, there are few. But each call proves of each of
its streams that its rows in a call take at most `took`, and a row `took / rows`. So after a slow
call those of its streams go apart, one row each, of which no fast call has proven that they are
cheap; most come back after that one row. If calls are so slow that all streams wait for each of
them and are in the next one together, nothing tells them apart. Then half of them goes apart for
some calls. Pure.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from math import inf, log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.rows.blocks import Block
from penstock.core.window.pace import CallFit

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
# If calls wait for each other for at least this share of their time, perhaps the server works on
# one at a time. It does if the times since the answers before are explained so much better.
WAITED: Final = 0.1
CLEARER: Final = 0.7
# So many streams are known: those that came last. Names may be long, so this is some megabytes.
MOST_STREAMS: Final = 5_000
# A row has a price if it costs this many times the usual, both with their parts of the fixed cost.
# Costs of equal streams are learned to within a factor of two.
DEAR: Final = 3.0
# Of a dear stream's calls, at least this many, and this share, must have taken longer than calls
# usually do by at least half of what its rows cost, and by more than they vary. So one slow call
# tells nothing.
DEAR_CALLS: Final = 3.0
DEAR_SHARE: Final = 0.5
# A price that changes by less than this share stays as it was, and a stream that goes apart does so
# until its rows cost less than this share of what sent it there.
STAYS: Final = 0.3
STAYS_APART: Final = 0.5
# Rows that go apart take at most as long as this many usual calls, so the fixed cost is at most a
# fifth of what they take.
APART_CALLS: Final = 4.0
# If calls differ from what their number of rows makes likely by more than this share of their time,
# rows do not cost the same. Calls that vary by 30 % differ by 0.24. Where each call has rows of all
# streams, only how long calls take tells that a look is worth its time.
UNEVEN: Final = 0.4
UNEVEN_STEP: Final = 0.02
SLOW_CALL_S: Final = 0.05
# A stream is suspected after a slow call if the proven most that its row, and its rows of a call,
# take is this many times that of most streams, until it is half as many times. With each call the
# proof is worth less, so that a stream that becomes dear is found.
SUSPECT: Final = 8.0
FADES: Final = 2.0
COMPARED: Final = 60
# Streams are always together if they are in all but this share of the calls. Half goes apart for as
# many calls, and if that finds nothing, not again for some time.
TOGETHER: Final = 0.1
HALF_CALLS: Final = 4
HALF_REST_S: Final = 30.0
MOST_HALF_REST_S: Final = 960.0


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


@dataclass(frozen=True, slots=True)
class Prices:
    """`rows`: as how many rows that cost the usual a row of a stream counts; 1 if the stream is not
    in it. `apart`: the streams whose rows go in batches of their own. `most_apart`: as how many
    rows those of such a batch may count; one row may always go.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    apart: Set[str] = frozenset()
    most_apart: int | None = None

    def usual_rows(self, blocks: Sequence[Block]) -> int:
        """As how many rows the rows of these blocks count."""
        prices = self.rows
        if not prices:
            return sum(block.rows for block in blocks)
        return sum(block.rows * prices.get(block.ticket.stream, 1) for block in blocks)


EVEN: Final = Prices()


class _Known:
    """`most_s`, `most_call_s`: a row, and the stream's rows in a call, take no longer, as calls
    have proven.
    """

    __slots__ = ("most_call_s", "most_s", "row_s", "spent_s")

    def __init__(self, row_s: float) -> None:
        self.row_s = row_s
        self.spent_s = 0.0
        self.most_s = self.most_call_s = inf


class _Call(NamedTuple):
    """`since_s`: from the answer to the call before, if that came later than this call began. So
    long a server worked on the call that works on one at a time.
    """

    rows: Mapping[str, int]
    took_s: float
    since_s: float
    at_s: float


class StreamCosts:
    """`lately`: for each stream of the last calls, its cost. `base_s`: a call's fixed cost; None
    before the first fit. `busy`: the seconds of calls in a second. `prices`: replaced when they
    change.
    """

    def __init__(self) -> None:
        self.base_s: float | None = None
        self.lately: Mapping[str, StreamCost] = {}
        self.costly: Costly | None = None
        self.busy = 0.0
        self.prices = self._dear = EVEN
        # The streams of slow calls of which no fast call has proven that they are cheap. Those of
        # them that differ from most streams, with their prices.
        self._unproven: set[str] = set()
        self._suspects: dict[str, int] = {}
        # How many calls are left until the half of the streams that is apart comes back.
        self._half_calls = 0
        self._half_from_s = 0.0
        self._half_rest_s = HALF_REST_S
        self._by_rows = CallFit()
        self._off = 0.0
        self._calls: deque[_Call] = deque(maxlen=CALLS)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._usual_s = 0.0
        self._fitted_s = -FIT_S
        self._answered_s = 0.0
        self._is_new = False

    def answered(self, blocks: Sequence[Block], took_s: float, now_s: float) -> None:
        """A call with these blocks took `took_s`, and ended now. Its time is shared by the costs
        known so far.
        """
        rows: dict[str, int] = {}
        for block in blocks:
            stream = block.ticket.stream
            rows[stream] = rows.get(stream, 0) + block.rows
        self._calls.append(_Call(rows, took_s, min(took_s, now_s - self._answered_s), now_s))
        self._answered_s = now_s
        self._is_new = True
        whole = sum(rows.values())
        self._by_rows.add(whole, took_s)
        likely_s = max(self._by_rows.call_s(whole), TINY_S)
        self._off += UNEVEN_STEP * (abs(took_s / likely_s - 1.0) - self._off)
        each_s = (self.base_s or 0.0) / whole
        parts = [(self._of(stream), count) for stream, count in rows.items()]
        expected_s = [count * (one.row_s + each_s) for one, count in parts]
        whole_s = sum(expected_s)
        for (one, count), part_s in zip(parts, expected_s, strict=True):
            share = part_s / whole_s if whole_s else count / whole
            one.spent_s += took_s * share
            one.most_s = min(FADES * one.most_s, took_s / count)
            one.most_call_s = min(FADES * one.most_call_s, took_s)
        if took_s > SLOW_CALL_S:
            self._unproven.update(rows)
        if self._unproven:
            self._suspect()
        if self._half_calls:
            self._half_calls -= 1
            if not self._half_calls:
                self.prices = EVEN

    def _suspect(self) -> None:
        """Compare the streams of slow calls with the others."""
        known = list(islice(reversed(self._known.values()), COMPARED))
        usual_s = _low_median([one.most_s for one in known])
        usual_call_s = _low_median([one.most_call_s for one in known])
        suspects = dict(self._suspects)
        for stream in list(self._unproven):
            one = self._known.get(stream)
            if one is None or one.most_call_s < SLOW_CALL_S:
                self._unproven.discard(stream)
                suspects.pop(stream, None)
                continue
            times = min(one.most_s / usual_s, one.most_call_s / usual_call_s)
            if times >= SUSPECT and stream not in self._dear.apart:
                suspects.setdefault(stream, round(one.most_s / usual_s))
            elif times < SUSPECT / 2:
                suspects.pop(stream, None)
        if suspects != self._suspects:
            self._suspects, self._half_calls = suspects, 0
            self._publish()

    def _publish(self) -> None:
        dear, suspects = self._dear, self._suspects
        if not suspects:
            self.prices = dear
            return
        rows, apart = {**suspects, **dear.rows}, dear.apart | suspects.keys()
        self.prices = Prices(rows, apart, dear.most_apart)

    @property
    def may_differ(self) -> bool:
        """True if a fit may find that rows do not cost the same."""
        return self._off > UNEVEN or self._is_slow or self.prices is not EVEN

    @property
    def _is_slow(self) -> bool:
        return self._by_rows.time_s > SLOW_CALL_S * self._by_rows.weight

    @property
    def calls(self) -> Sequence[tuple[int, float]]:
        """The rows and seconds of the last calls that streams shared: those apart tell nothing of
        the size of batches.
        """
        apart = self.prices.apart
        return [
            (sum(call.rows.values()), call.took_s)
            for call in self._calls
            if apart.isdisjoint(call.rows)
        ]

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
            self.prices = self._dear = EVEN
            self._suspects, self._unproven, self._half_calls = {}, set(), 0
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
        since_s = np.array([call.since_s for call in calls])
        if (weight @ since_s) < (1.0 - WAITED) * (weight @ took_s):
            found = _solved(rows, since_s, weight)
            off = _error(rows, took_s, weight, base_s, row_s)
            # Answers that come at a steady pace would also be explained by that alone.
            mean_s = float(weight @ since_s) / float(weight.sum())
            steady = _error(rows, since_s, weight, mean_s, np.zeros(shape[1]))
            if _error(rows, since_s, weight, *found) < CLEARER * min(off, steady):
                took_s, (base_s, row_s) = since_s, found
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
            # A stream that came so long ago that it is forgotten stays so.
            if (known := self._known.get(stream)) is not None:
                known.row_s = cost.row_s
        self.busy = float(weight @ np.array([call.took_s for call in calls])) / over_s
        self.costly = _costly(names, rows, column_of, took_s, weight)
        evidence = _Evidence(rows, took_s, weight, base_s, row_s, self._usual_s)
        self._price(names, column_of, evidence)
        is_together = len(streams) >= (1.0 - TOGETHER) * len(names) * len(calls)
        is_unknown = self.prices is EVEN and self._is_slow and now_s >= self._half_from_s
        if is_together and is_unknown and len(names) > 1:
            self._half_calls, self._half_from_s = HALF_CALLS, now_s + self._half_rest_s
            self._half_rest_s = min(MOST_HALF_REST_S, 2 * self._half_rest_s)
            self.prices = Prices({}, set(sorted(names)[::2]))

    def _price(self, names: Sequence[str], column_of: Integers, evidence: "_Evidence") -> None:
        """Makes new `prices` only if one changes."""
        former, rows, apart = self._dear, dict[str, int](), set[str]()
        for place in np.flatnonzero(evidence.times[column_of] >= STAYS_APART * DEAR).tolist():
            column, stream = int(column_of[place]), names[place]
            # With more streams than columns, the last column is that of many.
            is_many = len(names) > FITTED and column == FITTED - 1
            if is_many or not (evidence.is_dear[column] or stream in former.rows):
                continue
            price, before = round(float(evidence.times[column])), former.rows.get(stream, 0)
            rows[stream] = before if abs(price - before) < STAYS * before else price
            if evidence.visits[column] >= (STAYS_APART if stream in former.apart else 1.0):
                apart.add(stream)
        kept = set(names) - apart
        suspects = {one: price for one, price in self._suspects.items() if one in kept}
        is_same = rows == former.rows and apart == former.apart
        if is_same and suspects == self._suspects:
            return
        most = max(1, round(APART_CALLS * evidence.usual_rows))
        self._dear = Prices(rows, apart, most) if rows else EVEN
        if rows:
            self._half_rest_s = HALF_REST_S
        self._suspects, self._half_calls = suspects, 0
        self._publish()


def _low_median(values: Sequence[float]) -> float:
    return max(sorted(values)[(len(values) - 1) // 2], TINY_S)


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
        told = (is_in * (beyond_s[:, None] >= tells)).sum(0)
        self.is_dear = (self.times >= DEAR) & (told >= DEAR_CALLS) & (told >= DEAR_SHARE * calls)


def _solved(rows: Floats, took_s: Floats, weight: Floats) -> tuple[float, Floats]:
    """Returns the fixed cost, and the cost of a row for each column. `weight`: of each call."""
    base_s = float(np.median(took_s)) / 2
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
        solved = np.maximum(np.linalg.solve(normal, right), 0.0)
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
