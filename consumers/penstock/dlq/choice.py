"""Which dead letters a command works on.

Rule: this module is light to import, because the command line needs it to read its options. Owner:
the commands.
"""

import fnmatch
from dataclasses import dataclass
from typing import NamedTuple

from penstock.messages.dead_letter import DeadLetter


class Place(NamedTuple):
    """A letter's place on the dead-letter topic; people write it as `partition/offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter is chosen if it matches every field that is set, neither empty nor None. `since_ms`:
    the letter's `failed_at` is at or after this time, in epoch milliseconds. `until_ms`: its
    `failed_at` is before this time.
    """

    codes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    places: tuple[Place, ...] = ()

    def takes(self, place: Place, letter: DeadLetter) -> bool:
        return (
            (not self.codes or letter.code in self.codes)
            and (not self.places or place in self.places)
            and (self.since_ms is None or letter.failed_at >= self.since_ms)
            and (self.until_ms is None or letter.failed_at < self.until_ms)
            and (
                not self.streams
                or any(fnmatch.fnmatchcase(letter.stream, glob) for glob in self.streams)
            )
        )
