"""Gives the bytes of an object to decoding code, and, as an open file, to libraries.

Rule: a call blocks until the bytes are there. The object's last bytes are fetched first. Reads that
follow each other without large gaps bring more bytes each time.
"""

import io
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from penstock.formats.runs import RowOptions, Run

# The first request fetches this many of the last bytes. These bytes hold the footers of Parquet,
# Arrow and zip, or a whole small object.
TAIL_BYTES: Final = 64 << 10

# At most this much is read ahead. For a request of 8 MiB most stores take a tenth of a second.
MOST_AHEAD_BYTES: Final = 8 << 20
LEAST_AHEAD_BYTES: Final = 64 << 10
# After a read of more bytes than this, nothing is read ahead: a library that reads so much at once
# has a buffer of its own, and its next read is in another place.
SMALL_BYTES: Final = 256 << 10
# Two reads with a gap of at most this size between them count as reads that follow each other. So
# such gaps are read ahead, too, which is cheaper than another request.
GAP_BYTES: Final = 64 << 10

# One request asks for at most this many bytes, so the worker never holds a whole large object.
MOST_NEED_BYTES: Final = 16 << 20

# A function of two row numbers. It returns True if any row from the first number up to, but not
# including, the second number is wanted.
Wanted = Callable[[int, int], bool]


class ObjectSource(Protocol):
    @property
    def size(self) -> int:
        """The size of the stored object; -1 as long as it is unknown."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the object; fewer at its end."""
        ...


class Stream(ObjectSource, Protocol):
    def chunks(self) -> Iterator[bytes]:
        """All chunks from the first byte on, none of them empty. Call this once."""
        ...


# A function that gives the rows of a source. It reads only as far as rows are asked for, and may
# skip unwanted rows.
Read = Callable[[ObjectSource, RowOptions, Wanted], Iterator[Run]]


class Need(NamedTuple):
    """The bytes that must be fetched before the reading can go on."""

    start: int
    stop: int


class RangedSource:
    """An object that is read by ranges. `tail`: the object's last bytes. `ask`: a function that
    fetches other bytes. The tail and the latest fetched piece are held.
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

    def _fetch(self, start: int, stop: int) -> bytes:
        at, tail = self._tail
        if start >= at:
            return tail[start - at : stop - at]
        if stop > at:
            return self._asked(start, at) + tail[: stop - at]
        return self._asked(start, stop)

    def _asked(self, start: int, stop: int) -> bytes:
        pieces = []
        while True:
            data = self._ask(Need(start, min(stop, start + MOST_NEED_BYTES)))
            start += len(data)
            pieces.append(data)
            if start >= stop or not data:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class AtHand:
    """An object that is in memory. `asked`: a function that is called before each chunk."""

    def __init__(
        self,
        data: bytes,
        chunk_bytes: int = 1 << 20,
        asked: Callable[[], object] = lambda: None,
    ) -> None:
        self.size = len(data)
        self._data = data
        self._chunk_bytes = chunk_bytes
        self._asked = asked

    def read(self, start: int, stop: int) -> bytes:
        return self._data[start:stop]

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, self._chunk_bytes):
            self._asked()
            yield self._data[start : start + self._chunk_bytes]


class SourceFile(io.RawIOBase):
    """The object as a seekable open file."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read(self._at, min(self._source.size, self._at + len(buffer)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        stop = self._source.size if size is None or size < 0 else self._at + size
        data = self._source.read(self._at, min(stop, self._source.size))
        self._at += len(data)
        return data
