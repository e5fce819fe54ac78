"""The interface of parsers, and how they are chained: one of packed data feeds that of its content,
one of an archive those of its members.

Rule: a parser is lazy: it yields runs while it reads, so that one inflated piece is parsed before
the next one is made. It holds at most its current chunk and one unfinished row. A member is opened
when its header was read, in the order of the archive. Owner: one reading of one object.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.errors import ErrorCode, Poison
from penstock.formats.base.runs import Run

# A feed is about 1 ms of the event loop: text is read at 100-400 MB/s.
PLAIN_STEP_BYTES = 256 << 10
# At the default expansion_ratio of 200 this is 25 MB of text.
EXPANDING_STEP_BYTES = 128 << 10


class Parser(Protocol):
    """Fed with the bytes of one object, cut anywhere; `feed` must be exhausted before the next
    call. Raises `Poison` if the rest of the object cannot be read.
    """

    step_bytes: int = PLAIN_STEP_BYTES
    damage: ErrorCode = "bad_format"
    """What it is called when the bytes break off or the wrapper around them is broken."""

    def feed(self, data: bytes) -> Iterator[Run]:
        """Take the next bytes; yield the rows now complete."""
        ...

    def close(self) -> Iterator[Run]:
        """There are no more bytes: yield the remaining rows."""
        ...


def feed_whole(parser: Parser, data: bytes) -> Iterator[Run]:
    """Feed all bytes of an object. A parser of text with a method `whole` reads the last row
    together with the others, although no newline ends it.
    """
    feed: Callable[[bytes], Iterator[Run]] = getattr(parser, "whole", parser.feed)
    return feed(data)


class Members(Protocol):
    """The members of an archive."""

    def open(self, path: str) -> Parser | None:
        """None passes the member over."""
        ...

    def rest(self) -> Iterator[Run]:
        """Rows that were held back. Called once, when the archive ends or breaks."""
        return iter(())


def of_member(path: str, runs: Iterator[Run]) -> Iterator[Run]:
    """The runs with the member's name, also on errors; runs that were held back have it already."""
    try:
        for run in runs:
            yield run if run.member is not None else run._replace(member=path)
    except Poison as poison:
        raise Poison(poison.code, f'member "{path}": {poison}') from poison
