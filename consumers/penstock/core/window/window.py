"""When does a batch close, and which rows are in it?

Rule: a batch closes for the first of five reasons: rows, bytes, the deadline of its oldest row, an
idle call slot (`eager`), drain. The deadline counts from the row's own arrival, never from the
batch before. If a stream has no more rows than an equal share of a batch, all of its rows are
taken; the other streams take turns (deficit round robin), so one huge object cannot fill every
batch. All rows of a batch have one shape, and shapes take turns as well. Bulk, the rows far inside
a huge object, stays until `bulk_from_s`. Owner: the microbatch stage.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import BLOCK_COST_BYTES, ROW_COST_BYTES, Shape
from penstock.core.window.batch import BULK_ROWS, Batch, Filling, Reason, is_bulk


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """`bulk_rows`: from this row on, the rows of an object are bulk."""

    max_rows: int
    max_bytes: int
    max_wait_s: float
    eager: bool = False
    fair: bool = True
    bulk_rows: int = BULK_ROWS


_arrival: Final = attrgetter("arrived_s")
# A stream, and whether these rows of it are bulk: bulk may be held back while other rows of the
# stream leave.
_Key = tuple[str, bool]


@dataclass(slots=True)
class _Queue:
    """The waiting blocks of one stream: either its bulk, or all others. `deficit_rows`: how many
    rows the queue may still give in its present turn.
    """

    blocks: deque[Block] = field(default_factory=deque)
    rows: int = 0
    deficit_rows: int = 0


@dataclass(slots=True)
class _Waiting:
    """The waiting blocks of all streams in the order of arrival: either all bulk, or all others."""

    rows: int = 0
    nbytes: int = 0
    arrivals: deque[Block] = field(default_factory=deque)

    def oldest(self) -> Block:
        """Call this only while there are rows."""
        # A block that has left the window stays in `arrivals` until it comes to the front.
        # Searching for each block when it leaves would cost a pass over all waiting blocks for
        # every batch.
        arrivals = self.arrivals
        while not arrivals[0].waiting:
            arrivals.popleft()
        return arrivals[0]


class Window:
    """`add` blocks. When `reason` returns a reason, a batch is due: `take` it. `limits` and
    `bulk_from_s` may be replaced at any time.
    """

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.bulk_from_s = 0.0
        self.draining = False
        self._queues: dict[_Key, _Queue] = {}
        self._plain = _Waiting()
        self._bulk = _Waiting()
        self._last_shape: Shape | None = None

    def __repr__(self) -> str:
        nbytes = self._plain.nbytes + self._bulk.nbytes
        return f"{self.rows} rows of {len(self._queues)} streams, {nbytes} bytes"

    @property
    def rows(self) -> int:
        return self._plain.rows + self._bulk.rows

    @property
    def cost_bytes(self) -> int:
        """About how many bytes of the budget the waiting rows take."""
        return sum(
            kind.nbytes + kind.rows * ROW_COST_BYTES + len(kind.arrivals) * BLOCK_COST_BYTES
            for kind in (self._plain, self._bulk)
        )

    @property
    def streams(self) -> int:
        """How many streams have rows waiting."""
        return len({stream for stream, _ in self._queues})

    def rows_of(self, stream: str) -> int:
        """How many rows of this stream wait. Unless the limits are `fair`, all streams share one
        queue, so the rows of all streams count.
        """
        name = stream if self.limits.fair else ""
        plain, bulk = self._queues.get((name, False)), self._queues.get((name, True))
        return (plain.rows if plain else 0) + (bulk.rows if bulk else 0)

    def add(self, block: Block, now_s: float) -> None:
        assert block.payload is not None
        block.arrived_s, block.waiting = now_s, True
        block.is_bulk = self.limits.fair and is_bulk(block.first_row, self.limits.bulk_rows)
        key = (block.ticket.stream if self.limits.fair else "", block.is_bulk)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.blocks.append(block)
        queue.rows += block.rows
        kind = self._kind(block)
        kind.arrivals.append(block)
        kind.rows += block.rows
        kind.nbytes += block.payload.nbytes

    def deadline_s(self) -> float | None:
        """When the next row must leave. None: nothing waits, or all rows that wait are bulk,
        which is held back for an unknown time.
        """
        deadline_s = math.inf
        if self._plain.rows:
            deadline_s = self._plain.oldest().arrived_s + self.limits.max_wait_s
        if self._bulk.rows:
            due_s = self._bulk.oldest().arrived_s + self.limits.max_wait_s
            # A full batch of bulk does not wait for more rows, only for its turn.
            is_full = self._bulk.rows >= self.limits.max_rows
            deadline_s = min(
                deadline_s, self.bulk_from_s if is_full else max(self.bulk_from_s, due_s)
            )
        return deadline_s if deadline_s < math.inf else None

    def reason(self, now_s: float) -> Reason | None:
        """Why a batch is due now. None: no batch is due."""
        free = self._free(now_s)
        return self._reason(free, _oldest(free), now_s) if free else None

    def _reason(self, free: Sequence[_Waiting], oldest: Block, now_s: float) -> Reason | None:
        if sum([kind.rows for kind in free]) >= self.limits.max_rows:
            return "rows"
        if sum([kind.nbytes for kind in free]) >= self.limits.max_bytes:
            return "bytes"
        if now_s >= oldest.arrived_s + self.limits.max_wait_s:
            return "deadline"
        if self.draining:
            return "drain"
        return "idle" if self.limits.eager else None

    def take(self, now_s: float) -> Batch | None:
        """Take the batch that is due; its blocks then leave the window. None: no batch is due."""
        free = self._free(now_s)
        if not free:
            return None
        oldest = _oldest(free)
        reason = self._reason(free, oldest, now_s)
        if reason is None:
            return None
        takes_bulk = not self._holds_bulk(now_s)
        filling = Filling(
            self.limits.max_rows,
            self.limits.max_bytes,
            self._shape(oldest, now_s, takes_bulk=takes_bulk),
            takes_bulk=takes_bulk,
        )
        # The small streams go first: all their rows are in this batch, however many rows the large
        # streams have.
        self._take_small(filling)
        self._take_turns(filling)
        for block in filling.blocks:
            assert block.payload is not None
            kind = self._kind(block)
            kind.nbytes -= block.payload.nbytes
            kind.rows -= block.rows
        for kind in free:
            if not kind.rows:
                kind.arrivals.clear()
        return Batch(filling.blocks, filling.rows, reason, now_s)

    def discard(self, is_dead: Callable[[Block], bool]) -> None:
        """Drop the dead blocks, whose generation is over."""
        waiting = [*self._plain.arrivals, *self._bulk.arrivals]
        kept = [block for block in waiting if block.waiting and not is_dead(block)]
        self._queues.clear()
        self._plain, self._bulk = _Waiting(), _Waiting()
        # The blocks keep their own times of arrival, so that no deadline moves.
        for block in sorted(kept, key=_arrival):
            self.add(block, block.arrived_s)

    def _kind(self, block: Block) -> _Waiting:
        return self._bulk if block.is_bulk else self._plain

    def _free(self, now_s: float) -> Sequence[_Waiting]:
        """The groups with waiting blocks that may leave now."""
        free = [self._plain] if self._plain.rows else []
        if self._bulk.rows and not self._holds_bulk(now_s):
            free.append(self._bulk)
        return free

    def _holds_bulk(self, now_s: float) -> bool:
        """A drain does not hold back bulk, because the drain's time is limited."""
        return now_s < self.bulk_from_s and not self.draining

    def _shape(self, oldest: Block, now_s: float, *, takes_bulk: bool) -> Shape:
        """The next batch usually has the shape of the oldest row. If the last batch had this shape
        as well, another shape that is due goes first; otherwise rows of the other shape would wait
        for all older rows of the first shape.
        """
        shape = oldest.shape
        if shape == self._last_shape and self.limits.fair:
            due_s = now_s - self.limits.max_wait_s
            # Within a stream rows leave in order, so only the shape at the front of a queue could
            # leave now.
            fronts = (queue.blocks[0] for queue in self._queues.values())
            others = [
                block
                for block in fronts
                if block.arrived_s <= due_s
                and block.shape != shape
                and (takes_bulk or not block.is_bulk)
            ]
            if others:
                shape = min(others, key=_arrival).shape
        self._last_shape = shape
        return shape

    def _take_small(self, filling: Filling) -> None:
        """Move all rows of the streams that have no more than an equal share of the batch."""
        # With this limit these streams together never have more than `max_rows` rows.
        share = self.limits.max_rows // len(self._queues)
        for key in [name for name, queue in self._queues.items() if queue.rows <= share]:
            self._move(key, filling, self.limits.max_rows)

    def _take_turns(self, filling: Filling) -> None:
        """The other streams take turns of `max_rows` rows each. A turn that is cut short by the end
        of a batch goes on in the next batch.
        """
        skipped = 0
        while self._queues and not filling.is_full and skipped < len(self._queues):
            key, queue = next(iter(self._queues.items()))
            if queue.deficit_rows <= 0:
                queue.deficit_rows += self.limits.max_rows
            moved = self._move(key, filling, queue.deficit_rows)
            queue.deficit_rows -= moved
            # A stream may have nothing for this batch, because the block at its front has another
            # shape, or is bulk that must pause. When no stream has rows for this batch, the batch
            # leaves as it is.
            skipped = 0 if moved else skipped + 1
            if key in self._queues and (queue.deficit_rows <= 0 or not moved):
                self._queues[key] = self._queues.pop(key)

    def _move(self, key: _Key, filling: Filling, max_rows: int) -> int:
        """Move rows from the queue's front into the batch, and cut the block that does not fit.
        Returns how many rows were moved.
        """
        queue = self._queues[key]
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
                # The cut block may still be the oldest one, whose deadline is the deadline of the
                # window. So `rest` takes its position among the arrivals.
                arrivals = self._kind(rest).arrivals
                arrivals[arrivals.index(block)] = rest
            filling.add(block)
            moved += rows
        queue.rows -= moved
        if not queue.blocks:
            del self._queues[key]
        return moved


def _oldest(kinds: Sequence[_Waiting]) -> Block:
    return min([kind.oldest() for kind in kinds], key=_arrival)
