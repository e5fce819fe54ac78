"""Huge objects give way to small live objects, and a replay gives way to the live group.

Rule: bulk is the rows far inside a huge object, and all rows of a replay. While fresh small objects
arrive, here or for the live group beside a replay, only one batch of bulk is with the model at a
time, and after it bulk pauses for a multiple of the time that the batch took. So bulk takes a fixed
share of one call slot on any machine, and small objects find the model mostly free. Without fresh
small objects bulk makes no pause: a group that is late anyway needs throughput. A replay stands
still while the live group is late. Owner: the microbatch stage.
"""

import math
from typing import Literal

# The rows of an object from this number on are bulk. So many rows are more than a second of any
# sensor's rows, and a twentieth of a second of this worker's throughput.
BULK_ROWS = 8_192
# For this long after a small object the next one is expected: two ticks of a stream at 20 Hz.
EXPECT_S = 0.1
# An object read this long after its announcement belongs to a backlog, not to a live stream.
FRESH_S = 1.0
# How long bulk pauses after a batch, as a multiple of the time that the batch's call took.
REST = 3.0
# The longest pause, for slow servers with long calls.
MOST_REST_S = 0.1


# The state of the live group that a replay gives way to. `quiet`: no records come for the group;
# `live`: the group keeps up; `behind`: it does not keep up.
Neighbour = Literal["quiet", "live", "behind"]


def is_bulk(first_row: int, begin: int = BULK_ROWS) -> bool:
    """Is this row of an object bulk? The rows from `begin` on are."""
    return first_row >= begin


class BulkPace:
    """Each method is told what happened, and returns the time before which no bulk may leave."""

    def __init__(self) -> None:
        self._expected_until_s = -math.inf
        self._neighbour: Neighbour = "quiet"

    def beside(self, neighbour: Neighbour) -> float:
        """Note the state of the live group that runs beside this replay."""
        self._neighbour = neighbour
        return math.inf if neighbour == "behind" else 0.0

    def read(self, rows: int, age_s: float, now_s: float) -> None:
        """An object of `rows` rows was read, `age_s` after it was announced."""
        if not is_bulk(rows) and age_s <= FRESH_S:
            self._expected_until_s = now_s + EXPECT_S

    def taken(self, now_s: float) -> float:
        """A batch with bulk goes to the model."""
        return math.inf if self._has_live(now_s) else 0.0

    def answered(self, took_s: float, now_s: float) -> float:
        """The batch with bulk was answered after `took_s`."""
        if self._neighbour == "behind":
            return math.inf
        return now_s + min(MOST_REST_S, REST * took_s) if self._has_live(now_s) else 0.0

    def _has_live(self, now_s: float) -> bool:
        return now_s < self._expected_until_s or self._neighbour != "quiet"
