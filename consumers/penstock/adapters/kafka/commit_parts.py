"""Cuts the positions of many partitions into several commits.

Rule: the broker keeps the positions of one commit as one batch of `__consumer_offsets`, about 250
partitions with the most metadata by its defaults. A commit refused as a whole is tried in halves,
down to one partition, and later ones are no larger than what was taken.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from penstock.adapters.kafka.error_codes import INVALID_COMMIT_OFFSET_SIZE, UNKNOWN_ERROR
from penstock.ports import Commit, Where

# Below the broker's default message.max.bytes of 1,048,588, as is every batch of ours.
COMMIT_BYTES: Final = 900_000
# What a position takes in the broker's batch besides the names and the metadata: numbers, the time
# and the id of the topic, and the frame of a record.
POSITION_BYTES: Final = 100
# The broker says one of these if a commit is too large as a whole. Brokers from 4.0 on say that
# they do not know the error.
_TOO_LARGE: Final = (UNKNOWN_ERROR, INVALID_COMMIT_OFFSET_SIZE)


class CommitParts:
    """`code_of`: a function that gives the broker's code in a client's exception, or None."""

    def __init__(self, group: str, code_of: Callable[[Exception], int | None]) -> None:
        self._group = group
        self._code_of = code_of
        self._most_bytes = COMMIT_BYTES

    async def each(
        self,
        positions: Mapping[Where, Commit],
        commit: Callable[[dict[Where, Commit]], Awaitable[Any]],
    ) -> None:
        """Commit all positions, in as many commits as they need. If one fails, those behind it are
        not tried: the next commit has them all again.
        """
        waiting = list(parts(positions, self._group, self._most_bytes))[::-1]
        while waiting:
            part = waiting.pop()
            try:
                await commit(part)
            except Exception as error:
                if len(part) == 1 or self._code_of(error) not in _TOO_LARGE:
                    raise
                self._most_bytes = _bytes_of(part, self._group) // 2
                waiting += list(parts(part, self._group, self._most_bytes))[::-1]


def parts(
    positions: Mapping[Where, Commit], group: str, most_bytes: int = COMMIT_BYTES
) -> Iterator[dict[Where, Commit]]:
    """The positions in order, in parts of at most `most_bytes`, and at least one position each."""
    part: dict[Where, Commit] = {}
    room = most_bytes
    for where, position in positions.items():
        nbytes = _bytes_of({where: position}, group)
        if part and nbytes > room:
            yield part
            part, room = {}, most_bytes
        part[where] = position
        room -= nbytes
    if part:
        yield part


def _bytes_of(part: Mapping[Where, Commit], group: str) -> int:
    return sum(
        POSITION_BYTES + len(group) + len(where.topic) + len(position.metadata.encode())
        for where, position in part.items()
    )
