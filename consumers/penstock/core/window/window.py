"""When does a batch close, and which rows are in it?

Rule: a batch closes for the first of five reasons: rows, bytes, the deadline of its oldest row, an
idle call slot (`eager`), drain. The deadline counts from the row's own arrival, never from the
batch before. If a stream has no more rows than an equal share of a batch, all of its rows are
taken; the other streams take turns (deficit round robin), so one huge object cannot fill every
batch. All rows of a batch have one shape, and shapes take turns as well. Bulk, the rows far inside
a huge object, stays until `bulk_from_s`.

Bulk is also all rows of a replay. Huge objects give way to small live objects, and a replay gives
way to the live group. While fresh small objects arrive, here or for the live group beside a replay,
only one batch of bulk is with the model at a time. After this batch, bulk pauses for a multiple of
the time that the batch took. So bulk takes a fixed share of one call slot on any machine, and small
objects find the model mostly free. Without fresh small objects bulk makes no pause, because a group
that is late anyway needs throughput. A replay stands still while the live group is late.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal

from penstock.core.health.other_groups import Neighbour
from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import BLOCK_COST_BYTES, ROW_COST_BYTES, Shape

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
