"""The prices that the window makes of what a row of each stream costs the model.

Rule: a row that costs less than `DEAR` times the usual counts as usual, so while rows cost about
the same, batches are formed by count alone. A stream goes apart if its rows take longer than all
that a call usually carries. Costs are fitted (cost_fit.py) when figures are read, and while the
number of rows does not tell how long calls take, at most once a second.

If a call takes a second, there are few to fit. But each proves of each of its streams that its rows
take at most `took`. So after a slow call those of its streams go apart, few rows each, of which no
fast call has proven that they are cheap; most come back after those rows. If few streams were in
each slow call of the last seconds, these go apart until one of them is found. If all streams are in
each slow call, because their objects come at one instant or calls are so slow, half of them goes
apart for some calls. Then one call at a time is with the model: one that waits there behind a dear
row takes long as well.

A call whose answer is beyond all bounds (`exceeded`) tells no time, but the rows of other streams
in it must be asked again: its stream goes apart for a minute. Pure.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from math import ceil, inf
from typing import Final

from penstock.core.rows.blocks import Block
from penstock.core.window.cost_fit import (
    DEAR,
    FIT_S,
    TINY_S,
    CostFit,
    Costly,
    NotedCall,
    StreamCost,
    fitted,
)
from penstock.core.window.pace import CallFit

# Fewer calls do not tell streams apart; more would take longer to follow a change.
CALLS: Final = 256
MEMORY_S: Final = 60.0
# So many streams are known: those that came last. Names may be long, so this is some megabytes.
MOST_STREAMS: Final = 5_000
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
# Up to so many streams that were in all slow calls go apart, for so long after the last of them.
# More are fewer after the next slow call, or always together.
MOST_DOUBTED: Final = 4
DOUBT_S: Final = 5.0
# Streams are always together if they are in all but this share of the calls. If so many calls were
# slow, or the last one was long, half goes apart for as many calls. If that finds nothing, another
# half does so after some time, each time twice as long until calls are fast. Where calls are long
# and have few rows, a few more of them make nobody late who is not.
TOGETHER: Final = 0.1
HALF_CALLS: Final = 4
LONG_CALL_S: Final = 0.25
LONG_ROW_S: Final = 0.005
FAST_CALL_S: Final = SLOW_CALL_S / 2
# So many rows of a stream whose answers were beyond all bounds are in a call: the fewer, the less
# of such an answer is read before it is refused.
EXCEEDING_ROWS: Final = 8
HALF_REST_S: Final = 30.0
LONG_HALF_REST_S: Final = 2.0
MOST_HALF_REST_S: Final = 960.0
# An answer that does not come holds back all other rows for no longer.
MOST_HALF_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Prices:
    """`rows`: as how many rows that cost the usual a row of a stream counts; 1 if the stream is not
    in it. `apart`: the streams whose rows go in batches of their own. `most_apart`: as how many
    rows those of such a batch may count; one row may always go. `tried`: the streams that have at
    most `tried_rows` in a batch, as it is not known which of them is dear. `alone_until_s`: until
    then one call at a time is with the model; 0 if as many as there may be. `doubtful`: those of
    `apart` whose batches have rows of no other stream.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    apart: Set[str] = frozenset()
    most_apart: int | None = None
    tried: Set[str] = frozenset()
    tried_rows: int = 1
    alone_until_s: float = 0.0
    doubtful: Set[str] = frozenset()

    def of(self, stream: str) -> int:
        """As how many rows a row of this stream counts."""
        return self.rows.get(stream, 1)

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
        # Streams that were in all slow calls, as it is not known which of them makes these slow.
        self._doubtful: Set[str] = frozenset()
        # So many rows of a stream that is tried tell whether it makes calls slow.
        self._tried_rows = 1
        # Until when the streams go apart whose answers were beyond all bounds.
        self._exceeding: dict[str, float] = {}
        # How many calls are left until the half of the streams that is apart comes back.
        self._half_calls = 0
        self._half_from_s = 0.0
        self._half_rests = self._halves = 0
        self._by_rows = CallFit()
        self._off = 0.0
        self._calls: deque[NotedCall] = deque(maxlen=CALLS)
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
        self._calls.append(NotedCall(rows, took_s, min(took_s, now_s - self._answered_s), now_s))
        self._answered_s = now_s
        self._is_new = True
        whole = sum(rows.values())
        self._by_rows.add(whole, took_s)
        likely_s = max(self._by_rows.call_s(whole), TINY_S)
        self._off += UNEVEN_STEP * (abs(took_s / likely_s - 1.0) - self._off)
        each_s = (self.base_s or 0.0) / whole
        parts = [(self._of(stream), count) for stream, count in rows.items()]
        expected_s = [count * (cost.row_s + each_s) for cost, count in parts]
        whole_s = sum(expected_s)
        for (cost, count), part_s in zip(parts, expected_s, strict=True):
            share = part_s / whole_s if whole_s else count / whole
            cost.spent_s += took_s * share
            cost.most_s = min(FADES * cost.most_s, took_s / count)
            cost.most_call_s = min(FADES * cost.most_call_s, took_s)
        if took_s > SLOW_CALL_S:
            self._unproven.update(rows)
            self._tried_rows = ceil(whole / len(rows) * min(1.0, LONG_CALL_S / took_s))
        if self._unproven:
            self._suspect()
        # Calls that were with the model before have rows of both halves.
        if self._half_calls and len(self.prices.apart & rows.keys()) in (0, len(rows)):
            self._half_calls -= 1
            if not self._half_calls:
                self._publish()

    def likely_s(self, blocks: Sequence[Block]) -> float:
        """How long a call with these blocks takes by the costs known so far."""
        known, usual_s = self._known, self._usual_s
        rows_s = [
            block.rows
            * (known[stream].row_s if (stream := block.ticket.stream) in known else usual_s)
            for block in blocks
        ]
        return (self.base_s or 0.0) + sum(rows_s)

    def exceeded(self, stream: str, now_s: float) -> None:
        """The answer to a call with rows of this stream alone was beyond all bounds."""
        is_new = stream not in self._exceeding
        if is_new and len(self._exceeding) == MOST_STREAMS:
            del self._exceeding[next(iter(self._exceeding))]
        self._exceeding[stream] = now_s + MEMORY_S
        if is_new:
            self._publish()

    def _suspect(self) -> None:
        """Compare the streams of slow calls with the others."""
        known = list(islice(reversed(self._known.values()), COMPARED))
        usual_s = _low_median([cost.most_s for cost in known])
        usual_call_s = _low_median([cost.most_call_s for cost in known])
        suspects = dict(self._suspects)
        for stream in list(self._unproven):
            cost = self._known.get(stream)
            if cost is None or cost.most_call_s < SLOW_CALL_S:
                self._unproven.discard(stream)
                suspects.pop(stream, None)
                continue
            times = min(cost.most_s / usual_s, cost.most_call_s / usual_call_s)
            if times >= SUSPECT and stream not in self._dear.apart:
                suspects.setdefault(stream, round(cost.most_s / usual_s))
            elif times < SUSPECT / 2:
                suspects.pop(stream, None)
        if suspects != self._suspects:
            self._suspects, self._half_calls = suspects, 0
            self._publish()

    def _publish(self) -> None:
        dear, suspects, most = self._dear, self._suspects, self._dear.most_apart
        if self._exceeding:
            most = most or EXCEEDING_ROWS
            price = max(1, most // EXCEEDING_ROWS)
            suspects = {**dict.fromkeys(self._exceeding, price), **suspects}
        if not suspects and not self._doubtful:
            self.prices = dear
            return
        doubtful = self._doubtful
        rows = {**dict.fromkeys(doubtful, 1), **suspects, **dear.rows}
        apart, tried = dear.apart | suspects.keys() | doubtful, self._suspects.keys()
        self.prices = Prices(rows, apart, most, tried, self._tried_rows, doubtful=doubtful)

    @property
    def may_differ(self) -> bool:
        """True if a fit may find that rows of some streams cost more than those of others."""
        is_slow = bool(self._calls) and self._calls[-1].took_s > SLOW_CALL_S
        return (self._off > UNEVEN or is_slow or self.prices is not EVEN) and len(self._known) > 1

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
        return {stream: cost.spent_s for stream, cost in self._known.items()}

    def spent_by(self, stream: str) -> float:
        cost = self._known.get(stream)
        return 0.0 if cost is None else cost.spent_s

    def fit(self, now_s: float) -> None:
        """Bring `base_s`, `lately` and `costly` up to date, if a second has passed."""
        if now_s - self._fitted_s < FIT_S:
            return
        self._fitted_s = now_s
        if any(end_s <= now_s for end_s in self._exceeding.values()):
            self._exceeding = {name: end for name, end in self._exceeding.items() if end > now_s}
            self._publish()
        if self._half_calls and now_s >= self.prices.alone_until_s:
            self._half_calls = 0
            self._publish()
        while self._calls and self._calls[0].at_s < now_s - MEMORY_S:
            self._calls.popleft()
            self._is_new = True
        if not self._is_new:
            return
        self._is_new = False
        if not self._calls:
            self.lately, self.costly, self.busy = {}, None, 0.0
            self._dear = EVEN
            self._suspects, self._unproven, self._half_calls = {}, set(), 0
            self._doubtful = frozenset()
            self._publish()
            return
        self._fit(now_s)

    def _of(self, stream: str) -> _Known:
        cost = self._known.get(stream)
        if cost is None:
            cost = self._known[stream] = _Known(self._usual_s)
            if len(self._known) > MOST_STREAMS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(stream)
        return cost

    def _fit(self, now_s: float) -> None:
        fit = fitted(self._calls, now_s)
        self.base_s, self._usual_s = fit.base_s, fit.usual_s
        self.lately, self.busy, self.costly = fit.lately, fit.busy, fit.costly
        for stream, cost in fit.lately.items():
            # A stream that came so long ago that it is forgotten stays so.
            if (known := self._known.get(stream)) is not None:
                known.row_s = cost.row_s
        self._doubt(fit, now_s)
        self._price(fit)
        self._halve(fit.lately.keys(), now_s)

    def _doubt(self, fit: CostFit, now_s: float) -> None:
        """Let few streams that were in all slow calls go apart: in the next one is one of them."""
        is_slow = any(
            call.took_s > SLOW_CALL_S and call.at_s > now_s - DOUBT_S for call in self._calls
        )
        is_few = len(fit.doubtful) <= MOST_DOUBTED
        doubtful = fit.doubtful if is_slow and is_few else frozenset()
        if doubtful != self._doubtful:
            self._doubtful = doubtful
            self._publish()

    def _halve(self, names: Set[str], now_s: float) -> None:
        """Let half of the streams go apart if nothing tells which of them makes calls slow."""
        calls = list(islice(reversed(self._calls), HALF_CALLS))
        lately = [call.took_s for call in calls]
        if max(lately) <= FAST_CALL_S:
            self._half_from_s, self._half_rests = 0.0, 0
        is_long = lately[0] > max(LONG_CALL_S, LONG_ROW_S * sum(calls[0].rows.values()))
        if not is_long and min(lately) <= SLOW_CALL_S:
            return
        if self.prices is not EVEN or now_s < self._half_from_s or len(names) == 1:
            return
        if sum(len(call.rows) for call in calls) < (1.0 - TOGETHER) * len(names) * len(calls):
            return
        rest_s = (LONG_HALF_REST_S if is_long else HALF_REST_S) * 2**self._half_rests
        self._half_from_s = now_s + min(MOST_HALF_REST_S, rest_s)
        self._half_rests += 1
        # Calls with rows of all streams tell nothing of one, but would hide what it costs now.
        while len(self._calls) > HALF_CALLS:
            self._calls.popleft()
        # As if by chance, so that no two streams are always in the same half.
        self._halves += 1
        order = sorted(names, key=lambda name: blake2b(f"{self._halves} {name}".encode()).digest())
        half = set(order[: len(names) // 2])
        self._half_calls = HALF_CALLS
        self.prices = Prices({}, half, None, names, self._tried_rows, now_s + MOST_HALF_S)

    def _price(self, fit: CostFit) -> None:
        """Makes new `prices` only if one changes."""
        former, rows, apart = self._dear, dict[str, int](), set[str]()
        for stream, times, visits, is_proven in fit.dear(STAYS_APART * DEAR):
            if not (is_proven or stream in former.rows):
                continue
            price, before = round(times), former.rows.get(stream, 0)
            rows[stream] = before if abs(price - before) < STAYS * before else price
            if visits >= (STAYS_APART if stream in former.apart else 1.0):
                apart.add(stream)
        kept = set(fit.lately) - apart
        suspects = {name: price for name, price in self._suspects.items() if name in kept}
        is_same = rows == former.rows and apart == former.apart
        if is_same and suspects == self._suspects:
            return
        most = max(1, round(APART_CALLS * fit.usual_rows))
        self._dear = Prices(rows, apart, most) if rows else EVEN
        if rows:
            self._half_rests = 0
        self._suspects, self._half_calls = suspects, 0
        self._publish()


def _low_median(values: Sequence[float]) -> float:
    return max(sorted(values)[(len(values) - 1) // 2], TINY_S)
