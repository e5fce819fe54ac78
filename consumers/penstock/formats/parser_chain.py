"""The interface of parsers, which form a chain: packed data, archive, content.

Rule: a parser is lazy: it yields runs while it reads, so that one unpacked piece is parsed before
the next is made, and holds at most its chunk and one unfinished row. The parser of a member is
opened when its header was read, in the order of the archive.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from penstock.errors import ErrorCode, Poison
from penstock.formats.runs import Run, bad_row

# Text is read at 100-400 MB/s, so one call of `feed` takes about 1 ms of the event loop.
PLAIN_STEP_BYTES = 256 << 10
# With the default of limits.expansion_ratio, which is 200, these bytes become at most 25 MB of
# text.
EXPANDING_STEP_BYTES = 128 << 10


class Parser(Protocol):
    """A parser is fed the bytes of one object in pieces, which may be cut anywhere. The iterator
    that `feed` returns must be exhausted before the next call. `feed` and `close` raise `Poison` if
    the rest of the object cannot be read.
    """

    step_bytes: int = PLAIN_STEP_BYTES
    """`feed` gets at most this many bytes at a time."""
    damage: ErrorCode = "bad_format"
    """The code of the error if the bytes break off, or if the packing around them is damaged."""

    def feed(self, data: bytes) -> Iterator[Run]:
        """Take the next bytes; yield the rows that are complete now."""
        ...

    def whole(self, data: bytes) -> Iterator[Run]:
        """Take all bytes of the object at once; `close` follows. A parser of text reads the last
        row together with the others, even if no newline ends it.
        """
        return self.feed(data)

    def close(self) -> Iterator[Run]:
        """There are no more bytes: yield the remaining rows."""
        ...


class Members(Protocol):
    """The members of an archive."""

    def open(self, path: str) -> Parser | None:
        """The parser of a member. None: the member is passed over."""
        ...

    def pass_over(self, path: str, kind: str = "", *, told: bool = True) -> None:
        """Count a member that is not read. `kind`: what it is; by default, its extension tells.
        `told`: False if nobody expects it to be read.
        """
        return

    def lose(self, path: str) -> None:
        """Count a member that was opened, but was broken before it had a good row."""
        return

    def rest(self) -> Iterator[Run]:
        """The rows that were held back. Call this when the archive breaks off."""
        return iter(())

    def end(self) -> Iterator[Run]:
        """The rows that were held back; the archive has ended. Raises `Poison` if it has members,
        but none of them could be read.
        """
        ...


class ArchiveLimit(Poison):
    """A limit of all members together was reached, so no further member is read."""


class ArchiveMember:
    """Reads one member of an archive. If something is wrong with it, this is one bad row, and the
    members behind it are read all the same.
    """

    def __init__(self, path: str, parser: Parser, members: Members) -> None:
        self.path = path
        self.is_broken = False
        self._has_rows = False
        self._parser = parser
        self._members = members

    @property
    def step_bytes(self) -> int:
        return self._parser.step_bytes

    def feed(self, data: bytes) -> Iterator[Run]:
        return iter(()) if self.is_broken else self._read(partial(self._parser.feed, data))

    def close(self) -> Iterator[Run]:
        return iter(()) if self.is_broken else self._read(self._parser.close)

    def fail(self, poison: Poison) -> Iterator[Run]:
        """The bad row that says what is wrong with the member."""
        self.is_broken = True
        if isinstance(poison, ArchiveLimit):
            raise ArchiveLimit(poison.code, f'member "{self.path}": {poison}') from poison
        if not self._has_rows:
            self._members.lose(self.path)
        yield from self._members.rest()
        yield bad_row(str(poison))._replace(member=self.path)

    def _read(self, read: Callable[[], Iterator[Run]]) -> Iterator[Run]:
        """The runs, each with the path of the member. Runs that were held back have the path of
        their own member already.
        """
        try:
            for run in read():
                self._has_rows |= run.payload is not None
                yield run if run.member is not None else run._replace(member=self.path)
        except Poison as poison:
            yield from self.fail(poison)
