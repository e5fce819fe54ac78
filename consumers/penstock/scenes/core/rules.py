"""The rules by which sites decide, as plain values, and the place of each stream in a site."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

# If more time than this passes from an event to its record in Kafka, the worker that wrote the
# record was behind.
BEHIND_MS = 1_000

# Kafka's default retention: records that are older cannot be read again.
FORGET_MS: Final = 7 * 24 * 3_600_000

# The names of a site's members together have at most this many characters, because a site's state
# must fit into one Kafka record. The names of a site's feeds have the same limit.
MOST_NAMES_CHARS: Final = 128 << 10

Anchor = Literal["rhythm", "grid", "leader", "smallest"]
LatePolicy = Literal["topic", "amend", "drop"]


class Place(NamedTuple):
    """The site and the member that a stream belongs to."""

    site: str
    member: str


@dataclass(frozen=True, slots=True)
class Rules:
    """Times are in milliseconds. `anchor`: what the times of scenes follow. `period_ms`: the time
    between two scenes; 0: it is learned. `tolerance_ms`: None: half a period. `leader`: the name of
    the member whose predictions set the times of scenes. `listed`: for each site that has a list,
    the names of its members on that list. `model`: the name of the model whose predictions make
    scenes; None: the predictions of any model do. `forget_ms`: a site or a learned member that is
    silent for this long is forgotten.
    """

    period_ms: int = 50
    tolerance_ms: int | None = 25
    offsets_ms: Mapping[str, int] = field(default_factory=dict)
    anchor: Anchor = "grid"
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
    max_sites: int = 50_000
    model: str | None = None
    forget_ms: int = FORGET_MS

    @property
    def within_ms(self) -> int:
        """How far from a scene's time a prediction may be, unless the anchor is `rhythm`."""
        half = (self.period_ms + 1) // 2
        return half if self.tolerance_ms is None else self.tolerance_ms


class SiteStreams:
    """Finds the place of a stream by the stream's name; None if the stream belongs to no site."""

    def __init__(self, pattern: str) -> None:
        self._match = re.compile(pattern).fullmatch
        self._known: dict[str, Place | None] = {}

    def place(self, stream: str) -> Place | None:
        try:
            return self._known[stream]
        except KeyError:
            match = self._match(stream)
            site, member = (match["site"], match["member"]) if match else (None, None)
            place = Place(site, member) if site and member else None
            if len(self._known) < 100_000:  # a sender may invent any number of names
                self._known[stream] = place
            return place
