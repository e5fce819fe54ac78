"""The input topic by confluent-kafka: one member of the consumer group, by librdkafka.

Rule: nothing is read before `assigned` has returned, and nothing is committed after `revoked` has
returned. In a rebalance librdkafka calls us back from inside a read and waits for our return. So
the consumer has a thread of its own: it waits in the callback while the event loop hands partitions
back, and makes the commits of that time. A read without records waits on that thread, too. Owner:
the consume task polls, settle commits.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock import config
from penstock.adapters.confluent.blocking_calls import CallThread
from penstock.adapters.confluent.broker_calls import Questions
from penstock.adapters.confluent.client import (
    is_fatal,
    is_unreleased,
    noted,
    of_ours,
    translated,
)
from penstock.adapters.confluent.inbox import Inbox
from penstock.adapters.confluent.member import member_options
from penstock.adapters.kafka.client import (
    LEAVE_S,
    REQUEST_TIMEOUT_MS,
    answered_within,
    within,
)
from penstock.adapters.kafka.committed_positions import GroupPositions
from penstock.adapters.kafka.group.instance import instance_of
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import Membership
from penstock.adapters.kafka.group.reprieve import Reprieve
from penstock.adapters.kafka.source import MAX_RECORDS, QUESTION_S
from penstock.adapters.kafka.starting_points import Places
from penstock.errors import Fatal
from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import Commit, Rebalance, Record, Where
from penstock.process.stopping import stopped_after

log = logging.getLogger(__name__)

T = TypeVar("T")


class ConfluentSource:
    """`drain_ms`: the time that a revoke may take; the group waits 10 s longer. `leaves`: a member
    with an instance id gives up its place when it stops.
    """

    def __init__(self, settings: config.Kafka, *, drain_ms: int, leaves: bool = False) -> None:
        self.assignments = 0
        self.has_stopped = False
        self._settings = settings
        self._instance_id, self._leaves = instance_of(settings), leaves
        self._topic = settings.input_topic
        self._timeout_s = settings.timeout_ms / 1000
        # The group removes a member that does not read for this long, and waits as long for it in
        # a rebalance. librdkafka takes nothing below the session.
        patience_ms = min(drain_ms + 10_000, REQUEST_TIMEOUT_MS - 5_000)
        self._poll_ms = max(patience_ms, settings.session_ms)
        self._places = Places(self, self._timeout_s)
        self._group = GroupPositions(settings)
        self._membership = Membership(
            settings.group,
            self._group.ask,
            timeout_s=self._timeout_s,
            rebalance_s=self._poll_ms / 1000,
            session_s=settings.session_ms / 1000,
        )
        # By "consumer" partitions come and go one by one, while the others are worked on.
        self._is_incremental = settings.group_protocol == "consumer"
        self._reprieve = Reprieve(settings.session_ms / 1000)
        self._is_refused = False
        self._inbox = Inbox()
        self._ours: set[int] = set()
        self._paused: set[int] = set()
        self._for_good: set[int] = set()
        self._count = 0
        self._failure: BaseException | None = None
        self._joining_since_s: float | None = None
        self._reading: asyncio.Future[list[Any]] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._notices: deque[Any] = deque()
        self._handing: asyncio.Task[Any] | None = None

    async def start(self, rebalance: Rebalance) -> None:
        await self._group.start()
        self._loop = asyncio.get_running_loop()
        self._rebalance = rebalance
        self._thread = CallThread("kafka")
        if self._is_incremental and (terms := await self._group.terms()) is not None:
            log.info("group protocol consumer: %s", terms)
            self._reprieve = Reprieve(terms.session_ms / 1000)
        self._join()

    def _join(self) -> None:
        with translated("the start of the consumer"):
            options = member_options(self._settings, self._poll_ms, self._on_error)
            self._consumer = Consumer(options)
        self._questions = Questions(
            self._consumer, self._thread, self._group, self._topic, self._timeout_s
        )
        self.now_joining()
        with translated("the start of the consumer"):
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )

    async def _join_again(self) -> None:
        """The group has refused us for a dead member's place: ask again in a moment."""
        await self._reprieve.wait(self._instance_id)
        await self._thread.call(self._consumer.close)
        self._is_refused = False
        self._join()

    # Reading.

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self._check()
        if self._is_refused:
            await self._join_again()
            return ()
        await self._membership.check(self._joining_since_s)
        if self._handing is not None:
            # In a rebalance the thread is inside a read: another one would queue behind it.
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        wanted = self._ours.intersection(partitions)
        if found := self._inbox.take(wanted, MAX_RECORDS):
            return found
        if self._reading is None:
            self._read(wanted, wait_ms)
        self._woken = self._loop.create_future()
        await self._woken
        await self._take_notice()
        self._check()
        return self._inbox.take(wanted & self._ours, MAX_RECORDS)

    def _read(self, wanted: set[int], wait_ms: int) -> None:
        """Begin a read on the thread: it ends with the records that librdkafka has or gets within
        `wait_ms`. `poll` does not await it directly, because a rebalance inside the read makes it
        last as long as the rebalance.
        """
        crowded = self._inbox.crowded(wanted) | self._for_good
        pause = crowded - self._paused
        resume = {one for one in self._paused - crowded if not self._inbox.has_any(one)}
        self._paused = (self._paused | pause) - resume
        self._reading = self._thread.call(partial(self._read_now, pause, resume, wait_ms / 1000))
        self._reading.add_done_callback(self._arrived)

    def _arrived(self, reading: "asyncio.Future[list[Any]]") -> None:
        """Store what a read brought as soon as it ends. A seek may be next on the thread: it drops
        what is stored, but records and ends stored later would be taken for those after the seek.
        """
        self._reading = None
        if not reading.cancelled():
            if (failure := reading.exception()) is not None:
                self._failure = self._failure or failure
            else:
                for message in reading.result():
                    error = message.error()
                    if error is None:
                        self._inbox.put(_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._inbox.ends(message.partition(), message.offset())
                    else:
                        self._notices.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _read_now(self, pause: set[int], resume: set[int], wait_s: float) -> list[Any]:
        """Runs on the thread. `poll` waits for the first record and `consume` takes those behind
        it, as `consume` alone would wait until it had the full number.
        """
        consumer = self._consumer
        if pause:
            consumer.pause(self._places_of(pause))
        if resume:
            consumer.resume(self._places_of(resume))
        first = consumer.poll(wait_s)
        return [] if first is None else [first, *consumer.consume(MAX_RECORDS - 1, 0)]

    async def _take_notice(self) -> None:
        """Handle the errors that came among the records."""
        while self._notices:
            message = self._notices.popleft()
            error, where, offset = message.error(), message.partition(), message.offset()
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                # If the partition is read from another offset since, the error is out of date.
                if where in self._ours and self._inbox.read_up_to()[where] == offset:
                    await self._places.find(where, offset, self._rebalance)
            elif is_unreleased(error):
                self._is_refused = True
            elif isinstance(failure := of_ours("a read of the input topic", error), Fatal):
                raise failure
            else:
                noted(error)

    def pause(self, partition: int) -> None:
        self._for_good.add(partition)

    def where(self, partition: int) -> Where:
        return Where(self._topic, partition)

    def reached(self) -> Mapping[int, int]:
        return self._inbox.given_up_to()

    def partitions(self) -> int:
        return self._count

    # Positions.

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        ours = {number: commit for number, commit in commits.items() if number in self._ours}
        if ours:
            await self._questions.commit(ours)

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        starts = await self.committed(partitions)
        ours = {number: start for number, start in starts.items() if number in self._ours}
        self._for_good.difference_update(ours)
        await self.seek(ours)
        return ours

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        async with answered_within("a question about stopped lines", QUESTION_S):
            return await self._group.words(partitions)

    async def committed(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        return await self._questions.committed(partitions)

    async def span(self, partition: int) -> tuple[int, int]:
        return await self._questions.span(partition)

    async def end_offsets(self) -> Mapping[int, int]:
        return await self._questions.ends(self._ours) if self._ours else {}

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        """Move to new positions. The records that wait for these partitions are dropped, and so
        are those of a read under way: the thread ends that read before it comes to the seek.
        """
        wanted = {number: start for number, start in starts.items() if number in self._ours}
        if wanted:
            places = self._inbox.read_up_to() | {one: wanted[one].next_offset for one in wanted}
            paused = self._paused & self._ours
            with translated("a seek"):
                await self._thread.call(partial(self._seek_now, set(wanted), places, paused))
            self._inbox.begin({one: wanted[one] for one in wanted if one in self._ours})

    def _seek_now(self, wanted: set[int], places: Mapping[int, int], paused: set[int]) -> None:
        """On the thread. librdkafka refuses to seek a partition that it is not fetching (not yet,
        or because its position is gone): then all partitions are assigned anew, each at its
        position. Partitions that were revoked meanwhile are left out.
        """
        to = [TopicPartition(self._topic, number, places[number]) for number in places]
        held = {one.partition for one in self._consumer.assignment()}
        try:
            for place in to:
                if place.partition in wanted & held:
                    self._consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            if self._is_incremental:
                anew = [place for place in to if place.partition in wanted & held]
                self._consumer.incremental_unassign(anew)
                self._consumer.incremental_assign(anew)
                return
            self._consumer.assign([place for place in to if place.partition in held])
            self._consumer.pause(self._places_of(paused & held))

    # The group.

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        """librdkafka calls this on the thread, inside a read."""
        numbers = [one.partition for one in partitions]
        starts = self._in_loop(self._assigned(numbers)) or {}
        places = [TopicPartition(self._topic, one, starts[one].next_offset) for one in starts]
        (consumer.incremental_assign if self._is_incremental else consumer.assign)(places)
        consumer.resume(self._places_of(starts))  # librdkafka keeps pauses of earlier assignments

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._in_loop(self._revoked([one.partition for one in partitions]))
        if self._is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run `work` in the event loop and wait for it. None if we are stopping or it failed."""
        if self.has_stopped:
            work.close()
            return None
        try:
            return self._thread.in_loop(self._handed(work), self._loop)
        except BaseException as error:  # the task that polls raises it
            self._failure = self._failure or error
            return None

    async def _handed(self, work: Awaitable[T]) -> T:
        self._handing = asyncio.current_task()
        self._wake()
        try:
            return await work
        finally:
            self._handing = None

    async def _assigned(self, numbers: Collection[int]) -> Mapping[int, Commit]:
        self._count = await self._questions.partitions() or self._count
        starts = await self._places.starts(numbers)
        self._inbox.begin(starts)
        await self._rebalance.assigned(starts)
        self._ours |= set(starts)
        self.assignments += 1
        self._joining_since_s = None
        return starts

    async def _revoked(self, numbers: Collection[int]) -> None:
        try:
            await self._rebalance.revoked(numbers)
        finally:
            if self._is_incremental:
                self._gone(numbers)
            else:
                self.now_joining()

    def _gone(self, numbers: Collection[int]) -> None:
        """The others stay ours meanwhile."""
        for held in (self._ours, self._paused, self._for_good):
            held.difference_update(numbers)
        self._inbox.forget(numbers)
        self.assignments += 1

    def now_joining(self) -> None:
        """Whoever joins by "consumer" is a member at once; without a partition for it, it hears
        nothing more.
        """
        self._ours, self._paused, self._for_good = set(), set(), set()
        self._inbox.clear()
        self._notices.clear()
        self.assignments += 1
        self._joining_since_s = None if self._is_incremental else self._loop.time()

    async def stop(self) -> None:
        if self.has_stopped:
            return
        self.has_stopped = True
        async with stopped_after(self._group.stop):
            if hasattr(self, "_consumer"):
                await self._leave()

    async def _leave(self) -> None:
        try:
            async with within("the end of the consumer", LEAVE_S):
                if self._handing is not None:
                    self._handing.cancel()
                    await asyncio.wait([self._handing])
                await self._thread.call(self._consumer.close)
            if self._leaves and self._instance_id is not None:
                await leave_at_last(self._settings, self._instance_id)
        except Fatal:
            if self._joining_since_s is None:
                raise
            log.warning("left in the middle of a rebalance: the group notices by the session")
        finally:
            self._thread.end()

    def _places_of(self, numbers: Collection[int]) -> list[Any]:
        return [TopicPartition(self._topic, number) for number in numbers]

    def _check(self) -> None:
        if self._failure is not None:
            with translated("a read of the input topic"):
                raise self._failure

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka calls this on the thread. After a fatal error it does nothing any more; all
        others it gets over by itself.
        """
        if is_unreleased(error):
            self._is_refused = True
        elif is_fatal(error):
            self._failure = self._failure or of_ours("the work of its client", error)
        else:
            noted(error)


def _record(message: Any) -> Record:
    value, headers = message.value(), message.headers()
    return Record(
        message.partition(),
        message.offset(),
        message.key(),
        structured(value, headers) if headers else value,
        message.timestamp()[1],
        in_headers(headers) if headers else None,
    )
