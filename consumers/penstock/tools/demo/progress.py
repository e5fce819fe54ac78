"""For each stream, what was sent and what was answered; for the view, not for the proof.

Rule: an object counts once, when its last row is first seen. Its latency runs from the time stamp
of its reference to that of its last answer, without the demo's own work. Only the last seconds' are
kept, so that the table shows soon when a trouble is over.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

# The latencies of this many last seconds are shown. This is long enough for percentiles of a dozen
# cameras at 5 Hz, and short enough to show soon when a trouble is over.
LATENCIES_OVER_S = 3.0
# All objects of a stream that stood still may be answered at once. At most this many latencies of a
# stream are kept.
MOST_LATENCIES = 2_000


@dataclass
class DemoStream:
    """The counts of one stream. `left_out`: how many objects the stream skipped because it was late
    or because too many of its rows waited.
    """

    name: str
    form: str
    sent: int = 0
    objects: int = 0
    rows: int = 0
    rows_sent: int = 0
    left_out: int = 0
    _latencies: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_LATENCIES)
    )

    @property
    def waiting(self) -> int:
        return self.sent - self.objects

    @property
    def rows_ahead(self) -> int:
        """The number of announced rows whose answers were not seen yet."""
        return self.rows_sent - self.rows

    def answered(self, at_s: float, latency_ms: float, rows: int) -> None:
        self.objects += 1
        self.rows += rows
        self._latencies.append((at_s, latency_ms))

    def latencies_ms(self, now_s: float) -> list[float]:
        """The latencies of the last seconds, ascending."""
        while self._latencies and self._latencies[0][0] < now_s - LATENCIES_OVER_S:
            self._latencies.popleft()
        return sorted(ms for _, ms in self._latencies)


class DemoProgress:
    """The counts of all streams. Call `sent` and `answered` once for each object."""

    def __init__(
        self, streams: Sequence[DemoStream], wall_s: Callable[[], float] = time.time
    ) -> None:
        self.streams = streams
        self.none_waits = asyncio.Event()
        self.none_waits.set()
        self._wall_s = wall_s
        self._announced: dict[str, tuple[DemoStream, float]] = {}

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams)

    @property
    def rows_sent(self) -> int:
        return sum(stream.rows_sent for stream in self.streams)

    @property
    def objects(self) -> int:
        return sum(stream.objects for stream in self.streams)

    @property
    def left_out(self) -> int:
        return sum(stream.left_out for stream in self.streams)

    @property
    def waiting(self) -> int:
        return len(self._announced)

    def latencies_ms(self) -> list[list[float]]:
        """For each stream, the latencies of the last seconds, ascending."""
        now_s = self._wall_s()
        return [stream.latencies_ms(now_s) for stream in self.streams]

    def sent(self, index: int, key: str, announced_s: float, rows: int) -> None:
        stream = self.streams[index]
        stream.sent += 1
        stream.rows_sent += rows
        self._announced[key] = (stream, announced_s)
        self.none_waits.clear()

    def answered(self, key: str, rows: int, written_s: float) -> None:
        if (announced := self._announced.pop(key, None)) is None:
            return  # this is a repeat: after a take-over a worker answers uncommitted objects again
        stream, announced_s = announced
        stream.answered(self._wall_s(), max(0.0, written_s - announced_s) * 1000, rows)
        if not self._announced:
            self.none_waits.set()


def together(latencies_ms: Iterable[Sequence[float]]) -> list[float]:
    """The latencies of all streams in one list, ascending."""
    return sorted(ms for group_ms in latencies_ms for ms in group_ms)
