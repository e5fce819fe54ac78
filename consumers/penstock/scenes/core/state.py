"""Everything that a site remembers, and its form on the changelog.

Rule: its size is bounded by members times open scenes. New fields are added at the end of a Struct,
with a default; none is moved, removed or given another meaning, so that versions can read each
other's states.
"""

from typing import Literal, TypeVar

import cramjam
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from penstock.messages.scene import ClosedBy, Status
from penstock.scenes.core.arrival import Arrival, Position, without_answer

Scene = TypeVar("Scene", "Open", "Decided")

# The reasons to refuse a prediction.
Reason = Literal[
    "late",  # the prediction's scene, or a later one, was closed already
    "surplus",  # the member has a place in the prediction's scene already
    "off_grid",  # its time is more than tolerance_ms away from the rhythm or the grid
    "ahead",  # its time is ahead of Kafka's clock, or of the other members
    "no_time",
    "other_model",  # it is by another model than scenes.model
    "stranger",  # the member is not on the site's list
    "crowded",  # the site has max_members already
    "overload",  # max_open scenes are open already
]


class SiteMember(Struct, array_like=True):
    """`heard`: when the member's last prediction came, by the site's clock. `said`: the last event
    time that a prediction of the member stated. The others are what its rhythm is learned from:
    `phase`, by `phased` predictions; `jitter`, their mean distance from it; `period`, by
    `estimates`; the `intervals` since the last estimate, up to the time `stated` last.
    """

    heard: int
    said: int | None = None
    is_evicted: bool = False
    phase: float = 0
    phased: int = 0
    jitter: float = 0
    stated: int | None = None
    intervals: list[int] = field(default_factory=list)
    estimates: int = 0
    period: float = 0

    @property
    def beat(self) -> float | None:
        """`said` less the phase: members that speak of the same instant have about the same."""
        return None if self.said is None else self.said - self.phase


class Beat(Struct, array_like=True):
    """The time of an instant of the site, and the time between two instants (0: not known), which
    `pulls` predictions have corrected.
    """

    at: float = 0
    period: float = 0
    pulls: int = 0


class Mark(Struct, array_like=True):
    """How far a feed has come with the predictions of one model: the last position, and the latest
    event time.
    """

    position: Position
    time: int | None
    heard: int
    model: str = ""


class Open(Struct, array_like=True):
    """An undecided scene. `start`: the time from which patience and deadline are counted."""

    time: int
    start: int
    taken: dict[str, Arrival] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


class Decided(Struct, array_like=True):
    """A decided scene, in its last revision. The state keeps it as long as late members may amend
    it.
    """

    time: int
    revision: int
    closed_by: ClosedBy
    taken: dict[str, Arrival]
    times: dict[str, int]
    absent: dict[str, Status]

    @property
    def is_bare(self) -> bool:
        """True if an answer is missing because it was too large to be kept."""
        return not all(arrival.value for arrival in self.taken.values())

    @property
    def span_ms(self) -> int:
        return max(self.times.values()) - min(self.times.values())


class Refused(Struct, array_like=True):
    """A prediction that is in no scene. `scene`: the time of the scene to which the prediction
    would belong.
    """

    arrival: Arrival
    member: str
    reason: Reason
    scene: int | None


class SiteState(Struct, array_like=True):
    """`emitted`: the time of the last published scene. `changed`: when a member was last added.
    `open`: the open scenes, in the order of their times. `outbox`: the topic and the value of each
    record that was decided together with this state. After a crash these records are published
    again. `partition`: the site's partition of the repartition topic. `batch`: the number of the
    owner's batch that wrote the state; all decisions of earlier batches were published before that
    batch was written.
    """

    now: int = 0
    emitted: int | None = None
    changed: int = 0
    members: dict[str, SiteMember] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outbox: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int = 0
    batch: int = 0
    beat: Beat = field(default_factory=Beat)


def without_answers(state: SiteState) -> SiteState:
    """A copy of the state without any answers: its smallest form."""

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
    """Encode and compress. Compression is worth its time, because during a backlog a state holds
    hundreds of similar records of a site, which differ in only a few digits.
    """
    return bytes(cramjam.lz4.compress_block(_encoder.encode(state)))


class OtherForm(ValueError):
    """A state that this version cannot read."""


def load(value: bytes) -> SiteState:
    """Decode a state. Raises `OtherForm` if any part of it cannot be read. The other parts are not
    used alone, because decisions from them would contradict the scenes that were published from the
    whole state.
    """
    try:
        return _decoder.decode(bytes(cramjam.lz4.decompress_block(value)))
    except (msgspec.MsgspecError, cramjam.DecompressionError) as error:
        raise OtherForm(str(error)) from error
