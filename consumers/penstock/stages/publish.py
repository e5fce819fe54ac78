"""Publishes a lane's answers in order, and tells the lane what the broker has acknowledged.

Rule: a lane has one release with the broker at a time; answers that become ready meanwhile leave
together in the next. Rows count as delivered when the broker has acknowledged every record and dead
letter of their release; with transactions, when the transaction with these records and the new
position is committed. If answers are also written as objects, many results are written side by
side, but their records leave one release after the other. If a release has so many dead letters
that its partition or stream must stop, this release and all behind it stay in the lane.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from penstock.core.progress.order import Release, Room
from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient, first_cause
from penstock.lane.lane import Lane
from penstock.ports import Clock, Commit, Outgoing, Sink
from penstock.stages.encode import Encode, Leaving, RefusedReleases
from penstock.stages.result_objects import LaneResults, ObjectResults
from penstock.telemetry.delivery_times import DeliveryTimes
from penstock.telemetry.worker import Telemetry

T = TypeVar("T")

# A function that publishes records and a lane's new position in one transaction.
Transact = Callable[[Sequence[Outgoing], Commit], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Step:
    """The releases that leave together, encoded, and the refused releases. `released_s`: when the
    releases left the lane.
    """

    leaving: Sequence[Leaving]
    refused: Sequence[RefusedReleases]
    released_s: float

    @property
    def releases(self) -> Sequence[Release]:
        return [delivery.release for delivery in self.leaving]


# A function that sends a step's records, and reports them to the lane when they are delivered.
_Leave = Callable[[_Step], Awaitable[None]]


class _UnderWay(NamedTuple):
    """A step whose results are being written: its task, and its share of the room."""

    task: asyncio.Task[None]
    rows: int
    nbytes: int


class Publish:
    """One per pipeline; `lane_forever` or `lane_in_transactions` runs once for each lane."""

    def __init__(
        self,
        sink: Sink,
        encode: Encode,
        times: DeliveryTimes,
        results: ObjectResults | None,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        """`results`: given if answers are also written as objects. These are written before any
        record about them is published.
        """
        self._sink = sink
        self._encode = encode
        self._times = times
        self._results = results
        self._clock = clock
        self._telemetry = telemetry

    async def lane_forever(self, lane: Lane) -> None:
        leave = partial(self._deliver, lane)
        if self._results is None:
            await self._one_by_one(lane, self._encode.room, None, leave)
            return
        try:
            await self._side_by_side(lane, self._results, self._encode.room, None, leave)
        except _Unwritten as error:
            # The answers in the broken upload are gone, and an open lane cannot ask the model for
            # them again. So the worker ends, and the partition's next assignment asks the model
            # again.
            raise Fatal(
                f"results cannot be written; they will be repeated: {error}",
                exit_code=EXIT_UNREACHABLE,
            ) from error

    async def lane_in_transactions(
        self, lane: Lane, transact: Transact, most_bytes: Callable[[], int], idle_s: float
    ) -> None:
        """Like `lane_forever`, but in transactions, each with at most `most_bytes()` of the lane.
        If there is no release for `idle_s`, the position is committed without records, because
        records without objects may have moved it.
        """

        def room() -> Room:
            return self._encode.room(most_bytes())

        leave = partial(self._transact, lane, transact)
        if self._results is None:
            await self._one_by_one(lane, room, idle_s, leave)
        else:
            await self._side_by_side(lane, self._results, room, idle_s, leave)

    async def _one_by_one(
        self, lane: Lane, room: Callable[[], Room], idle_s: float | None, leave: _Leave
    ) -> None:
        while (releases := await self._next(lane, room, idle_s)) is not None:
            if releases or _is_due(lane):
                with lane.leaving():
                    step = await self._step(lane, releases)
                    if lane.alive:
                        await leave(step)

    async def _side_by_side(
        self,
        lane: Lane,
        results: ObjectResults,
        room: Callable[[], Room],
        idle_s: float | None,
        leave: _Leave,
    ) -> None:
        """Releases are taken while those under way have less than half of a release's room."""
        whole = part = room()

        def room_now() -> Room:
            nonlocal whole, part
            whole, part = room(), room()
            return part

        under_way: deque[_UnderWay] = deque()
        try:
            async with results.lane() as ours, asyncio.TaskGroup() as tasks:
                while (releases := await self._next(lane, room_now, idle_s)) is not None:
                    while under_way and under_way[0].task.done():
                        under_way.popleft()
                    if not releases and (under_way or not _is_due(lane)):
                        continue
                    with ExitStack() as leaving:
                        leaving.enter_context(lane.leaving())
                        step = await self._step(lane, releases)
                        if not lane.alive:
                            return
                        await _written(ours.add(step.releases))
                        before = under_way[-1].task if under_way else None
                        task = tasks.create_task(self._leave_after(before, step, ours, leave))
                        task.add_done_callback(_closing(leaving.pop_all()))
                    used = whole.rows - part.rows, whole.nbytes - part.nbytes
                    under_way.append(_UnderWay(task, *used))
                    # Behind a refused release nothing leaves until the line has stopped.
                    await _room_is_left(under_way, whole, needs_all=bool(step.refused))
        except BaseExceptionGroup as group:
            raise first_cause(group) from group

    async def _leave_after(
        self, before: asyncio.Task[None] | None, step: _Step, results: LaneResults, leave: _Leave
    ) -> None:
        written = await _written(results.complete(step.releases))
        if before is not None:
            # If that step failed, this task is cancelled before the wait returns.
            await asyncio.wait([before])
        self._encode.add_results(step.leaving, written)
        await leave(step)
        results.delivered(step.releases)

    async def _deliver(self, lane: Lane, step: _Step) -> None:
        # All records are handed over before the first delivery is awaited, so they leave in one
        # request.
        outgoing = self._encode.outgoing(step.leaving)
        for delivery in [await self._sink.send(out) for out in outgoing]:
            await delivery
        lane.delivered(step.releases)
        self._end(lane, step)

    async def _transact(self, lane: Lane, transact: Transact, step: _Step) -> None:
        releases = step.releases
        outgoing = self._encode.outgoing(step.leaving)
        # The transaction carries the position after these releases, so the lane must account for
        # them before they are delivered. If the transaction fails, the lane is closed and its
        # account is dropped.
        lane.advance(releases, [refusal.stop for refusal in step.refused])
        position = lane.account.progress
        await transact(outgoing, position)
        lane.account.committed = position
        self._telemetry.committed()
        if step.leaving or step.refused:
            lane.confirm(releases)
        self._end(lane, step)

    async def _step(self, lane: Lane, releases: Sequence[Release]) -> _Step:
        """Encode these releases. This comes before results are written, because a refused release
        must not leave a result behind.
        """
        released_s = self._clock.now()
        return _Step(*await self._encode.releases(lane, releases), released_s)

    def _end(self, lane: Lane, step: _Step) -> None:
        if step.leaving:
            self._times.delivered(step.releases, step.released_s)
        # A partition or stream stops only now, when the answers before the refused releases are
        # delivered. So it later goes on exactly at the first refused release. The first of these
        # stops may close the lane.
        for refusal in step.refused:
            if lane.alive:
                lane.stop(refusal.stop, refusal.releases)

    async def _next(
        self, lane: Lane, room: Callable[[], Room], idle_s: float | None
    ) -> list[Release] | None:
        """The releases to publish next. An empty list: there were none for `idle_s`. None: the lane
        is closed.
        """
        if idle_s is None:
            return await lane.release(room) or None
        try:
            async with asyncio.timeout(idle_s):
                return await lane.release(room) or None
        except TimeoutError:
            return []


class _Unwritten(Transient):
    """A result could not be written."""


async def _written(work: Awaitable[T]) -> T:
    try:
        return await work
    except Transient as error:
        raise _Unwritten(str(error)) from error


def _is_due(lane: Lane) -> bool:
    """Is there a position to commit without records?"""
    return lane.due is not None and not lane.suspended


def _closing(stack: ExitStack) -> Callable[[object], None]:
    return lambda _: stack.close()


async def _room_is_left(under_way: deque[_UnderWay], whole: Room, *, needs_all: bool) -> None:
    """Return when the steps under way have less than half of the room; `needs_all`: when none is
    under way.
    """
    while under_way:
        rows = sum(step.rows for step in under_way)
        nbytes = sum(step.nbytes for step in under_way)
        if not needs_all and 2 * rows < whole.rows and 2 * nbytes < whole.nbytes:
            return
        await asyncio.wait([under_way[0].task])
        under_way.popleft()
