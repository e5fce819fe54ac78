"""Which objects are sampled: by their trace's id at the start, for an error or their time at the
end.

Rule: the first decision depends on the trace id alone, so all workers and other services with the
same ratio choose the same traces. The later decisions are bounded, so that a flood of errors does
not become a flood of spans. Owner: the tracer.
"""

import math
from typing import Final

from penstock.core.rows.trace import Why
from penstock.messages.traceparent import Caller

_LOW_BITS: Final = (1 << 64) - 1
# The bound of the slowest is that of so many objects before.
BLOCK: Final = 200
# Objects with errors a second that are sampled for it; more look like these.
MOST_ERRORS_PER_S: Final = 50


class Ratio:
    """As OpenTelemetry's `TraceIdRatioBased`: the low 8 bytes of the trace id, as a number, are
    below `share` of their range.
    """

    def __init__(self, share: float) -> None:
        self._bound = round(share * (_LOW_BITS + 1))

    def why(self, trace_id: int, caller: Caller | None) -> Why | None:
        if caller is not None and caller.is_sampled:
            return "caller"
        return "ratio" if trace_id & _LOW_BITS < self._bound else None


class Slowest:
    """Recognises the slowest `share` of objects by the time of the last `BLOCK`. While all become
    slower, it says so of `share` of them and no more.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen_s: list[float] = []
        self._bound_s = math.inf
        self._credit = 0.0

    def is_one(self, took_s: float) -> bool:
        self._credit = min(self._credit + self._share, 2.0)
        self._seen_s.append(took_s)
        is_slow = took_s > self._bound_s and self._credit >= 1
        if is_slow:
            self._credit -= 1
        if len(self._seen_s) == BLOCK:
            last = min(int(BLOCK * (1 - self._share)), BLOCK - 1)
            self._bound_s = sorted(self._seen_s)[last] if self._share else math.inf
            self._seen_s.clear()
        return is_slow


class Errors:
    """Lets the first `MOST_ERRORS_PER_S` of a second pass."""

    def __init__(self) -> None:
        self._second = -1
        self._passed = 0

    def passes(self, now_s: float) -> bool:
        if int(now_s) != self._second:
            self._second, self._passed = int(now_s), 0
        self._passed += 1
        return self._passed <= MOST_ERRORS_PER_S
