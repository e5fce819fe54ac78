"""What a batch carries: how one model call is filled with blocks, and when it may carry bulk.

Rule: all blocks of a batch have one shape. Neither the rows nor the bytes of a batch exceed the
limits, unless a single row alone does. Owner: the window, which fills the batch; then the caller of
the model, which sends it.

Bulk is the rows far inside a huge object, and all rows of a replay. Huge objects give way to small
live objects, and a replay gives way to the live group. While fresh small objects arrive, here or
for the live group beside a replay, only one batch of bulk is with the model at a time. After this
batch, bulk pauses for a multiple of the time that the batch took. So bulk takes a fixed share of
one call slot on any machine, and small objects find the model mostly free. Without fresh small
objects bulk makes no pause, because a group that is late anyway needs throughput. A replay stands
still while the live group is late. Owner of this pace: the microbatch stage.
"""

import math
from dataclasses import dataclass
from typing import Literal

from penstock.core.health.other_groups import Neighbour
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Shape

# Why a batch was closed.
Reason = Literal["rows", "bytes", "deadline", "idle", "drain"]


@dataclass(slots=True)
class Batch:
    """Blocks of equal shape, of any streams and lanes. `cost_bytes`: the batch's share of the byte
    budget, counted only if several models share the budget.
    """

    blocks: list[Block]
    rows: int
    reason: Reason
    taken_s: float
    cost_bytes: int = 0

    @property
    def has_bulk(self) -> bool:
        return any(block.is_bulk for block in self.blocks)


class Filling:
    """A batch while the window puts it together."""

    def __init__(self, max_rows: int, max_bytes: int, shape: Shape, *, takes_bulk: bool) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._shape = shape
        self._takes_bulk = takes_bulk
        self._bytes = 0
        self.rows = 0
        self.blocks: list[Block] = []

    @property
    def is_full(self) -> bool:
        return self.rows >= self._max_rows or self._bytes >= self._max_bytes

    def room_for(self, block: Block, max_rows: int) -> int:
        """How many of the block's rows still fit. An empty batch takes at least one row."""
        payload = block.payload
        assert payload is not None
        if payload.shape != self._shape or self.is_full:
            return 0
        if block.is_bulk and not self._takes_bulk:
            return 0
        rows = min(block.rows, max_rows, self._max_rows - self.rows)
        row_bytes = payload.nbytes / block.rows
        fitting = int((self._max_bytes - self._bytes) / row_bytes) if row_bytes else rows
        return min(rows, max(fitting, 0 if self.blocks else 1))

    def add(self, block: Block) -> None:
        assert block.payload is not None
        block.waiting = False
        self.blocks.append(block)
        self.rows += block.rows
        self._bytes += block.payload.nbytes


# The rows of an object from this number on are bulk. 8,192 rows are more than a second of any
# sensor's rows, and a twentieth of a second of this worker's throughput.
BULK_ROWS = 8_192
# How long after a small object the next one is still expected: two ticks of a stream at 20 Hz.
EXPECT_S = 0.1
# An object that is read later than this after its announcement belongs to a backlog, not to a live
# stream.
FRESH_S = 1.0
# How long bulk pauses after a batch, as a multiple of the time that the batch's call took.
REST = 3.0
# The upper limit of this pause, for slow servers with long calls.
MOST_REST_S = 0.1


def is_bulk(first_row: int, begin: int = BULK_ROWS) -> bool:
    """Is the row with this number bulk? In each object the rows from `begin` on are bulk."""
    return first_row >= begin


class BulkPace:
    """Call each method when its event happens. `beside`, `taken` and `answered` return the time
    before which no bulk may leave.
    """

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
