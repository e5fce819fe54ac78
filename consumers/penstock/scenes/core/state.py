"""Everything that a site remembers: what the table and its changelog hold.

Rule: its size is bounded by members x open scenes; encoding and decoding change nothing. New fields
are added at the end of a Struct, with a default. No field is moved, removed or given another
meaning, so that older and newer versions can read each other's states. Owner: the `Site`.
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
    "late",  # its scene was closed already, or a later one was
    "surplus",  # its member already has a place in that scene
    "off_grid",  # farther than tolerance_ms from every scene time
    "ahead",  # its clock is ahead of Kafka's clock, or of the other members'
    "no_time",
    "other_model",  # not predicted by scenes.model
    "stranger",  # not on the site's list
    "crowded",  # max_members
    "overload",  # max_open
]


class Member(Struct, array_like=True):
    """`heard`: when it was last heard, on the wall clock. `said`: its last event time."""

    heard: int
    said: int | None = None
    is_evicted: bool = False


class Mark(Struct, array_like=True):
    """How far a feed has come, for one model: its last position and its latest event time."""

    position: Position
    time: int | None
    heard: int
    model: str = ""


class Open(Struct, array_like=True):
    """An undecided scene. `start`: from here its patience and its deadline are counted."""

    time: int
    start: int
    taken: dict[str, Arrival] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


class Decided(Struct, array_like=True):
    """A published scene, in its last revision; kept for a while if late members may amend it."""

    time: int
    revision: int
    closed_by: ClosedBy
    taken: dict[str, Arrival]
    times: dict[str, int]
    absent: dict[str, Status]

    @property
    def is_bare(self) -> bool:
        """True if the answer of at least one member was too large to be kept."""
        return not all(arrival.value for arrival in self.taken.values())

    @property
    def span_ms(self) -> int:
        return max(self.times.values()) - min(self.times.values())


class Refused(Struct, array_like=True):
    """A prediction that got into no scene. `scene`: the time of the scene it would have been in."""

    arrival: Arrival
    member: str
    reason: Reason
    scene: int | None


class SiteState(Struct, array_like=True):
    """`open` is in order of time. `changed`: when a member was last added. `outbox`: the (topic,
    value) pairs decided together with this state; after a crash they are published again.
    `partition`: of the repartition topic. `batch`: the number of this owner's batch that wrote the
    state; what earlier batches decided was published before it.
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
    """The smallest form of the state, without any answers; the state itself is not changed."""

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
    """Pack and compress: records of one site differ in a few digits, and a backlog keeps hundreds
    of them.
    """
    return bytes(cramjam.lz4.compress_block(_encoder.encode(state)))


class OtherForm(ValueError):
    """A state that this version cannot read."""


def load(value: bytes) -> SiteState:
    """Unpack. Raises `OtherForm` rather than accept a part of a state, which would contradict what
    was published from the whole.
    """
    try:
        return _decoder.decode(bytes(cramjam.lz4.decompress_block(value)))
    except (msgspec.MsgspecError, cramjam.DecompressionError) as error:
        raise OtherForm(str(error)) from error
