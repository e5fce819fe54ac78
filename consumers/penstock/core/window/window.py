"""When does a batch close, and which rows are in it?

Rule: a batch closes for the first of five reasons: rows, bytes, the deadline of its oldest row, an
idle call slot (`eager`), drain. The deadline counts from the row's own arrival, never from the
batch before. A stream with no more rows than an equal share of a batch gets all of them in; the
others take turns (deficit round robin), so one huge object cannot fill every batch. All rows of a
batch have one shape, and shapes take turns as well.

`max_rows` are rows that cost the model the usual; one that costs more counts as many of them
(`Prices`). Rows that would make a call several times as long go apart, in batches of their own, by
turns with all others (priorities.py). pace.py says from when backlog, and streams apart, may
leave.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from penstock.core.rows.blocks import Block
from penstock.core.rows.payload import BLOCK_COST_BYTES, ROW_COST_BYTES, Shape
from penstock.core.window.pace import BACKLOG_ROWS
from penstock.core.window.priorities import Key, Priorities, Turns
from penstock.core.window.stream_costs import EVEN, Prices

# Why a batch was closed.
Reason = Literal["rows", "bytes", "deadline", "idle", "drain"]


@dataclass(slots=True)
class Batch:
    """Blocks of equal shape, of any streams and lanes. `cost_bytes`: the batch's share of the byte
    budget, counted only if several models share the budget. `is_apart`: of streams that go apart.
    `beside`: how many calls of such streams were in flight when it was taken.
    """

    blocks: list[Block]
    rows: int
    reason: Reason
    taken_s: float
    cost_bytes: int = 0

    is_apart: bool = False
    beside: int = 0

    @property
    def has_backlog(self) -> bool:
        return any(block.is_backlog for block in self.blocks)


class Filling:
    """A batch while the window puts it together."""

    def __init__(self, max_rows: int, max_bytes: int, shape: Shape, *, takes_backlog: bool) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._shape = shape
        self._takes_backlog = takes_backlog
        self._bytes = 0
        self.rows = 0
        self.usual_rows = 0
        self.blocks: list[Block] = []

    @property
    def is_full(self) -> bool:
        return self.usual_rows >= self._max_rows or self._bytes >= self._max_bytes

    def room_for(self, block: Block, max_rows: int, price: int) -> int:
        """How many of the block's rows still fit. An empty batch takes at least one row."""
        payload = block.payload
        assert payload is not None
        if payload.shape != self._shape or self.is_full:
            return 0
        if block.is_backlog and not self._takes_backlog:
            return 0
        fitting = (self._max_rows - self.usual_rows) // price
        rows = min(block.rows, max_rows, max(fitting, 0 if self.blocks else 1))
        row_bytes = payload.nbytes / block.rows
        fitting = int((self._max_bytes - self._bytes) / row_bytes) if row_bytes else rows
        return min(rows, max(fitting, 0 if self.blocks else 1))

    def add(self, block: Block, price: int) -> None:
        assert block.payload is not None
        block.waiting = False
        self.blocks.append(block)
        self.rows += block.rows
        self.usual_rows += block.rows * price
        self._bytes += block.payload.nbytes


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """`priorities`: None: no stream goes before another."""

    max_rows: int
    max_bytes: int
    max_wait_s: float
    eager: bool = False
    fair: bool = True
    priorities: Priorities | None = None


_arrival: Final = attrgetter("arrived_s")


@dataclass(slots=True)
class _Queue:
    """The waiting blocks of one stream: either its backlog, or all others. `price`: as how many
    rows each of its rows counts. `weight`: how many times the usual share it has. `deficit`: how
    many usual rows the queue may still give in its present turn.
    """

    price: int
    weight: int
    blocks: deque[Block] = field(default_factory=deque)
    rows: int = 0
    deficit: int = 0


@dataclass(slots=True)
class _Waiting:
    """The waiting blocks of a group of streams in the order of arrival. `usual_rows`: as how many
    rows they count by their prices.
    """

    rows: int = 0
    usual_rows: int = 0
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


class _Due(NamedTuple):
    """A batch that is due: the groups it is taken from, their oldest block, and why it is due."""

    groups: Sequence[_Waiting]
    oldest: Block
    reason: Reason


class BatchWindow:
    """`add` blocks. When `reason` returns a reason, a batch is due: `take` it. `limits`,
    `backlog_from_s` and `apart_from_s` may be replaced at any time.
    """

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.backlog_from_s = self.apart_from_s = 0.0
        self.draining = False
        self._prices = EVEN
        self._queues: dict[Key, _Queue] = {}
        self._queues_apart: dict[Key, _Queue] = {}
        self._plain = _Waiting()
        self._backlog = _Waiting()
        self._apart = _Waiting()
        self._turns = Turns()
        self._was_alone = False  # the last batch apart that might have had several streams
        self._last_shape: Shape | None = None
        self.rows = 0  # that wait

    def __repr__(self) -> str:
        return f"{self.rows} rows of {self.streams} streams, {self._nbytes} bytes"

    @property
    def _nbytes(self) -> int:
        return self._plain.nbytes + self._backlog.nbytes + self._apart.nbytes

    @property
    def cost_bytes(self) -> int:
        """About how many bytes of the budget the waiting rows take."""
        return sum(
            kind.nbytes + kind.rows * ROW_COST_BYTES + len(kind.arrivals) * BLOCK_COST_BYTES
            for kind in (self._plain, self._backlog, self._apart)
        )

    @property
    def streams(self) -> int:
        """How many streams have rows waiting."""
        return len({stream for stream, _ in (*self._queues, *self._queues_apart)})

    def rows_of(self, stream: str) -> int:
        """How many rows of this stream wait. Unless the limits are `fair`, all streams share one
        queue, so the rows of all streams count.
        """
        name = stream if self.limits.fair else ""
        plain, backlog = self._queues.get((name, False)), self._queues.get((name, True))
        rows = (plain.rows if plain else 0) + (backlog.rows if backlog else 0)
        apart = self._queues_apart.get((name, False)) if self._queues_apart else None
        return rows + apart.rows if apart else rows

    @property
    def prices(self) -> Prices:
        """By which rows count here."""
        return self._prices

    @property
    def goes_apart(self) -> bool:
        """Some streams go apart."""
        return bool(self._prices.apart)

    def reprice(self, prices: Prices) -> None:
        """From now on the rows of each stream count by these prices. In a window that is not fair,
        all rows count the same; where all rows are backlog, none go apart.
        """
        if not self.limits.fair:
            return
        priorities = self.limits.priorities
        is_all_backlog = priorities is not None and priorities.is_all_backlog
        self._prices = Prices(prices.rows) if is_all_backlog else prices
        self.discard(lambda _: False)

    def add(self, block: Block, now_s: float) -> None:
        assert block.payload is not None
        block.arrived_s, block.waiting = now_s, True
        queues, kind, stream = self._queues, self._plain, ""
        block.is_backlog, price, weight = False, 1, 1
        if self.limits.fair:
            stream, is_backlog = block.ticket.stream, block.first_row >= BACKLOG_ROWS
            if self.limits.priorities is not None:
                weight, wanted = self.limits.priorities.of(stream)
                is_backlog = is_backlog if wanted is None else wanted == "backlog"
            if self._prices.rows:
                price = self._prices.rows.get(stream, 1)
            if stream in self._prices.apart:
                queues, kind = self._queues_apart, self._apart
            elif is_backlog:
                block.is_backlog, kind = True, self._backlog
        key = (stream, block.is_backlog)
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = _Queue(price, weight)
        queue.blocks.append(block)
        queue.rows += block.rows
        self.rows += block.rows
        kind.arrivals.append(block)
        kind.rows += block.rows
        kind.usual_rows += block.rows * price
        kind.nbytes += block.payload.nbytes

    def deadline_s(self) -> float | None:
        """When the next row must leave. None: nothing waits, or all rows that wait are held back
        for an unknown time.
        """
        deadline_s = math.inf
        if self._plain.rows:
            deadline_s = self._plain.oldest().arrived_s + self.limits.max_wait_s
        if self._backlog.rows:
            deadline_s = min(deadline_s, self._deadline_s(self._backlog, self.backlog_from_s))
        if self._apart.rows:
            from_s = 0.0 if self.draining else self.apart_from_s
            deadline_s = min(deadline_s, self._deadline_s(self._apart, from_s))
        return deadline_s if deadline_s < math.inf else None

    def _deadline_s(self, kind: _Waiting, from_s: float) -> float:
        """Of a group that may not leave before `from_s`. A full batch of it does not wait for more
        rows, only for its turn.
        """
        is_full = kind.usual_rows >= self.limits.max_rows
        return from_s if is_full else max(from_s, kind.oldest().arrived_s + self.limits.max_wait_s)

    def reason(self, now_s: float) -> Reason | None:
        """Why a batch is due now. None: no batch is due."""
        due = self._due(now_s)
        return due.reason if due else None

    def _due(self, now_s: float) -> _Due | None:
        due = self._due_of(self._free(now_s), now_s)
        if not self._apart.rows or (now_s < self.apart_from_s and not self.draining):
            return due
        apart = self._due_of((self._apart,), now_s)
        if due is None or apart is None:
            return due or apart
        return apart if self._turns.is_first_apart(self._queues_apart) else due

    def _due_of(self, groups: Sequence[_Waiting], now_s: float) -> _Due | None:
        if not groups:
            return None
        oldest = _oldest(groups)
        reason = self._reason(groups, oldest, now_s)
        return _Due(groups, oldest, reason) if reason else None

    def _reason(self, groups: Sequence[_Waiting], oldest: Block, now_s: float) -> Reason | None:
        if sum([kind.usual_rows for kind in groups]) >= self.limits.max_rows:
            return "rows"
        if sum([kind.nbytes for kind in groups]) >= self.limits.max_bytes:
            return "bytes"
        if now_s >= oldest.arrived_s + self.limits.max_wait_s:
            return "deadline"
        if self.draining:
            return "drain"
        return "idle" if self.limits.eager else None

    def take(self, now_s: float) -> Batch | None:
        """Take the batch that is due; its blocks then leave the window. None: no batch is due."""
        due = self._due(now_s)
        if due is None:
            return None
        if is_apart := due.groups[0] is self._apart:
            filling = self._take_apart()
        else:
            filling = self._take_shared(due.oldest, now_s)
        prices = self._prices.rows
        for block in filling.blocks:
            assert block.payload is not None
            kind = self._apart if is_apart else self._backlog if block.is_backlog else self._plain
            kind.nbytes -= block.payload.nbytes
            kind.rows -= block.rows
            price = prices.get(block.ticket.stream, 1) if prices else 1
            kind.usual_rows -= block.rows * price
        self.rows -= filling.rows
        for kind in due.groups:
            if not kind.rows:
                kind.arrivals.clear()
        return Batch(filling.blocks, filling.rows, due.reason, now_s, is_apart=is_apart)

    def _take_shared(self, oldest: Block, now_s: float) -> Filling:
        limits, takes_backlog = self.limits, not self._holds_backlog(now_s)
        shape = self._shape(oldest, now_s, takes_backlog=takes_backlog)
        filling = Filling(limits.max_rows, limits.max_bytes, shape, takes_backlog=takes_backlog)
        shares = len(self._queues)
        if limits.priorities is not None:
            shares = sum([queue.weight for queue in self._queues.values()])
        share = limits.max_rows // shares
        # A row that is more than a share by itself goes first if it is the oldest. Otherwise the
        # small streams could always leave too little room for it.
        if self._prices.of(oldest.ticket.stream) > max(1, share):
            self._move(self._queues, (oldest.ticket.stream, oldest.is_backlog), filling, 1)
        if self._prices.alone_until_s:
            for key in list(self._queues):
                self._move(self._queues, key, filling, self._prices.tried_rows)
        else:
            # The small streams go first: all their rows are in this batch, however many rows the
            # large streams have.
            self._take_small(filling, shares)
            self._take_turns(filling)
        if self._apart.rows:
            self._turns.took_shared(filling.usual_rows, shares)
        return filling

    def _take_apart(self) -> Filling:
        """The stream whose turn it is goes first. Others are in the batch only if it still takes
        no longer than a batch may, and in each second batch only: what each of two streams costs
        that always come together would never be known. One in doubt is alone in each.
        """
        queues = self._queues_apart
        arrivals = {key: queue.blocks[0].arrived_s for key, queue in queues.items()}
        order = self._turns.order(arrivals)
        if len(order) > 1:
            self._was_alone = not self._was_alone
            doubtful = self._prices.doubtful
            is_alone = self._was_alone or order[0][0] in doubtful
            others = [] if is_alone else [key for key in order[1:] if key[0] not in doubtful]
            order = [order[0], *others]
        most = self._prices.most_apart or self.limits.max_rows
        filling = Filling(
            min(most, self.limits.max_rows),
            self.limits.max_bytes,
            queues[order[0]].blocks[0].shape,
            takes_backlog=False,
        )
        for key in order:
            queue = queues[key]
            is_tried = key[0] in self._prices.tried
            most_rows = self._prices.tried_rows if is_tried else self.limits.max_rows
            if moved := self._move(queues, key, filling, most_rows):
                self._turns.took_apart(key, moved * queue.price / queue.weight)
            if filling.is_full:
                break
        return filling

    def discard(self, is_dead: Callable[[Block], bool]) -> None:
        """Drop the dead blocks, whose generation is over."""
        waiting = [*self._plain.arrivals, *self._backlog.arrivals, *self._apart.arrivals]
        kept = [block for block in waiting if block.waiting and not is_dead(block)]
        self._queues.clear()
        self._queues_apart.clear()
        self._plain, self._backlog, self._apart = _Waiting(), _Waiting(), _Waiting()
        self.rows = 0
        # The blocks keep their own times of arrival, so that no deadline moves.
        for block in sorted(kept, key=_arrival):
            self.add(block, block.arrived_s)

    def _free(self, now_s: float) -> Sequence[_Waiting]:
        """The groups that share batches, and have waiting blocks that may leave now."""
        free = [self._plain] if self._plain.rows else []
        if self._backlog.rows and not self._holds_backlog(now_s):
            free.append(self._backlog)
        return free

    def _holds_backlog(self, now_s: float) -> bool:
        """A drain does not hold back backlog, because the drain's time is limited."""
        return now_s < self.backlog_from_s and not self.draining

    def _shape(self, oldest: Block, now_s: float, *, takes_backlog: bool) -> Shape:
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
                and (takes_backlog or not block.is_backlog)
            ]
            if others:
                shape = min(others, key=_arrival).shape
        self._last_shape = shape
        return shape

    def _take_small(self, filling: Filling, shares: int) -> None:
        """Move all rows of the streams that have no more than their share of the batch: as many of
        the `shares` as their weight. So together they never have more than `max_rows` rows.
        """
        queues, most = self._queues, self.limits.max_rows
        small = [
            key
            for key, queue in queues.items()
            if queue.rows * queue.price * shares <= most * queue.weight
        ]
        for key in small:
            self._move(queues, key, filling, self.limits.max_rows)

    def _take_turns(self, filling: Filling) -> None:
        """The other streams take turns of `max_rows` usual rows each, or of the dearest row. A turn
        that is cut short by the end of a batch goes on in the next batch.
        """
        turn, skipped = self.limits.max_rows, 0
        if self._prices.rows:
            turn = max(turn, *[queue.price for queue in self._queues.values()], 1)
        while self._queues and not filling.is_full and skipped < len(self._queues):
            key, queue = next(iter(self._queues.items()))
            if queue.deficit < queue.price:
                queue.deficit += turn * queue.weight
            moved = self._move(self._queues, key, filling, queue.deficit // queue.price)
            queue.deficit -= moved * queue.price
            # A stream may have nothing for this batch, because the block at its front has another
            # shape, or is backlog that must pause. When no stream has rows for this batch, it
            # leaves as it is.
            skipped = 0 if moved else skipped + 1
            if key in self._queues and (queue.deficit < queue.price or not moved):
                self._queues[key] = self._queues.pop(key)

    def _move(self, queues: dict[Key, _Queue], key: Key, filling: Filling, max_rows: int) -> int:
        """Move rows from the queue's front into the batch, and cut the block that does not fit.
        Returns how many rows were moved.
        """
        queue = queues[key]
        moved = 0
        while queue.blocks and moved < max_rows:
            block = queue.blocks[0]
            rows = filling.room_for(block, max_rows - moved, queue.price)
            if not rows:
                break
            queue.blocks.popleft()
            if rows < block.rows:
                rest = block.split(rows)
                queue.blocks.appendleft(rest)
                # The cut block may still be the oldest one, whose deadline is the deadline of the
                # window. So `rest` takes its position among the arrivals.
                is_apart = queues is self._queues_apart
                kind = (
                    self._apart if is_apart else self._backlog if rest.is_backlog else self._plain
                )
                kind.arrivals[kind.arrivals.index(block)] = rest
            filling.add(block, queue.price)
            moved += rows
        queue.rows -= moved
        if not queue.blocks:
            del queues[key]
        return moved


def _oldest(kinds: Sequence[_Waiting]) -> Block:
    return min([kind.oldest() for kind in kinds], key=_arrival)
