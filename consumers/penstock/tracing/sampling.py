"""Decides which objects are sampled. At the start the trace id of an object decides; at its end, an
error or a long time.

Rule: the first decision depends on the trace id alone, so all workers and other services with the
same ratio choose the same traces. The later decisions are bounded, so that a flood of errors does
not become a flood of spans. Owner: the tracer.
"""

import math
from typing import Final

from penstock.core.rows.ticket_origin import Why
from penstock.messages.traceparent import Caller

_LOW_BITS: Final = (1 << 64) - 1
# After each block of this many objects, the time above which an object counts as slow is computed
# anew from the times of the block.
BLOCK: Final = 200
# At most this many objects a second are sampled for their error; further objects would show the
# same.
MOST_ERRORS_PER_S: Final = 50


class Ratio:
    """Decides as OpenTelemetry's `TraceIdRatioBased` does: a trace is sampled if the low 8 bytes of
    its id, as a number, are below `share` of their range.
    """

    def __init__(self, share: float) -> None:
        self._bound = round(share * (_LOW_BITS + 1))

    def why(self, trace_id: int, caller: Caller | None) -> Why | None:
        if caller is not None and caller.is_sampled:
            return "caller"
        return "ratio" if trace_id & _LOW_BITS < self._bound else None


class Slowest:
    """Recognises the slowest `share` of objects by the times of the last full block of objects. No
    more than `share` of all objects count as slow, even while all objects become slower.
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
    """Lets the first `MOST_ERRORS_PER_S` objects of each second pass."""

    def __init__(self) -> None:
        self._second = -1
        self._passed = 0

    def passes(self, now_s: float) -> bool:
        if int(now_s) != self._second:
            self._second, self._passed = int(now_s), 0
        self._passed += 1
        return self._passed <= MOST_ERRORS_PER_S
