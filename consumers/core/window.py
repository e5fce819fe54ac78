"""When does a batch close, and what is in it?

Rule: a batch closes for rows, bytes, the deadline of its oldest row, an idle call slot (`eager`) or
drain, whichever comes first; the deadline counts from the row's own arrival, never from the batch
before. Streams share a batch by need: whoever wants no more than an equal share gets it whole, the
others take turns (deficit round robin), so one huge object cannot fill every batch. Owner: the
microbatch stage.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from consumers.core.blocks import Block

Reason = Literal["rows", "bytes", "deadline", "idle", "drain"]


@dataclass(frozen=True, slots=True)
class WindowLimits:
    max_rows: int
    max_bytes: int
    max_wait_s: float
    eager: bool = False
    fair: bool = True


@dataclass(slots=True)
class Batch:
    """What one model call carries: blocks of equal shape, of any streams and lanes."""

    blocks: list[Block]
    rows: int
    reason: Reason


@dataclass(slots=True)
class _Queue:
    """The waiting blocks of one stream, and what it may still take in its turn."""

    blocks: deque[Block] = field(default_factory=deque)
    rows: int = 0
    deficit_rows: int = 0


class Window:
    """`limits` may be replaced at any time. `add` blocks, ask `reason` whether a batch is due,
    `take` it.
    """

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.draining = False
        self._queues: dict[str, _Queue] = {}
        self._arrivals: deque[Block] = deque()
        self._rows = 0
        self._bytes = 0

    def __repr__(self) -> str:
        return f"{self._rows} rows of {len(self._queues)} streams, {self._bytes} bytes"

    @property
    def rows(self) -> int:
        return self._rows

    def rows_of(self, stream: str) -> int:
        """How many rows of this stream wait; without fairness all are one stream."""
        queue = self._queues.get(stream if self.limits.fair else "")
        return queue.rows if queue is not None else 0

    def add(self, block: Block, now_s: float) -> None:
        assert block.payload is not None
        block.arrived_s, block.waiting = now_s, True
        stream = block.ticket.stream if self.limits.fair else ""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = _Queue()
        queue.blocks.append(block)
        queue.rows += block.rows
        self._arrivals.append(block)
        self._rows += block.rows
        self._bytes += block.payload.nbytes

    def deadline_s(self) -> float | None:
        """When the oldest waiting row must leave; None when nothing waits."""
        oldest = self._oldest()
        return None if oldest is None else oldest.arrived_s + self.limits.max_wait_s

    def reason(self, now_s: float) -> Reason | None:
        """Why a batch is due now; None when it may wait."""
        if not self._rows:
            return None
        if self._rows >= self.limits.max_rows:
            return "rows"
        if self._bytes >= self.limits.max_bytes:
            return "bytes"
        deadline_s = self.deadline_s()
        if deadline_s is not None and now_s >= deadline_s:
            return "deadline"
        if self.draining:
            return "drain"
        return "idle" if self.limits.eager else None

    def take(self, now_s: float) -> Batch | None:
        """The batch that is due, or None. Its blocks leave the window."""
        reason = self.reason(now_s)
        oldest = self._oldest()
        if reason is None or oldest is None or oldest.payload is None:
            return None
        filling = _Filling(self.limits, oldest.payload.shape)
        self._take_small(filling)
        self._take_turns(filling)
        for block in filling.blocks:
            assert block.payload is not None
            self._bytes -= block.payload.nbytes
        self._rows -= filling.rows
        return Batch(filling.blocks, filling.rows, reason)

    def discard(self, is_dead: Callable[[Block], bool]) -> None:
        """Drop the waiting blocks of a generation that is over."""
        kept = [block for block in self._arrivals if block.waiting and not is_dead(block)]
        self._queues.clear()
        self._arrivals.clear()
        self._rows = self._bytes = 0
        for block in kept:
            self.add(block, block.arrived_s)

    def _oldest(self) -> Block | None:
        arrivals = self._arrivals
        while arrivals and not arrivals[0].waiting:
            arrivals.popleft()
        return arrivals[0] if arrivals else None

    def _take_small(self, filling: "_Filling") -> None:
        """Streams that want no more than an equal share of the batch get it whole."""
        share = self.limits.max_rows // len(self._queues)
        for stream in [name for name, queue in self._queues.items() if queue.rows <= share]:
            self._move(stream, filling, self.limits.max_rows)

    def _take_turns(self, filling: "_Filling") -> None:
        """The others take turns, each with a batch's worth of rows a turn; a turn goes on in the
        next batch.
        """
        skipped = 0
        while self._queues and not filling.is_full and skipped < len(self._queues):
            stream, queue = next(iter(self._queues.items()))
            if queue.deficit_rows <= 0:
                queue.deficit_rows += self.limits.max_rows
            moved = self._move(stream, filling, queue.deficit_rows)
            queue.deficit_rows -= moved
            skipped = 0 if moved else skipped + 1
            if stream in self._queues and (queue.deficit_rows <= 0 or not moved):
                self._queues[stream] = self._queues.pop(stream)

    def _move(self, stream: str, filling: "_Filling", max_rows: int) -> int:
        """From the queue's front into the batch, cutting the block that does not fit; rows
        moved.
        """
        queue = self._queues[stream]
        moved = 0
        while queue.blocks and moved < max_rows:
            block = queue.blocks[0]
            rows = filling.room_for(block, max_rows - moved)
            if not rows:
                break
            queue.blocks.popleft()
            if rows < block.rows:
                rest = block.split(rows)
                queue.blocks.appendleft(rest)
                self._arrivals.appendleft(rest)
            filling.add(block)
            moved += rows
        queue.rows -= moved
        if not queue.blocks:
            del self._queues[stream]
        return moved


class _Filling:
    """A batch while it is being put together."""

    def __init__(self, limits: WindowLimits, shape: tuple[str, int]) -> None:
        self._limits = limits
        self._shape = shape
        self._bytes = 0
        self.rows = 0
        self.blocks: list[Block] = []

    @property
    def is_full(self) -> bool:
        return self.rows >= self._limits.max_rows or self._bytes >= self._limits.max_bytes

    def room_for(self, block: Block, max_rows: int) -> int:
        """How many of the block's rows still fit; at least one row fits an empty batch."""
        payload = block.payload
        assert payload is not None
        if payload.shape != self._shape or self.is_full:
            return 0
        rows = min(block.rows, max_rows, self._limits.max_rows - self.rows)
        row_bytes = payload.nbytes / block.rows
        fitting = int((self._limits.max_bytes - self._bytes) / row_bytes) if row_bytes else rows
        return min(rows, max(fitting, 0 if self.blocks else 1))

    def add(self, block: Block) -> None:
        assert block.payload is not None
        block.waiting = False
        self.blocks.append(block)
        self.rows += block.rows
        self._bytes += block.payload.nbytes
