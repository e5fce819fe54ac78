"""What a commit says: the next record, what is delivered of it and beyond, where a line stopped.

Rule: what one assignment writes here is all that the next one knows; where it cannot be read, rows
are repeated, never left out. Owner: the lane.
"""

import logging

from consumers.core.cursor import Progress, StopMark, decode, encode, with_stop, without_stop
from consumers.core.line import LineLimits
from consumers.ports import Commit

log = logging.getLogger(__name__)


def written(progress: Progress, stopped_at: int | None, limits: LineLimits) -> Commit:
    metadata = encode(progress)
    if stopped_at is not None and stopped_at >= progress.next_offset:
        beyond = stopped_at - progress.next_offset
        metadata = with_stop(metadata, StopMark(beyond, limits.digest))
    return Commit(progress.next_offset, metadata)


def read(partition: int, start: Commit, limits: LineLimits) -> tuple[Progress, int | None]:
    """What is delivered, and the offset where a former assignment stopped under these limits."""
    metadata, mark = without_stop(start.metadata)
    progress, is_whole = decode(metadata, start.next_offset)
    if not is_whole:
        log.warning(
            "partition %d: not all of the commit's metadata could be read (%.40r); what the rest "
            "would have said is repeated",
            partition,
            metadata,
        )
    if mark is None or mark.limits != limits.digest:
        return progress, None
    return progress, start.next_offset + mark.beyond
