"""The partitions that the group assigns to this member. `StartingPlaces` finds the offset at which
reading goes on, and aiokafka tells `Listener` which partitions it assigns and revokes.

Rule: if the broker has no records at the group's position, the source goes on at the earliest
record and logs a warning. A lane that began at a later offset cannot go back, and the worker would
not learn of a choice that the client library makes. So the library may not choose the new position
(`auto_offset_reset="none"`). Owner: the source of either Kafka client. Only the source by aiokafka
uses the listener.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, Fatal, PenstockError, Transient
from penstock.ports import Commit, Rebalance, Where

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.2

GONE_BEFORE = (
    "%s: offsets %d to %d were deleted before they were read; going on at %d. The "
    "topic's retention must be longer than the longest outage"
)
GONE_BEYOND = (
    "%s: the group is at offset %d, beyond the end of the topic (%d): the topic was "
    "created again, restored, or lost its last records. Going on at its earliest record, %d; new "
    "answers may get ids that former answers had"
)
GONE_WITHIN = (
    "%s: the log was cut before offset %d, where the group is, by an unclean election, and has "
    "other records there by now. Going on at its earliest record, %d; new answers may get ids that "
    "former answers had"
)
MADE_AGAIN = (
    "%s: the topic was deleted and created again. Going on at its earliest record, %d; "
    "new answers may get ids that former answers had"
)


class PartitionSource(Protocol):
    """The methods of a source that `StartingPlaces` calls. A method that asks the broker may raise
    `Transient`.
    """

    @property
    def assignments(self) -> int:
        """A counter that grows with every assignment and every revocation."""
        ...

    @property
    def has_stopped(self) -> bool: ...

    async def committed(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        """For each partition: the position that the group has committed, or the position of the
        earliest record if the group has committed nothing.
        """
        ...

    async def made_again(self, partitions: Collection[Where]) -> Collection[Where]:
        """Those of the partitions whose topic was deleted and created again since this member last
        asked.
        """
        ...

    async def span(self, where: Where) -> tuple[int, int]:
        """The first offset of the partition, and the offset after its last record."""
        ...

    async def commit(self, commits: Mapping[Where, Commit]) -> None: ...

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        """Read on at these positions. Partitions that were revoked meanwhile are skipped."""
        ...


class Starts(NamedTuple):
    """Where partitions begin. `made_again`: those whose topic was deleted and created again since
    this member had them; work on their former records must be given up.
    """

    commits: Mapping[Where, Commit]
    made_again: Collection[Where]


class StartingPlaces:
    """Finds the offsets at which reading goes on in partitions."""

    def __init__(self, member: PartitionSource, timeout_s: float) -> None:
        self._member = member
        self._timeout_s = timeout_s

    async def starts(self, partitions: Collection[Where]) -> Starts:
        """Ask where partitions that were just assigned begin, until the broker answers. Raises
        `Fatal` after `kafka.timeout_ms`.
        """
        began_s = _now_s()
        is_logged = False
        made_again: set[Where] = set()
        while partitions and not self._member.has_stopped:
            try:
                made_again.update(await self._member.made_again(partitions))
                starts = dict(await self._member.committed(partitions))
                for where in made_again:
                    # The commit, if there still is one, is of the former topic.
                    starts[where] = await self._begin_of_new(where)
                return Starts(starts, made_again)
            except Transient as error:
                if _now_s() - began_s > self._timeout_s:
                    raise Fatal(
                        f"Kafka did not say for {self._timeout_s:g} s where the group is: {error}",
                        exit_code=EXIT_UNREACHABLE,
                    ) from error
                if not is_logged:
                    again = "the group's positions are asked for again, for up to %g s: %s"
                    log.warning(again, self._timeout_s, error)
                    is_logged = True
                await asyncio.sleep(ASK_AGAIN_S)
        return Starts({}, ())

    async def leave_former(self, partitions: Collection[Where], rebalance: Rebalance) -> None:
        """Go on at the earliest record of those partitions whose topic was made again."""
        assignments = self._member.assignments
        for where in partitions:
            while self._member.assignments == assignments:
                try:
                    start = await self._begin_of_new(where)
                except Transient:  # the broker is unreachable, and the next read reports it
                    await asyncio.sleep(ASK_AGAIN_S)
                    continue
                if self._member.assignments == assignments:
                    await self._begin_again(where, start, rebalance)
                break

    async def _begin_of_new(self, where: Where) -> Commit:
        begin, _ = await self._member.span(where)
        log.warning(MADE_AGAIN, where, begin, extra=of_place(where, begin))
        return Commit(begin)

    async def find(
        self, where: Where, offset: int, rebalance: Rebalance, *, is_cut: bool = False
    ) -> None:
        """Go on at another position, because the broker has no records at `offset` and will never
        have any; or, with `is_cut`, other records than those that this member would have read. If
        the broker does not answer now, return without a new position: the next read reports the
        same offset again.
        """
        assignments = self._member.assignments
        keys = of_place(where, offset)
        try:
            begin, end = await self._member.span(where)
        except Transient as error:
            log.warning("%s: %s", where, error, extra=keys)
            await asyncio.sleep(ASK_AGAIN_S)
            return
        if self._member.assignments != assignments:
            return  # the rebalance has set positions anew
        if offset < begin:
            # The new position is later. A seek is enough, because a lane takes any later offset.
            log.warning(GONE_BEFORE, where, offset, begin - 1, begin, extra=keys)
            await self._member.seek({where: Commit(begin)})
        elif is_cut or offset > end:
            # The new position is earlier. The lane must be made anew, because a lane never takes an
            # earlier offset.
            if offset > end:
                log.warning(GONE_BEYOND, where, offset, end, begin, extra=keys)
            else:
                log.warning(GONE_WITHIN, where, offset, begin, extra=keys)
            await self._begin_again(where, Commit(begin), rebalance)

    async def _begin_again(self, where: Where, start: Commit, rebalance: Rebalance) -> None:
        """Tell the pipeline that the partition was revoked and assigned again at `start`. If a real
        rebalance begins meanwhile, stop: the rebalance decides about the partition.
        """
        member = self._member
        assignments, began_s = member.assignments, _now_s()
        await rebalance.revoked([where])
        while member.assignments == assignments:
            try:
                await member.commit({where: start})
                break
            except Transient as error:
                if _now_s() - began_s > self._timeout_s:
                    raise Fatal(str(error), exit_code=EXIT_UNREACHABLE) from error
                await asyncio.sleep(ASK_AGAIN_S)
        if member.assignments == assignments:
            await member.seek({where: start})
        if member.assignments == assignments:
            await rebalance.assigned({where: start})


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class RebalancedSource(Protocol):
    """The methods of the source that a rebalance calls."""

    async def seek(self, starts: Mapping[Where, Commit]) -> None: ...

    def now_ours(self, partitions: Collection[Where]) -> None: ...

    def now_joining(self) -> None: ...

    def keep_failure(self, error: BaseException) -> None: ...


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka calls this listener when it takes partitions away and when it assigns them. aiokafka
    takes all partitions away before it joins the group, and gives some of them back after the join.
    So the listener first suspends all partitions; after the join it revokes those that have not
    come back. If the listener fails, aiokafka only logs the failure, with a trace, and stays in the
    group. So the source keeps the failure, and the task that polls raises it. An error of ours is
    kept from aiokafka: it says already what is wrong.
    """

    def __init__(
        self, source: RebalancedSource, places: StartingPlaces, rebalance: Rebalance
    ) -> None:
        self._source = source
        self._places = places
        self._rebalance = rebalance
        # The partitions that this member has. We remember them, because aiokafka does not name all
        # partitions that it takes away if the topics have changed during an assignment.
        self._held: set[Where] = set()
        self._suspended: set[Where] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            lost = self._held.union(Where(*part) for part in revoked)
            self._held.clear()
            self._suspended |= lost
            await self._rebalance.suspended(lost)
        except PenstockError as error:
            self._source.keep_failure(error)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
        finally:
            self._source.now_joining()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        ours = [Where(*part) for part in assigned]
        try:
            suspended, self._suspended = self._suspended, set()
            if lost := suspended.difference(ours):
                await self._rebalance.revoked(lost)
            self._held.update(ours)
            starts, made_again = await self._places.starts(ours)
            if former := suspended.intersection(made_again):
                await self._rebalance.revoked(former)
            kept = await self._rebalance.assigned(starts)
            # No read may come between `seek` and `now_ours`. The records of such a read would be
            # lost: they are dropped, because the partitions are not ours yet, and the next read
            # begins after them.
            await self._source.seek(
                {**starts, **{where: Commit(offset) for where, offset in kept.items()}}
            )
            self._source.now_ours(ours)
        except PenstockError as error:
            self._source.keep_failure(error)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
