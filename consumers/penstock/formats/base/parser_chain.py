"""The interface of parsers. Parsers form a chain: a parser of packed data feeds the parser of the
content, and a parser of an archive feeds one parser for each member.

Rule: a parser is lazy: it yields runs while it reads, so that one unpacked piece is parsed before
the next piece is made. A parser holds at most its current chunk and one unfinished row. The parser
of a member is opened when the member's header was read, in the order of the archive. Owner: one
reading of one object.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.errors import ErrorCode, Poison
from penstock.formats.base.runs import Run

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

    def close(self) -> Iterator[Run]:
        """There are no more bytes: yield the remaining rows."""
        ...


def feed_whole(parser: Parser, data: bytes) -> Iterator[Run]:
    """Feed the parser all bytes of an object at once. A parser of text may have a method `whole`;
    this method reads the last row together with the others, even if no newline ends the last row.
    """
    feed: Callable[[bytes], Iterator[Run]] = getattr(parser, "whole", parser.feed)
    return feed(data)


class Members(Protocol):
    """The members of an archive."""

    def open(self, path: str) -> Parser | None:
        """The parser of a member. None: the member is passed over."""
        ...

    def rest(self) -> Iterator[Run]:
        """The rows that were held back. Call this once, when the archive ends or breaks off."""
        return iter(())


def of_member(path: str, runs: Iterator[Run]) -> Iterator[Run]:
    """The runs of a member, each with the member's path. If `Poison` is raised, it names this path,
    too. Runs that were held back already have the path of their own member.
    """
    try:
        for run in runs:
            yield run if run.member is not None else run._replace(member=path)
    except Poison as poison:
        raise Poison(poison.code, f'member "{path}": {poison}') from poison
