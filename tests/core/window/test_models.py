"""Order, window and ledger against models that are slow and obvious, through random histories."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.progress.cursor import PartitionProgress, decode, encode
from penstock.core.progress.ledger import Ledger
from penstock.core.progress.order import PartitionOrder, Release
from penstock.core.rows.blocks import Block, Ticket
from penstock.core.rows.origin import Cursor
from penstock.core.rows.rejections import Rejection
from penstock.core.window.window import Batch, BatchWindow, Reason, WindowLimits
from tests.core.builders import StubLane, answered, block, space, ticket
from tests.support.partitions import where

ROW_BYTES_PER_COLUMN = 4


@dataclass
class Shelf:
    """One object as a list: its blocks in row order, whatever the chain says."""

    ticket: Ticket
    blocks: list[Block] = field(default_factory=list)

    def release(self, room: int) -> tuple[list[Block], bool]:
        """The first blocks that are answered, the last one only when no more can come."""
        left: list[Block] = []
        while self.blocks and self.blocks[0].is_answered and room > 0:
            if len(self.blocks) == 1 and not self.ticket.closed:
                break
            room -= self.blocks[0].rows
            left.append(self.blocks.pop(0))
        return left, self.ticket.closed and not self.blocks


def expected(shelves: list[Shelf], room: int) -> list[tuple[int, list[tuple[int, int]], bool]]:
    """What has to leave: offset, (first row, rows) of each block, finished."""
    releases = []
    while shelves and room > 0:
        blocks, finished = shelves[0].release(room)
        if blocks or finished:
            spans = [(one.first_row, one.rows) for one in blocks]
            releases.append((shelves[0].ticket.record.offset, spans, finished))
            # An object that failed, or has no rows, ends with a marker, which is a record too.
            is_marked = finished and (shelves[0].ticket.failure is not None or not spans)
            room -= sum(rows for _, rows in spans) + is_marked
        if not finished:
            break
        shelves.pop(0)
    return releases


def in_short(releases: Sequence[Release]) -> list[tuple[int, list[tuple[int, int]], bool]]:
    return [
        (
            release.ticket.record.offset,
            [(one.first_row, one.rows) for one in release.blocks],
            release.finished,
        )
        for release in releases
    ]


@given(st.data())
def test_the_order_agrees_with_lists_of_blocks(data: st.DataObject) -> None:
    order, shelves = PartitionOrder(), list[Shelf]()
    offset = 0
    for _ in range(data.draw(st.integers(1, 40), label="steps")):
        step = data.draw(
            st.sampled_from(["add", "grow", "grow", "cut", "answer", "answer", "close", "release"])
        )
        if step == "add":
            shelves.append(Shelf(ticket(offset=offset)))
            order.add(shelves[-1].ticket)
            offset += 1
        elif step == "release":
            room = data.draw(st.integers(1, 30), label="room")
            assert in_short(order.release(space(room), lambda: 0)) == expected(shelves, room)
        elif shelves:
            _change(step, data.draw(st.sampled_from(shelves)), data)
    for shelf in shelves:
        _settle(shelf)
    assert in_short(order.release(space(10_000), lambda: 0)) == expected(shelves, 10_000)
    assert len(order) == len(shelves) == 0


def _change(step: str, shelf: Shelf, data: st.DataObject) -> None:
    waiting = [one for one in shelf.blocks if not one.is_answered]
    if step == "grow" and not shelf.ticket.closed:
        shelf.blocks.append(block(shelf.ticket, data.draw(st.integers(1, 9))))
    elif step == "close" and not shelf.ticket.closed:
        failure = Rejection("bad_archive", "cut off", "expand")
        shelf.ticket.close(data.draw(st.sampled_from([None, failure])))
    elif step == "answer" and waiting:
        answered(data.draw(st.sampled_from(waiting)))
    elif step == "cut" and (long := [one for one in waiting if one.rows > 1]):
        one = data.draw(st.sampled_from(long))
        rest = one.split(data.draw(st.integers(1, one.rows - 1)))
        shelf.blocks.insert(shelf.blocks.index(one) + 1, rest)


def _settle(shelf: Shelf) -> None:
    for one in shelf.blocks:
        if not one.is_answered:
            answered(one)
    if not shelf.ticket.closed:
        shelf.ticket.close()


@dataclass
class Row:
    """One waiting row, by itself."""

    ticket: Ticket
    number: int
    arrived_s: float
    columns: int


class Crowd:
    """A window as a list of rows."""

    def __init__(self, limits: WindowLimits) -> None:
        self.limits = limits
        self.draining = False
        self.rows: list[Row] = []

    def reason(self, now_s: float) -> Reason | None:
        limits, rows = self.limits, self.rows
        if not rows:
            return None
        if len(rows) >= limits.max_rows:
            return "rows"
        if sum(row.columns for row in rows) * ROW_BYTES_PER_COLUMN >= limits.max_bytes:
            return "bytes"
        if now_s >= min(row.arrived_s for row in rows) + limits.max_wait_s:
            return "deadline"
        if self.draining:
            return "drain"
        return "idle" if limits.eager else None

    def remove(self, batch: Batch) -> None:
        """Its rows must be the first of their streams, of one shape, and within the limits."""
        limits = self.limits
        columns = {one.payload.shape for one in batch.blocks if one.payload is not None}
        nbytes = sum(one.payload.nbytes for one in batch.blocks if one.payload is not None)
        assert len(columns) == 1
        assert 0 < batch.rows <= limits.max_rows
        assert batch.rows == sum(one.rows for one in batch.blocks)
        assert nbytes <= limits.max_bytes or batch.rows == 1
        wants = {stream: self.of(stream) for stream in {row.ticket.stream for row in self.rows}}
        for one in batch.blocks:
            for number in range(one.first_row, one.first_row + one.rows):
                row = wants[one.ticket.stream].pop(0) if limits.fair else self.rows[0]
                assert (row.ticket, row.number) == (one.ticket, number)
                self.rows.remove(row)

    def of(self, stream: str) -> list[Row]:
        return [row for row in self.rows if row.ticket.stream == stream]


@given(
    limits=st.builds(
        WindowLimits,
        max_rows=st.integers(1, 30),
        max_bytes=st.integers(1, 400),
        max_wait_s=st.sampled_from([0.0, 0.01, 1.0]),
        eager=st.booleans(),
        fair=st.booleans(),
    ),
    data=st.data(),
)
def test_the_window_agrees_with_a_list_of_rows(limits: WindowLimits, data: st.DataObject) -> None:
    window, crowd = BatchWindow(limits), Crowd(limits)
    lanes = [StubLane(where(number)) for number in range(2)]
    tickets = [ticket(stream, lane=lane) for stream in "abc" for lane in lanes]
    now_s = 0.0
    for _ in range(data.draw(st.integers(1, 40), label="steps")):
        step = data.draw(st.sampled_from(["add", "add", "wait", "take", "drain", "die"]))
        if step == "add":
            of, columns = data.draw(st.sampled_from(tickets)), data.draw(st.integers(1, 2))
            made = block(of, data.draw(st.integers(1, 20)), columns)
            window.add(made, now_s)
            numbers = range(made.first_row, made.first_row + made.rows)
            crowd.rows += [Row(of, number, now_s, columns) for number in numbers]
        elif step == "wait":
            now_s += data.draw(st.sampled_from([0.005, 0.5, 2.0]))
        elif step == "drain":
            window.draining = crowd.draining = not crowd.draining
        elif step == "die" and data.draw(st.integers(0, 9)) == 0:
            lanes[0].alive = False
            window.discard(lambda one: not one.ticket.owner.alive)
            crowd.rows = [row for row in crowd.rows if row.ticket.owner.alive]
        _take(window, crowd, now_s)
    while crowd.rows:
        now_s += 2.0
        _take(window, crowd, now_s)
    assert (window.rows, window.deadline_s(), window.take(now_s + 9.0)) == (0, None, None)


def _take(window: BatchWindow, crowd: Crowd, now_s: float) -> None:
    reason = crowd.reason(now_s)
    assert window.rows == len(crowd.rows)
    assert window.reason(now_s) == reason
    batch = window.take(now_s)
    assert (batch.reason if batch else None) == reason
    if batch is not None:
        crowd.remove(batch)


@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    gaps=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    data=st.data(),
)
def test_every_heir_of_a_ledger_knows_what_was_delivered_and_nothing_else(
    sizes: Sequence[int], gaps: Sequence[int], data: st.DataObject
) -> None:
    """Several takeovers, each after some deliveries; the model is the set of what was delivered."""
    offsets = [sum(gaps[:number]) + number for number in range(len(sizes))]
    objects = [
        (offset, i) for offset, size in zip(offsets, sizes, strict=True) for i in range(size)
    ]
    delivered: set[tuple[int, int]] = set()
    reached: dict[tuple[int, int], Cursor] = {}
    progress = PartitionProgress(0)
    while len(delivered) < len(objects):
        ledger = Ledger(progress)
        owed = [one for one in objects if one not in delivered]
        start = progress.next_offset
        for offset, size in zip(offsets, sizes, strict=True):
            if offset >= start:
                known = [ledger.is_delivered(offset, i) for i in range(size)]
                is_all = ledger.is_completed(offset)
                assert [is_all or one for one in known] == [
                    (offset, i) in delivered for i in range(size)
                ]
                ledger.open(offset, 0 if is_all else known.count(False))
        for one in owed:
            assert ledger.cursor(*one) == reached.get(one, Cursor(0, ""))
        for one in data.draw(st.lists(st.sampled_from(owed), unique=True, min_size=1)):
            if data.draw(st.booleans()):
                reached[one] = Cursor(data.draw(st.integers(1, 99)), "0123456789abcdef")
                ledger.reach(*one, reached[one])
            else:
                ledger.deliver(*one)
                delivered.add(one)
        left = [offset for offset, i in objects if (offset, i) not in delivered]
        assert ledger.next_offset == min(left, default=offsets[-1] + 1)
        progress, is_whole = decode(encode(ledger.progress), ledger.next_offset)
        assert is_whole
