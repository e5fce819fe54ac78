"""Reads the input topics by confluent-kafka (librdkafka), as one member of the consumer group.

Rule: nothing is read before `assigned` has returned, and nothing is committed after `suspended` or
`revoked` has returned. The consumer has a thread of its own. The thread waits for records; in a
rebalance it waits for the event loop. Owner: the consume task, which polls, and `settle`, which
commits.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError

from penstock import config
from penstock.adapters.confluent.broker_calls import BrokerCalls
from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.errors import (
    is_fatal,
    is_unreleased,
    noted,
    of_ours,
    translated,
)
from penstock.adapters.confluent.partitions import PartitionNames
from penstock.adapters.confluent.reads import CUT, Reads
from penstock.adapters.confluent.rebalances import Rebalances
from penstock.adapters.kafka.assigned_partitions import Numbers, Places, Starts
from penstock.adapters.kafka.client import LEAVE_S, REQUEST_TIMEOUT_MS, within
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import (
    GroupMember,
    InstanceIdWait,
    JoinDeadline,
    instance_of,
)
from penstock.adapters.kafka.operator_words import mark_obeyed
from penstock.adapters.kafka.positions import GroupPositions
from penstock.adapters.kafka.source import MAX_RECORDS
from penstock.core.order.line_stop import Word
from penstock.errors import Fatal, Transient, Undecided
from penstock.ports import UNDECIDED, Commit, Rebalance, Record, Where
from penstock.process.asyncio_additions import stopped_after

log = logging.getLogger(__name__)


class ConfluentSource:
    """`drain_ms`: the time that a rebalance may take; the group waits 10 s longer. `leaves`: True
    if a member with an instance id leaves the group when it stops. `decided`: True if a position
    that an open transaction may still move is reported as `UNDECIDED`.
    """

    _rebalances: Rebalances

    def __init__(
        self,
        settings: config.Kafka,
        *,
        drain_ms: int,
        leaves: bool = False,
        decided: bool = False,
    ) -> None:
        self.has_stopped = False
        self._settings = settings
        self._instance_id, self._leaves = instance_of(settings), leaves
        self._timeout_s = settings.timeout_ms / 1000
        # The group removes a member that does not read for `poll_ms`, and a rebalance waits that
        # long for each member. librdkafka accepts no `poll_ms` below the session.
        patience_ms = min(drain_ms + 10_000, REQUEST_TIMEOUT_MS - 5_000)
        poll_ms = max(patience_ms, settings.session_ms)
        self._numbers = Numbers(settings.inputs)
        names = PartitionNames(self._numbers)
        self._group = GroupPositions(settings, decided=decided)
        self._handle = Handle(settings, poll_ms, self._on_error)
        self._reads = Reads(self._handle, names)
        self._calls = BrokerCalls(
            self._handle, self._reads.ours, self._group, names, settings.group, self._timeout_s
        )
        self._names = names
        self._places = Places(self, self._timeout_s)
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
            self._names,
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

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self._check()
        await self._join_deadline.check(self._joining_since_s)
        if self._rebalances.is_changing:
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        if self._is_refused:
            # Our instance id is in use, perhaps by a dead member, so join again in a moment.
            await self._instance_id_wait.pause(self._instance_id)
            await self._join_again()
            return ()
        if self._handle.login.is_refused and await self._handle.login.may_do_better():
            log.info("a new client of Kafka: the brokers refuse what the present one shows")
            await self._join_again()
            return ()
        wanted = set(self._reads.ours.held(partitions))
        if former := self._calls.noticed_again():
            await self._places.leave_former(former, self._rebalance)
            return ()
        if found := self._reads.inbox.take(wanted, MAX_RECORDS):
            return found
        await self._reads.some(wanted, wait_ms)
        if not self._rebalances.is_changing:
            await self._take_errors()
        self._check()
        return self._reads.inbox.take(wanted, MAX_RECORDS)

    @property
    def _joining_since_s(self) -> float | None:
        if not self._handle.topics:
            self._rebalances.nothing_to_join()
        return self._rebalances.joining_since_s if self._handle.topics else None

    async def _take_errors(self) -> None:
        """Handle the errors that came among the records."""
        for number, offset in list(self._reads.lost.items()):
            if not self._reads.inbox.has_any(number):  # a seek would drop the waiting records
                self._reads.lost.pop(number, None)
                await self._find(number, offset)
        while self._reads.errors:
            error = self._reads.errors.popleft()
            if is_unreleased(error):
                self._is_refused = True
            elif isinstance(failure := of_ours("a read of the input topic", error), Fatal):
                self._is_dead = self._is_dead or is_fatal(error)
                raise failure
            else:
                noted(error)

    async def _find(self, partition: int, offset: int) -> None:
        """Find a new position for a partition whose log does not have our position. librdkafka
        reports this only once, and does not read the partition again before a seek. So if we find
        no new position now, we seek the old one, and librdkafka reports it again.

        `offset`: the position that librdkafka reports. It may be higher than the offset after the
        last record that we got, because librdkafka also passes markers of transactions. It is `CUT`
        if the log was cut. If it is 0 or more, but lower than the offset after our last record,
        the report is out of date.
        """
        held = self._reads.ours.held([partition])
        reaches = self._reads.inbox.read_up_to().get(partition)
        if not held or reaches is None or 0 <= offset < reaches:
            return
        lost = max(offset, reaches)
        await self._places.find(partition, lost, self._rebalance, is_cut=offset == CUT)
        is_there = self._reads.inbox.read_up_to().get(partition) == reaches
        if is_there and self._reads.ours.still(held):
            with suppress(Transient):  # the broker is unreachable, and the next read reports it
                await self.seek({partition: Commit(lost)})

    def pause(self, partition: int) -> None:
        self._reads.stopped.add(partition)

    def where(self, partition: int) -> Where:
        return Where(*self._numbers.of(partition))

    def topic_id(self, partition: int) -> str | None:
        return self._calls.topic_id(partition)

    def member_of(self, topic: str) -> GroupMember:
        return self._handle.member()

    def reached(self) -> Mapping[int, int]:
        return self._reads.inbox.given_up_to()

    def partitions(self) -> int:
        return self._count

    # Positions.

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        await self._calls.commit(commits)

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        held = self._reads.ours.held(partitions)
        starts = await self.committed(held) if held else {}
        ours = {number: starts[number] for number in self._reads.ours.still(held)}
        if UNDECIDED in ours.values():
            await self._group.look_for_abandoned()
            raise Undecided("a transaction of another worker is open")
        self._reads.stopped.difference_update(ours)
        await self.seek(ours)
        return ours

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        return await self._calls.words(partitions)

    async def committed(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return await self._calls.committed(partitions)

    async def made_again(self, partitions: Collection[int]) -> Collection[int]:
        return await self._calls.made_again(partitions)

    async def span(self, partition: int) -> tuple[int, int]:
        return await self._calls.span(partition)

    async def end_offsets(self) -> Mapping[int, int]:
        ours = self._reads.ours.all()
        return await self._calls.ends(ours) if ours else {}

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        await self._reads.seek(starts)

    async def _begins_at(self, partitions: Collection[int]) -> Starts:
        self._instance_id_wait.end()
        with suppress(Transient):  # until the next assignment the former count is shown
            self._count = await self._calls.partitions() or self._count
        return await self._places.starts(partitions)

    # The end.

    async def mark_obeyed(self, partition: int, words: Collection[Word]) -> None:
        await mark_obeyed(self._settings, self.where(partition), words)

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
