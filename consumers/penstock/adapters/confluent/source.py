"""Reads the input topics by confluent-kafka (librdkafka), as one member of the consumer group.

Rule: nothing is read before `assigned` has returned, and nothing is committed after `suspended` or
`revoked` has returned.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock import config
from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.errors import (
    NO_MEMBER,
    is_fatal,
    is_unreleased,
    noted,
    of_ours,
    translated,
)
from penstock.adapters.confluent.reads import CUT, AssignedPartitions, Reads, where_of
from penstock.adapters.confluent.rebalances import Rebalances
from penstock.adapters.kafka.assigned_partitions import StartingPlaces, Starts
from penstock.adapters.kafka.client import (
    COMMIT_S,
    LEAVE_S,
    REQUEST_TIMEOUT_MS,
    answered_within,
    within,
)
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import (
    GroupMember,
    InstanceIdWait,
    JoinDeadline,
    instance_of,
)
from penstock.adapters.kafka.positions import (
    END_OFFSETS_S,
    QUESTION_S,
    GroupPositions,
    Incarnations,
)
from penstock.adapters.kafka.positions_from_outside import mark_obeyed
from penstock.adapters.kafka.source import MAX_RECORDS, CommitParts
from penstock.core.progress.line_stop import Word
from penstock.core.window.gathering import Gather
from penstock.errors import Fatal, Transient, Undecided
from penstock.ports import UNDECIDED, Commit, Rebalance, Record, Where
from penstock.process.asyncio_additions import stopped_after

log = logging.getLogger(__name__)

T = TypeVar("T")

# In a ListOffsets request these numbers stand for the earliest offset and for the next offset, the
# one after the last record.
EARLIEST, NEXT = -2, -1
# The pause before we try a commit again. Meanwhile the member may get a new epoch.
EPOCH_S = 0.1
ENDS = "a question about the ends of partitions"


class BrokerCalls:
    def __init__(
        self,
        handle: Handle,
        ours: AssignedPartitions,
        group: GroupPositions,
        group_name: str,
        timeout_s: float,
    ) -> None:
        self._handle = handle
        self._ours = ours
        self._group = group
        self._incarnations = Incarnations()
        self._limit_s = min(QUESTION_S, timeout_s)
        self._commit_s = min(COMMIT_S, timeout_s)
        self._commits = CommitParts(group_name, _code_of)

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        try:
            async with answered_within("the commit", self._commit_s):
                await self._committed(commits)
        except KafkaException as error:
            # If this member has lost its partitions, the failure does no harm: their new owner
            # starts at the last commit.
            if error.args[0].code() not in NO_MEMBER:
                raise of_ours("the commit", error.args[0]) from error

    async def _committed(self, commits: Mapping[Where, Commit]) -> None:
        """Commit, and repeat the commit while the broker refuses our epoch. A member learns its new
        epoch by its next heartbeat; before that heartbeat, the broker refuses its commits
        (KIP-848). Under the new epoch the broker would accept a commit even for a partition that
        another member has now. So partitions that were revoked meanwhile are not committed again.
        """
        held = self._ours.held(commits)
        while ours := self._ours.still(held):
            try:
                await self._commits.each({part: commits[part] for part in ours}, self._commit_part)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH:
                    raise
                await asyncio.sleep(EPOCH_S)
            else:
                return

    async def _commit_part(self, commits: Mapping[Where, Commit]) -> None:
        offsets = [TopicPartition(*where, *commit) for where, commit in commits.items()]
        work = partial(self._handle.consumer.commit, offsets=offsets, asynchronous=False)
        _check_each(await self._handle.call(work))

    async def committed(self, partitions: Collection[Where]) -> dict[Where, Commit]:
        """For each partition: the position that the group has committed, or the position of the
        earliest record if the group has committed nothing. With exactly once, the value is
        `UNDECIDED` if an open transaction may still move the position.
        """
        what = "a question about the committed offsets"
        async with answered_within(what, self._limit_s):
            commits = await self._group.committed(partitions)
        starts = {where: commit for where, commit in commits.items() if commit is not None}
        fresh = [where for where in partitions if where not in starts]
        begins = await self._offsets(fresh, EARLIEST, self._limit_s) if fresh else {}
        return starts | {where: Commit(offset) for where, offset in begins.items()}

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        async with answered_within("a question about stopped lines", QUESTION_S):
            return await self._group.words(partitions)

    async def span(self, where: Where) -> tuple[int, int]:
        begins = await self._offsets([where], EARLIEST, self._limit_s)
        ends = await self._offsets([where], NEXT, self._limit_s)
        return begins[where], ends[where]

    async def ends(self, partitions: Collection[Where]) -> dict[Where, int]:
        """For each partition: the offset after its last record. The deadline is short, because the
        worker asks this question every two seconds.
        """
        async with answered_within(ENDS, END_OFFSETS_S):
            ids = await self._group.topic_ids(partitions)
        self._incarnations.learn(ids)
        return await self._offsets(partitions, NEXT, END_OFFSETS_S)

    async def made_again(self, partitions: Collection[Where]) -> Collection[Where]:
        """Those of the partitions whose topic was made again since this member had them."""
        async with answered_within("a question about the input topic", self._limit_s):
            ids = await self._group.topic_ids(partitions)
        self._incarnations.learn(ids)
        return self._incarnations.begin(partitions, self._ours.all())

    def topic_id(self, where: Where) -> str | None:
        return self._incarnations.of(where.topic)

    def noticed_again(self) -> Collection[Where]:
        """As `made_again` of all partitions, by the last question about their ends."""
        stale = list(self._incarnations.stale)
        return self._incarnations.begin(stale, self._ours.all()) if stale else ()

    async def partitions(self) -> int:
        """How many partitions the topics have together."""
        async with answered_within("a question about the input topic", self._limit_s):
            return await self._group.partitions(self._handle.topics)

    async def _offsets(
        self, partitions: Collection[Where], which: int, s: float
    ) -> dict[Where, int]:
        wanted = [TopicPartition(*where, which) for where in partitions]
        with translated(ENDS):
            work = partial(self._handle.consumer.offsets_for_times, wanted, timeout=s)
            ends = await self._ask(ENDS, work, s)
            _check_each(ends)
        return {where_of(end): end.offset for end in ends}

    async def _ask(self, what: str, work: Callable[[], T], limit_s: float) -> T:
        async with answered_within(what, limit_s):
            return await self._handle.call(work)


def _check_each(places: Any) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _code_of(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


class ConfluentSource:
    """`drain_ms`: the time that a rebalance may take; the group waits 10 s longer. `leaves`: True
    if a member with an instance id leaves the group when it stops. `decided`: True if a position
    that an open transaction may still move is reported as `UNDECIDED`. `gather`: decides how long
    records may wait for others; None: they never do.
    """

    _rebalances: Rebalances

    def __init__(
        self,
        settings: config.Kafka,
        *,
        drain_ms: int,
        leaves: bool = False,
        decided: bool = False,
        gather: Gather | None = None,
    ) -> None:
        self._gather = gather
        self.has_stopped = False
        self._settings = settings
        self._instance_id, self._leaves = instance_of(settings), leaves
        self._timeout_s = settings.timeout_ms / 1000
        # The group removes a member that does not read for `poll_ms`, and a rebalance waits that
        # long for each member. librdkafka accepts no `poll_ms` below the session.
        patience_ms = min(drain_ms + 10_000, REQUEST_TIMEOUT_MS - 5_000)
        poll_ms = max(patience_ms, settings.session_ms)
        self._group = GroupPositions(settings, decided=decided)
        self._handle = Handle(settings, poll_ms, self._on_error)
        self._reads = Reads(self._handle)
        self._calls = BrokerCalls(
            self._handle, self._reads.ours, self._group, settings.group, self._timeout_s
        )
        self._places = StartingPlaces(self, self._timeout_s)
        self._join_deadline = JoinDeadline(
            settings.group,
            self._group.ask,
            timeout_s=self._timeout_s,
            rebalance_s=poll_ms / 1000,
            session_s=settings.session_ms / 1000,
        )
        self._instance_id_wait = InstanceIdWait(settings.session_ms / 1000)
        self._is_refused = False
        self._count = 0
        self._failure: BaseException | None = None
        self._is_dead = False  # librdkafka has reported a fatal error

    async def start(self, rebalance: Rebalance) -> None:
        await self._group.start()
        if self._handle.is_incremental and (terms := await self._group.terms()) is not None:
            log.info("group protocol consumer: %s", terms)
            self._instance_id_wait = InstanceIdWait(terms.session_ms / 1000)
        self._rebalance = rebalance
        self._rebalances = Rebalances(
            rebalance,
            self._handle,
            self._reads,
            self._begins_at,
            self._keep_failure,
        )
        self._join()

    def _join(self) -> None:
        self._rebalances.now_joining()
        self._handle.join(self._rebalances.on_assign, self._rebalances.on_revoke)

    async def _join_again(self) -> None:
        """Join with a new client."""
        await self._handle.leave()
        self._is_refused = False
        self._join()

    @property
    def assignments(self) -> int:
        return self._rebalances.changes

    # Reading.

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        if self._gather is not None and (pause_s := self._gather.pause_s):
            await asyncio.sleep(pause_s)
        self._check()
        if self._joining_since_s is not None:
            await self._join_deadline.check(self._joining_since_s)
        if self._rebalances.is_changing:
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        if self._is_refused:
            # Our instance id is in use, perhaps by a dead member, so join again in a moment.
            await self._instance_id_wait.pause(self._instance_id)
            if await self._handle.login.has_token():
                await self._join_again()
            return ()
        if self._handle.login.is_refused and await self._handle.login.has_token():
            log.info("a new client of Kafka: the brokers refuse what the present one shows")
            await self._join_again()
            return ()
        wanted = set(self._reads.ours.held(partitions))
        if former := self._calls.noticed_again():
            await self._places.leave_former(former, self._rebalance)
            return ()
        records = self._reads.inbox.take(wanted, MAX_RECORDS)
        if not records:
            await self._reads.some(wanted, wait_ms)
            if not self._rebalances.is_changing:
                await self._take_errors()
            self._check()
            records = self._reads.inbox.take(wanted, MAX_RECORDS)
        if self._gather is not None:
            self._gather.note(len(records), time.monotonic())
        return records

    @property
    def _joining_since_s(self) -> float | None:
        if not self._handle.topics:
            self._rebalances.nothing_to_join()
        return self._rebalances.joining_since_s if self._handle.topics else None

    async def _take_errors(self) -> None:
        """Handle the errors that came among the records."""
        for where, offset in list(self._reads.lost.items()):
            if not self._reads.inbox.has_any(where):  # a seek would drop the waiting records
                self._reads.lost.pop(where, None)
                await self._find(where, offset)
        while self._reads.errors:
            error = self._reads.errors.popleft()
            if is_unreleased(error):
                self._is_refused = True
            elif isinstance(failure := of_ours("a read of the input topic", error), Fatal):
                self._is_dead = self._is_dead or is_fatal(error)
                raise failure
            else:
                noted(error)

    async def _find(self, where: Where, offset: int) -> None:
        """Find a new position for a partition whose log does not have our position. librdkafka
        reports this only once, and does not read the partition again before a seek. So if we find
        no new position now, we seek the old one, and librdkafka reports it again.

        `offset`: the position that librdkafka reports. It may be higher than the offset after the
        last record that we got, because librdkafka also passes markers of transactions. It is `CUT`
        if the log was cut. If it is 0 or more, but lower than the offset after our last record,
        the report is out of date.
        """
        held = self._reads.ours.held([where])
        reaches = self._reads.inbox.read_up_to().get(where)
        if not held or reaches is None or 0 <= offset < reaches:
            return
        lost = max(offset, reaches)
        await self._places.find(where, lost, self._rebalance, is_cut=offset == CUT)
        is_there = self._reads.inbox.read_up_to().get(where) == reaches
        if is_there and self._reads.ours.still(held):
            with suppress(Transient):  # the broker is unreachable, and the next read reports it
                await self.seek({where: Commit(lost)})

    def pause(self, where: Where) -> None:
        self._reads.stopped.add(where)

    def topic_id(self, where: Where) -> str | None:
        return self._calls.topic_id(where)

    def member_of(self, topic: str) -> GroupMember:
        return self._handle.member()

    def reached(self) -> Mapping[Where, int]:
        return self._reads.inbox.given_up_to()

    def partitions(self) -> int:
        return self._count

    # Positions.

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        await self._calls.commit(commits)

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        held = self._reads.ours.held(partitions)
        starts = await self.committed(held) if held else {}
        ours = {where: starts[where] for where in self._reads.ours.still(held)}
        if UNDECIDED in ours.values():
            await self._group.look_for_abandoned()
            raise Undecided("a transaction of another worker is open")
        self._reads.stopped.difference_update(ours)
        await self.seek(ours)
        return ours

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        return await self._calls.words(partitions)

    async def committed(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        return await self._calls.committed(partitions)

    async def made_again(self, partitions: Collection[Where]) -> Collection[Where]:
        return await self._calls.made_again(partitions)

    async def span(self, where: Where) -> tuple[int, int]:
        return await self._calls.span(where)

    async def end_offsets(self) -> Mapping[Where, int]:
        ours = self._reads.ours.all()
        return await self._calls.ends(ours) if ours else {}

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        await self._reads.seek(starts)

    async def _begins_at(self, partitions: Collection[Where]) -> Starts:
        self._instance_id_wait.end()
        with suppress(Transient):  # until the next assignment the former count is shown
            self._count = await self._calls.partitions() or self._count
        return await self._places.starts(partitions)

    # The end.

    async def mark_obeyed(self, where: Where, words: Collection[Word]) -> None:
        await mark_obeyed(self._settings, where, words)

    async def stop(self) -> None:
        if self.has_stopped:
            return
        self.has_stopped = True
        async with stopped_after(self._group.stop):
            if hasattr(self, "_rebalances"):
                await self._leave()

    async def _leave(self) -> None:
        try:
            async with within("the end of the consumer", LEAVE_S):
                await self._rebalances.end()
                # After a fatal error the group does not know this member any more, and `close` may
                # never return: confluent-kafka 2.16 then keeps a core busy until the process ends.
                if not self._is_dead:
                    await self._handle.leave()
            if self._leaves and self._instance_id is not None and not self._is_dead:
                await leave_at_last(self._settings, self._instance_id)
        except Fatal:
            if self._rebalances.joining_since_s is None:
                raise
            log.warning("left in the middle of a rebalance: the group waits for the session")
        finally:
            self._handle.end()

    def _keep_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if (failure := self._failure or self._reads.failure) is not None:
            with translated("a read of the input topic"):
                raise failure

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka calls this on the thread. After a fatal error librdkafka does nothing any
        more; from all other errors it recovers by itself.
        """
        if is_unreleased(error):
            self._is_refused = True
        elif is_fatal(error):
            self._is_dead = True
            self._keep_failure(of_ours("the work of its client", error))
        else:
            self._handle.login.note(error)
            noted(error)
