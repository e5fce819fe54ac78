"""Everything that a site remembers: what the table and its changelog hold.

Rule: bounded by members x open scenes; encoding and decoding it changes nothing. Fields are added
at the end of a Struct, each with a default, and none is moved, renamed in its meaning or taken
away: the versions before and after read each other then. Owner: the `Site`.
"""

from typing import Literal, TypeVar

import cramjam
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from penstock.messages.scene import ClosedBy, Status
from penstock.scenes.core.arrival import Arrival, Position, without_answer

Scene = TypeVar("Scene", "Open", "Decided")

Reason = Literal[
    "late",  # its scene was closed, or a later one was
    "surplus",  # its member has a place in that scene already
    "off_grid",  # farther than tolerance_ms from every scene time
    "ahead",  # its clock is ahead of Kafka's, or of the others'
    "no_time",
    "other_model",  # not by scenes.model
    "stranger",  # not on the site's list
    "crowded",  # max_members
    "overload",  # max_open
]


class Member(Struct, array_like=True):
    """`heard` is when it was last heard, on the wall clock; `said` the time of what it said."""

    heard: int
    said: int | None = None
    is_evicted: bool = False


class Mark(Struct, array_like=True):
    """How far a feed has come: its last position, and its latest event time, by one model."""

    position: Position
    time: int | None
    heard: int
    model: str = ""


class Open(Struct, array_like=True):
    """A scene that is not decided. `start` is where its patience and its deadline run from."""

    time: int
    start: int
    taken: dict[str, Arrival] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


class Decided(Struct, array_like=True):
    """A scene as it was published last; kept for a while if late members are to amend it."""

    time: int
    revision: int
    closed_by: ClosedBy
    taken: dict[str, Arrival]
    times: dict[str, int]
    absent: dict[str, Status]

    @property
    def is_bare(self) -> bool:
        """Without the answer of one member at least, which was too large to be kept."""
        return not all(arrival.value for arrival in self.taken.values())

    @property
    def span_ms(self) -> int:
        return max(self.times.values()) - min(self.times.values())


class Refused(Struct, array_like=True):
    """A prediction that is in no scene. `scene` is the time of the one it would have been in."""

    arrival: Arrival
    member: str
    reason: Reason
    scene: int | None


class SiteState(Struct, array_like=True):
    """`open` in order of time. `changed` is when a member was last new. `outbox` is what was
    decided with this state: (topic, value) as published, again after a crash. `partition` is that
    of the repartition topic. `batch` is the number of the batch, of this owner, that wrote it: what
    earlier ones decided was published before that.
    """

    now: int = 0
    emitted: int | None = None
    changed: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outbox: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int = 0
    batch: int = 0


def without_answers(state: SiteState) -> SiteState:
    """What cannot be left out of it; the state itself stays as it is."""

    def bare(scene: Scene) -> Scene:
        taken = {name: without_answer(each) for name, each in scene.taken.items()}
        return replace(scene, taken=taken)

    return replace(
        state,
        open=[bare(scene) for scene in state.open],
        decided=[bare(scene) for scene in state.decided],
        outbox=[],
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SiteState)


def dump(state: SiteState) -> bytes:
    """Packed: records of one site differ in a few digits, and a backlog keeps hundreds of them."""
    return bytes(cramjam.lz4.compress_block(_encoder.encode(state)))


class OtherForm(ValueError):
    """A state that this version cannot read."""


def load(value: bytes) -> SiteState:
    """Raises `OtherForm`: half of a memory would contradict what was published by it."""
    try:
        return _decoder.decode(bytes(cramjam.lz4.decompress_block(value)))
    except (msgspec.MsgspecError, cramjam.DecompressionError) as error:
        raise OtherForm(str(error)) from error
