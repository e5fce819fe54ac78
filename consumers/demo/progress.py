"""What was sent and what came back, per stream: plain bookkeeping for the view.

Rule: an object counts when the last of its rows is seen on the output topic, once however often it
comes, and its latency runs from when it was due. The proof does not rest on any of this.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Stream:
    """One stream's share. `latencies_ms` has one entry per answered object."""

    name: str
    form: str
    sent: int = 0
    objects: int = 0
    rows: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return self.sent - self.objects


class Progress:
    """`sent` and `answered` are told of each object, by its key."""

    def __init__(self, streams: Sequence[Stream], wall_s: Callable[[], float] = time.time) -> None:
        self.streams = streams
        self.rows_sent = 0
        self.none_waits = asyncio.Event()
        self.none_waits.set()
        self._wall_s = wall_s
        self._due: dict[str, tuple[Stream, float]] = {}

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams)

    @property
    def objects(self) -> int:
        return sum(stream.objects for stream in self.streams)

    @property
    def waiting(self) -> int:
        return len(self._due)

    def sent(self, index: int, key: str, due_s: float, rows: int) -> None:
        stream = self.streams[index]
        stream.sent += 1
        self.rows_sent += rows
        self._due[key] = (stream, due_s)
        self.none_waits.clear()

    def answered(self, key: str, rows: int) -> None:
        if (found := self._due.pop(key, None)) is None:
            return  # once more: a worker that took over repeats what was not committed
        stream, due_s = found
        stream.objects += 1
        stream.rows += rows
        stream.latencies_ms.append((self._wall_s() - due_s) * 1000)
        if not self._due:
            self.none_waits.set()
