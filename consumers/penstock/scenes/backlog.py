"""Is a worker behind? Yes, if the records of a partition are old when they are read, and more
follow.

Rule: it is not enough that more records follow: a few are always on their way, and the last offset
may be a mark of a transaction instead of a record. Owner: the engine.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from penstock.scenes.core.rules import BEHIND_MS

Where = TypeVar("Where", bound=Hashable)


class Backlog(Generic[Where]):
    def __init__(self) -> None:
        # Of the last handled record: the next offset, when Kafka got it, when it was handled.
        self._handled: dict[Where, tuple[int, int, int]] = {}

    def handled(self, where: Where, offset: int, came_ms: int, now_ms: int) -> None:
        self._handled[where] = offset + 1, came_ms, now_ms

    def forget(self) -> None:
        self._handled.clear()

    def is_behind(self, ends: Mapping[Where, int], now_ms: int) -> bool:
        """`ends`: for each partition, the offset after its last record, as far as it is known."""
        since = now_ms - BEHIND_MS
        return any(
            came < since < handled_at and offset < ends.get(where, 0)
            for where, (offset, came, handled_at) in self._handled.items()
        )
