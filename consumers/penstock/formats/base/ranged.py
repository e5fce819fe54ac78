"""An object that is read by ranges: only the needed bytes are fetched.

Rule: a reader is written as if the object lay on disk. Reads that follow each other are fetched
together, more each time; the object's last bytes are fetched first. Owner: one reading of one
object.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# The first request fetches this many last bytes: they hold the footers of Parquet, Arrow and zip,
# or a whole small object.
TAIL_BYTES: Final = 64 << 10

# At most this much is read ahead: a request of 8 MiB takes most stores a tenth of a second.
MOST_AHEAD_BYTES: Final = 8 << 20
LEAST_AHEAD_BYTES: Final = 64 << 10
# Larger reads are not read ahead: such a reader has a buffer of its own and reads in several
# places.
SMALL_BYTES: Final = 256 << 10
# A gap of this size between two reads is fetched as well, as that is cheaper than another request.
GAP_BYTES: Final = 64 << 10


class Need(NamedTuple):
    """Bytes to fetch before the reading can go on."""

    start: int
    stop: int


class Ranges:
    """An object as its reader sees it. Reads that begin where the last one ended are fetched in
    growing pieces, of which one is held.
    """

    def __init__(self, size: int, tail: bytes, ask: Callable[[Need], bytes]) -> None:
        self.size = size
        self._ask = ask
        self._tail = (size - len(tail), tail)
        self._piece = (0, b"")
        self._last_stop = -1
        self._ahead_bytes = 0

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the object; fewer at its end."""
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        is_next = 0 <= start - self._last_stop <= GAP_BYTES
        self._last_stop = stop
        for at, data in (self._piece, self._tail):
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        is_small = stop - start <= SMALL_BYTES
        if is_next and is_small:
            ahead_bytes = max(LEAST_AHEAD_BYTES, 2 * self._ahead_bytes)
            self._ahead_bytes = min(MOST_AHEAD_BYTES, ahead_bytes)
        else:
            self._ahead_bytes = 0
        data = self._fetch(start, min(self.size, max(stop, start + self._ahead_bytes)))
        self._piece = (start, data)
        return data[: stop - start]

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, SMALL_BYTES):
            yield self.read(start, start + SMALL_BYTES)

    def _fetch(self, start: int, stop: int) -> bytes:
        at, tail = self._tail
        if start >= at:
            return tail[start - at : stop - at]
        if stop > at:
            return self._ask(Need(start, at)) + tail[: stop - at]
        return self._ask(Need(start, stop))
