"""An object as the code sees it that decodes it, and as an open file for libraries that want one.

Rule: a call blocks until the bytes are there, so it is never made on an event loop. An object is
read from its first byte on (`chunks`) or here and there (`read`); who looked at the first chunks
may still turn to `read`. Owner: one reading of one object.
"""

import io
from collections.abc import Callable, Iterator
from typing import Protocol

from consumers.formats.base import RowOptions, Run

# Does anybody want a row of these (half open)?
Wanted = Callable[[int, int], bool]


class Source(Protocol):
    @property
    def size(self) -> int:
        """Of the object as it is stored; -1 where nobody knows, as of what is being unpacked."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the object, as far as it goes."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """From the first byte on, each once; to be asked for once. None is empty."""
        ...


# Lazy: reads no further than for the rows that are asked of it. `Wanted` spares it the others.
Read = Callable[[Source, RowOptions, Wanted], Iterator[Run]]


class AtHand:
    """All bytes are here; `asked` is called before each chunk."""

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
    """Seekable: what libraries take for an open file."""

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
