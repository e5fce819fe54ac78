"""One assignment of one partition: its answers on their way out, and its end.

Rule: a lane is a generation. When the partition is taken away, the lane closes and never opens
again; work that still arrives for it is dropped and can neither be published nor committed. In a
rebalance the lane is suspended until it is known which worker gets the partition: it receives,
publishes and commits nothing, and all other work goes on. account.py keeps what a lane owes, and
receiving.py takes its records. Owner: the pipeline, from the event loop; stages reach the lane
through their tickets.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.core.order.fetch_queue import StreamShare
from penstock.core.order.line_stop import LineLimits, LineStop, Passing
from penstock.core.order.releases import PartitionOrder, Release, Room
from penstock.core.rows.blocks import StoppedOwner, Ticket
from penstock.lane.budget import Budget
from penstock.lane.receiving import Decode, Fetchers, ReceivingLane
from penstock.ports import Commit, Where


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """`line`: how many dead letters stop a line. `order_by_stream`: order is kept only within each
    stream.
    """

    max_objects: int
    line: LineLimits
    order_by_stream: bool = False


class Lane(ReceivingLane):
    """Take answers in order by `release`, then report them by `delivered`. A lane ends by `stop` or
    `close`.
    """

    def __init__(
        self,
        number: int,
        where: Where,
        generation: int,
        start: Commit,
        *,
        topic_id: str | None = None,
        budget: Budget,
        decode: Decode,
        fetchers: Mapping[str | None, Fetchers],
        on_stopped: Callable[["Lane", LineStop], None],
        limits: LaneLimits,
        passing: Collection[Passing] = (),
        stream_share: StreamShare | None = None,
    ) -> None:
        """`number`: the source's number of the partition. `topic_id`: which incarnation of its
        topic is read; None: not known. `stream_share`: given only if order is kept per stream.
        `fetchers`: for each model, its fetchers. `passing`: the records whose dead letters an
        operator lets pass, so that these letters stop no line.
        """
        super().__init__(
            where,
            start,
            limits.line,
            passing,
            budget=budget,
            decode=decode,
            fetchers=fetchers,
            max_objects=limits.max_objects,
            stream_share=stream_share,
        )
        self.number = number
        self.topic_id = topic_id
        self.generation = generation
        self._on_stopped = on_stopped
        self._idle = asyncio.Event()
        self._on_their_way = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def __repr__(self) -> str:
        return (
            f"{self.topic}/{self.partition}, generation {self.generation}: {self.ledger!r}, "
            f"{len(self._backlog)} records unread"
        )

    async def release(self, room: Callable[[], Room]) -> list[Release]:
        """Wait for answers that may be published next, and return them in order. This may be called
        again before these are delivered. An empty list: the lane is closed.
        """
        while self.alive and not (releases := self._release(room())):
            # The event is cleared before the wait. No change is missed, because no other task has
            # run since the check above.
            self._changed.clear()
            await self._changed.wait()
        if not self.alive:
            return []
        self._leaving.append(releases)
        # After the release another object is the lane's first one, and the reader of that object
        # may exceed a spent budget.
        self._budget.review()
        return releases

    def _release(self, room: Room) -> list[Release]:
        if self.suspended:
            return []
        leaving = sum(map(len, self._leaving))
        return self._order.release(room, self.ledger.spare_marks, leaving)

    def delivered(self, releases: Sequence[Release]) -> None:
        """The broker has acknowledged all records of these releases. Must be called in the order of
        `release`.
        """
        if self.alive:
            self.account(releases)
            self.confirm(releases)

    def account(self, releases: Sequence[Release], stops: Iterable[LineStop] = ()) -> None:
        """Add to `progress` what these releases deliver, and the stops behind them. The publisher
        of a transaction calls this before the delivery, because the transaction carries the new
        position with it. If the delivery fails, the lane is over, and the position is lost with the
        lane.
        """
        self.letters.stopped_at.update(stop.offset for stop in stops)
        for release in releases:
            self._deliver(release)
            # A ticket that was refused at decoding was never in a fetch queue, so its end is not
            # reported to one.
            if release.finished and release.ticket.started:
                self.fetch_queues[release.ticket.model].delivered(release.ticket)
        self._offer()

    def confirm(self, releases: Sequence[Release]) -> None:
        """These releases are delivered and accounted for: give back their bytes, and admit more
        records.
        """
        if not self.alive:
            return
        self._leaving.popleft()
        self._deliveries += 1
        rows = sum(block.cost_bytes for release in releases for block in release.blocks)
        # Most lanes hold no long message, and need no second pass over the releases.
        messages = 0
        if self._held.messages_bytes:
            messages = sum(release.ticket.cost_bytes for release in releases if release.finished)
        self._held.refund(rows, messages)
        self._admit()
        if self._streams is not None:
            self.wake()  # there may be room for more marks in the commit's metadata
        self._note_idle()

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """The context in which answers or a position are on their way to the broker."""
        self._on_their_way += 1
        self._at_rest.clear()
        try:
            yield
        finally:
            self._on_their_way -= 1
            if not self._on_their_way:
                self._at_rest.set()

    @property
    def is_at_rest(self) -> bool:
        """True if nothing is on its way to the broker."""
        return self._at_rest.is_set()

    async def at_rest(self) -> None:
        await self._at_rest.wait()

    def suspend(self) -> None:
        """A rebalance has begun. Releases that are on their way are delivered, and no more are
        made.
        """
        self.suspended = True

    def go_on(self) -> None:
        """The partition came back to this worker at the position where the lane left it."""
        self.suspended = False
        self.wake()

    def drain(self) -> None:
        """Take no new records, and forget the objects that no fetcher has begun."""
        self.draining = True
        self._backlog.clear()
        self._clear_fetch_queues()
        self._order.abandon_unstarted()
        self._note_idle()

    def _clear_fetch_queues(self) -> None:
        for queue in self.fetch_queues.values():
            queue.clear()

    async def drained(self) -> None:
        """Return when every object that was begun is delivered, or the lane is closed."""
        await self._idle.wait()

    def stop(self, stop: LineStop, refused: Sequence[Release]) -> None:
        """Publish neither the `refused` answers nor any behind them until the assignment ends. If
        order is kept per stream, this concerns only the one stream, otherwise the whole lane. Gives
        back the bytes of all that is dropped.
        """
        self._stops[stop.stream] = stop
        if self._streams is None:
            # With one order for all streams, all other answers are behind the refused ones, so the
            # lane ends here. `due` still gives the position to commit.
            self._backlog.clear()
            self._clear_fetch_queues()
            self._order = PartitionOrder()
            self._idle.set()
            self.close()
        else:
            self._leave_out(self._streams.take_out(stop.stream), refused)
        self._on_stopped(self, stop)

    def _leave_out(self, tickets: Sequence[Ticket], refused: Sequence[Release]) -> None:
        """Forget the tickets of a stopped stream everywhere except in the ledger. The ledger still
        owes them, so the committed position stays before them.
        """
        # If a refused release ended its object, the object's ticket has already left the order.
        left = [*tickets, *(one.ticket for one in refused if one.finished)]
        blocks = [block for release in refused for block in release.blocks]
        blocks += [block for ticket in left for block in ticket.blocks()]
        messages = sum(ticket.cost_bytes for ticket in left)
        # Answers may still arrive for these tickets. Their new owner does not count as alive, so
        # the answers are dropped, while the lane lives on for its other streams.
        over = StoppedOwner(self.topic, self.partition, self.topic_id)
        for ticket in left:
            self.fetch_queues[ticket.model].drop(ticket.queue)
            ticket.owner = over
            ticket.forget()
        self._held.refund(sum(block.cost_bytes for block in blocks), messages)
        self._admit()
        self._note_idle()

    def close(self) -> None:
        """End the generation, and give back at once all bytes that it held."""
        self.alive = False
        # The partitions that stay need the room now. So the bytes are not given back block by
        # block, when the stages let go of the blocks.
        self._held.refund_all()
        # `release` and `drained` wait for deliveries that will never come. This ends their waits.
        self._changed.set()
        self._idle.set()

    def _note_idle(self) -> None:
        if self.draining and not len(self._order) and not self._leaving:
            self._idle.set()
