"""Huge objects give way to live small ones, and all rows of a replay to the live group.

Rule: the rows far inside a huge object are bulk, and so are those of a replay from the first one
on. While small objects arrive fresh, or for another group that goes before this one, one bulk batch
is with the model at a time, and after each the bulk rests for a multiple of the time it took: so it
takes a fixed share of one call slot, whatever the machine is worth, and the small ones find every
part of the way mostly free. Without them nothing is held: a group that is late anyway needs
throughput; only for a group that is late bulk stays where it is. Owner: the microbatch stage.
"""

import math
from typing import Literal

# Rows of an object before it counts as huge: a second and more of any sensor, a twentieth of one of
# this worker.
BULK_ROWS = 8_192
# Two ticks of a stream at 20 Hz: so long after a small object the next one is expected.
EXPECT_S = 0.1
# An object answered this long after its announcement is one of a backlog, not of a live stream.
FRESH_S = 1.0
# Rest after a bulk batch as a multiple of its call.
REST = 3.0
# A sick server's long calls make no long rests.
MOST_REST_S = 0.1


# Another group on the same services that goes before this one: nothing comes for it, it is at
# work, or it does not keep up.
Neighbour = Literal["quiet", "live", "behind"]


def is_bulk(first_row: int, begin: int = BULK_ROWS) -> bool:
    """Is a block that begins with this row of its object bulk, where rows from `begin` on are?"""
    return first_row >= begin


class BulkPace:
    """Tell it what happens; what it returns is the time before which no bulk row may leave."""

    def __init__(self) -> None:
        self._expected_until_s = -math.inf
        self._neighbour: Neighbour = "quiet"

    def beside(self, neighbour: Neighbour) -> float:
        """What another group does now."""
        self._neighbour = neighbour
        return math.inf if neighbour == "behind" else 0.0

    def read(self, rows: int, age_s: float, now_s: float) -> None:
        """An object of so many rows was read; its announcement is so old."""
        if not is_bulk(rows) and age_s <= FRESH_S:
            self._expected_until_s = now_s + EXPECT_S

    def taken(self, now_s: float) -> float:
        """A batch with bulk goes to the model."""
        return math.inf if self._has_live(now_s) else 0.0

    def answered(self, took_s: float, now_s: float) -> float:
        """It is answered."""
        if self._neighbour == "behind":
            return math.inf
        return now_s + min(MOST_REST_S, REST * took_s) if self._has_live(now_s) else 0.0

    def _has_live(self, now_s: float) -> bool:
        return now_s < self._expected_until_s or self._neighbour != "quiet"
