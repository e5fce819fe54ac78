"""The content of a commit: the next record, the deliveries from there on, where lines stopped.

Rule: this is all that the next assignment knows. If a part cannot be read, its rows are repeated,
never left out. Owner: the lane.
"""

from collections.abc import Collection
from typing import NamedTuple

from penstock.core.progress.cursor import (
    Progress,
    StopMark,
    decode,
    encode,
    with_stop,
    without_stop,
)


class Position(NamedTuple):
    """`stopped_at`: the records at which a former assignment's lines stopped, under the same
    limits. `is_whole`: all of the metadata could be read.
    """

    progress: Progress
    stopped_at: frozenset[int]
    is_whole: bool


def written(progress: Progress, stopped_at: Collection[int], limits: str) -> str:
    """The metadata of a commit of `progress.next_offset`. `limits`: the digest of the limits at
    which lines stop.
    """
    metadata = encode(progress)
    ahead = sorted(at - progress.next_offset for at in stopped_at if at >= progress.next_offset)
    return with_stop(metadata, StopMark(tuple(ahead), limits)) if ahead else metadata


def read(next_offset: int, metadata: str, limits: str) -> Position:
    """Read a commit for the assignment that begins there."""
    metadata, mark = without_stop(metadata)
    progress, is_whole = decode(metadata, next_offset)
    # Under other limits the line may go on, so its letters are counted from zero.
    is_ours = mark is not None and mark.limits == limits
    beyond = mark.beyond if mark is not None and is_ours else ()
    return Position(progress, frozenset(next_offset + one for one in beyond), is_whole)
