"""What one model call carries, and how it is filled.

Rule: all blocks of a batch have one shape. Neither the rows nor the bytes of a batch exceed the
limits, unless a single row alone does. Owner: the window, which fills the batch; then the caller of
the model, which sends it.
"""

from dataclasses import dataclass
from typing import Literal

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import Shape

# Why a batch was closed.
Reason = Literal["rows", "bytes", "deadline", "idle", "drain"]


@dataclass(slots=True)
class Batch:
    """Blocks of equal shape, of any streams and lanes. `cost_bytes`: the batch's share of the byte
    budget, counted only where several models share the budget.
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
