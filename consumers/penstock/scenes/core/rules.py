"""What `[scenes]` says, as the core needs it.

Rule: plain values, checked once; the core never sees the configuration. Owner: the code that
builds a `Site`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

# Longer than any record is on its way while its worker keeps up.
BEHIND_MS = 1_000

# As long as Kafka keeps records unless it is told otherwise: nothing older is read again.
FORGET_MS: Final = 7 * 24 * 3_600_000

# Of a site's members, and of its feeds: what it remembers is one record of Kafka.
MOST_NAMES_CHARS: Final = 128 << 10

LatePolicy = Literal["topic", "amend", "drop"]


class Place(NamedTuple):
    """Where a stream belongs."""

    site: str
    member: str


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in milliseconds. `listed` has the members of the sites that are not learned. `leader`
    is the member whose predictions give the scenes their times; `is_grid`: multiples of `period`.
    `model`: whose predictions scenes are made of; None: of any. `forget_ms`: what is silent for so
    long, a site or a learned member, is gone.
    """

    period_ms: int = 50
    tolerance_ms: int = 25
    offsets_ms: Mapping[str, int] = field(default_factory=dict)
    is_grid: bool = True
    leader: str | None = None
    patience_ms: int = 100
    quorum: int = 0
    deadline_ms: int = 500
    ahead_ms: int = 250
    lease_ms: int = 10_000
    late: LatePolicy = "topic"
    listed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_open: int = 64
    max_members: int = 256
    model: str | None = None
    forget_ms: int = FORGET_MS


class Streams:
    """From a stream's name to its place; None: it belongs to no site."""

    def __init__(self, pattern: str) -> None:
        self._match = re.compile(pattern).fullmatch
        self._known: dict[str, Place | None] = {}

    def place(self, stream: str) -> Place | None:
        try:
            return self._known[stream]
        except KeyError:
            found = self._match(stream)
            site, member = (found["site"], found["member"]) if found else (None, None)
            place = Place(site, member) if site and member else None
            if len(self._known) < 100_000:  # names may be made up without end
                self._known[stream] = place
            return place
