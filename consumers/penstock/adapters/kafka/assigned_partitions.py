"""The partitions that the group assigns to this member. Three classes deal with them: `Numbers`
numbers the partitions, `Places` finds the offset at which reading goes on, and aiokafka tells
`Listener` which partitions it assigns and revokes.

Rule: if the broker has no records at the group's position, the source goes on at the earliest
record and logs a warning. A lane that began at a later offset cannot go back, and the worker would
not learn of a choice that the client library makes. So the library may not choose the new position
(`auto_offset_reset="none"`). Owner: the source of either Kafka client. Only the source by aiokafka
uses the listener.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
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


class Numbers:
    """Gives each partition of the input topics one number that is unique within the worker.

    With one topic the number is Kafka's own number of the partition. With several topics a
    partition gets the next free number when it is first seen, and keeps this number as long as the
    process lives. The sources of several regions share one `Numbers`.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        """`topics`: the input topics; empty if a pattern selects them."""
        self._topic = topics[0] if len(topics) == 1 else None
        self._numbers: dict[TopicPartition, int] = {}
        self._met: list[TopicPartition] = []

    def number(self, where: TopicPartition) -> int:
        """The number of this partition. The reverse is `of`, which gives the partition that has a
        number.
        """
        if self._topic is not None:
            return int(where.partition)
        if where not in self._numbers:
            self._numbers[where] = len(self._met)
            self._met.append(where)
        return self._numbers[where]

    def number_of(self, topic: str, partition: int) -> int:
        return self.number(TopicPartition(topic, partition))

    def of(self, number: int) -> TopicPartition:
        if self._topic is not None:
            return TopicPartition(self._topic, number)
        return self._met[number]


class Gone(Exception):
    """The broker has no records at the positions `offsets`, and will never have any there."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = offsets


@contextmanager
def for_ourselves() -> Iterator[None]:
    """A block for a read by aiokafka. If the broker has no records at a position, the block raises
    `Gone`. It suppresses errors that do no harm.
    """
    try:
        yield
    except kafka_errors.OffsetOutOfRangeError as error:
        if not error.args:
            raise  # the error names no positions, so it is not about records
        raise Gone(error.args[0]) from error
    except kafka_errors.NoOffsetForPartitionError:
        return  # aiokafka looked for a position before our `seek` had set one
    except kafka_errors.IllegalStateError:
        return  # a partition was revoked between our check and the call


class Member(Protocol):
    """The methods of a source that `Places` calls. A method that asks the broker may raise
    `Transient`.
    """

    @property
    def assignments(self) -> int:
        """A counter that grows with every assignment and every revocation."""
        ...

    @property
    def has_stopped(self) -> bool: ...

    def where(self, partition: int) -> Where: ...

    async def committed(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        """For each partition: the position that the group has committed, or the position of the
        earliest record if the group has committed nothing.
        """
        ...

    async def made_again(self, partitions: Collection[int]) -> Collection[int]:
        """Those of the partitions whose topic was deleted and created again since this member last
        asked.
        """
        ...

    async def span(self, partition: int) -> tuple[int, int]:
        """The first offset of the partition, and the offset after its last record."""
        ...

    async def commit(self, commits: Mapping[int, Commit]) -> None: ...

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        """Read on at these positions. Partitions that were revoked meanwhile are skipped."""
        ...


class Starts(NamedTuple):
    """Where partitions begin. `made_again`: those whose topic was deleted and created again since
    this member had them; work on their former records must be given up.
    """

    commits: Mapping[int, Commit]
    made_again: Collection[int]


class Places:
    """Finds the offsets at which reading goes on in partitions."""

    def __init__(self, member: Member, timeout_s: float) -> None:
        self._member = member
        self._timeout_s = timeout_s

    async def starts(self, partitions: Collection[int]) -> Starts:
        """Ask where partitions that were just assigned begin, until the broker answers. Raises
        `Fatal` after `kafka.timeout_ms`.
        """
        began_s = _now_s()
        is_logged = False
        made_again: set[int] = set()
        while partitions and not self._member.has_stopped:
            try:
                made_again.update(await self._member.made_again(partitions))
                starts = dict(await self._member.committed(partitions))
                for number in made_again:
                    # The commit, if there still is one, is of the former topic.
                    starts[number] = await self._begin_of_new(number)
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

    async def leave_former(self, partitions: Collection[int], rebalance: Rebalance) -> None:
        """Go on at the earliest record of those partitions whose topic was made again."""
        assignments = self._member.assignments
        for number in partitions:
            while self._member.assignments == assignments:
                try:
                    start = await self._begin_of_new(number)
                except Transient:  # the broker is unreachable, and the next read reports it
                    await asyncio.sleep(ASK_AGAIN_S)
                    continue
                if self._member.assignments == assignments:
                    await self._begin_again(number, start, rebalance)
                break

    async def _begin_of_new(self, partition: int) -> Commit:
        begin, _ = await self._member.span(partition)
        where = self._member.where(partition)
        log.warning(MADE_AGAIN, where, begin, extra=of_place(*where, begin))
        return Commit(begin)

    async def find(
        self, partition: int, offset: int, rebalance: Rebalance, *, is_cut: bool = False
    ) -> None:
        """Go on at another position, because the broker has no records at `offset` and will never
        have any; or, with `is_cut`, other records than those that this member would have read. If
        the broker does not answer now, return without a new position: the next read reports the
        same offset again.
        """
        assignments, where = self._member.assignments, self._member.where(partition)
        keys = of_place(*where, offset)
        try:
            begin, end = await self._member.span(partition)
        except Transient as error:
            log.warning("%s: %s", where, error, extra=keys)
            await asyncio.sleep(ASK_AGAIN_S)
            return
        if self._member.assignments != assignments:
            return  # the rebalance has set positions anew
        if offset < begin:
            # The new position is later. A seek is enough, because a lane takes any later offset.
            log.warning(GONE_BEFORE, where, offset, begin - 1, begin, extra=keys)
            await self._member.seek({partition: Commit(begin)})
        elif is_cut or offset > end:
            # The new position is earlier. The lane must be made anew, because a lane never takes an
            # earlier offset.
            if offset > end:
                log.warning(GONE_BEYOND, where, offset, end, begin, extra=keys)
            else:
                log.warning(GONE_WITHIN, where, offset, begin, extra=keys)
            await self._begin_again(partition, Commit(begin), rebalance)

    async def _begin_again(self, partition: int, start: Commit, rebalance: Rebalance) -> None:
        """Tell the pipeline that the partition was revoked and assigned again at `start`. If a real
        rebalance begins meanwhile, stop: the rebalance decides about the partition.
        """
        member = self._member
        assignments, began_s = member.assignments, _now_s()
        await rebalance.revoked([partition])
        while member.assignments == assignments:
            try:
                await member.commit({partition: start})
                break
            except Transient as error:
                if _now_s() - began_s > self._timeout_s:
                    raise Fatal(str(error), exit_code=EXIT_UNREACHABLE) from error
                await asyncio.sleep(ASK_AGAIN_S)
        if member.assignments == assignments:
            await member.seek({partition: start})
        if member.assignments == assignments:
            await rebalance.assigned({partition: start})


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class RebalancedSource(Protocol):
    """The methods of the source that a rebalance calls."""

    async def seek(self, starts: Mapping[int, Commit]) -> None: ...

    def now_ours(self, partitions: Collection[int]) -> None: ...

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
        self, source: RebalancedSource, numbers: Numbers, places: Places, rebalance: Rebalance
    ) -> None:
        self._numbers = numbers
        self._source = source
        self._places = places
        self._rebalance = rebalance
        # The partitions that this member has. We remember them, because aiokafka does not name all
        # partitions that it takes away if the topics have changed during an assignment.
        self._held: set[int] = set()
        self._suspended: set[int] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            numbers = self._held.union(self._numbers.number(where) for where in revoked)
            self._held.clear()
            self._suspended |= numbers
            await self._rebalance.suspended(numbers)
        except PenstockError as error:
            self._source.keep_failure(error)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
        finally:
            self._source.now_joining()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        numbers = [self._numbers.number(where) for where in assigned]
        try:
            suspended, self._suspended = self._suspended, set()
            if lost := suspended.difference(numbers):
                await self._rebalance.revoked(lost)
            self._held.update(numbers)
            starts, made_again = await self._places.starts(numbers)
            if former := suspended.intersection(made_again):
                await self._rebalance.revoked(former)
            kept = await self._rebalance.assigned(starts)
            # No read may come between `seek` and `now_ours`. The records of such a read would be
            # lost: they are dropped, because the partitions are not ours yet, and the next read
            # begins after them.
            await self._source.seek(
                {**starts, **{number: Commit(offset) for number, offset in kept.items()}}
            )
            self._source.now_ours(numbers)
        except PenstockError as error:
            self._source.keep_failure(error)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
