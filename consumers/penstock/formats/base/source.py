"""An object as its decoding code sees it, and as an open file for libraries that want one.

Rule: a call blocks until the bytes are there, so it is never made on an event loop. An object is
read from its first byte on (`chunks`) or by ranges (`read`); a reader may look at the first chunks
and then use `read`. Owner: one reading of one object.
"""

import io
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.formats.base.runs import RowOptions, Run

# Is any of these rows (half open) wanted?
Wanted = Callable[[int, int], bool]


class Source(Protocol):
    @property
    def size(self) -> int:
        """The stored object's size; -1 if it is unknown, as of data that is being unpacked."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the object; fewer at its end."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """All chunks from the first byte on, none of them empty. Called once."""
        ...


# A lazy reader: it reads only as far as rows are asked for, and may skip unwanted ones.
Read = Callable[[Source, RowOptions, Wanted], Iterator[Run]]


class AtHand:
    """An object whose bytes are all here; `asked` is called before each chunk."""

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

    def __init__(self, source: Source) -> None:
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
