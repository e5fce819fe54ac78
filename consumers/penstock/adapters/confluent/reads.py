"""Reads: librdkafka hands over records on its thread, the inbox keeps them for the pipeline.

Rule: one read at a time. The next seek or rebalance finds in the inbox all that was read before it:
records that came later would be taken for those of the new place. Owner: the source.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.adapters.confluent.assigned_partitions import AssignedPartitions
from penstock.adapters.confluent.errors import translated
from penstock.adapters.confluent.handle import Handle
from penstock.adapters.confluent.inbox import Inbox
from penstock.adapters.confluent.partition_names import PartitionNames
from penstock.adapters.kafka.source import MAX_RECORDS
from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import UNDECIDED, Commit, Record

# If so many records wait as a read begins, they come faster than they are read. aiokafka asks the
# broker again only then, and what comes in that time makes its portions larger. librdkafka has
# asked already, so a read waits for as long, unless there is enough to be worth a turn of all
# stages. A lone record waits for nothing.
FLOW_RECORDS, ENOUGH_RECORDS = 3, 50
GATHER_S = 0.003


class Reads:
    """`failure`: what ended a read. `lost`: by partition a position of this assignment that the log
    does not have, until it is sought. `errors`: others that came among the records. `stopped`:
    partitions that are not to be read until they are sought or assigned.
    """

    def __init__(self, handle: Handle, names: PartitionNames) -> None:
        self.inbox = Inbox()
        self.lost: dict[int, int] = {}
        self.errors: deque[KafkaError] = deque()
        self.ours = AssignedPartitions()
        self.stopped: set[int] = set()
        self.failure: BaseException | None = None
        self._handle = handle
        self._names = names
        # Sought by the thread, and not yet known to the inbox.
        self._sought: dict[int, Commit] = {}
        self._paused: set[int] = set()
        self._early: list[Any] = []
        self._reading: asyncio.Future[list[Any]] | None = None
        self._woken: asyncio.Future[None] | None = None

    async def some(self, wanted: set[int], wait_ms: int) -> None:
        """Return when a read has ended or a rebalance has begun. The read itself lasts as long as a
        rebalance within it does.
        """
        if self._reading is None:
            self._begin(wanted, wait_ms)
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _begin(self, wanted: set[int], wait_ms: int) -> None:
        crowded = self.inbox.crowded(wanted) | self.stopped
        pause = crowded - self._paused
        resume = {one for one in self._paused - crowded if not self.inbox.has_any(one)}
        self._paused = (self._paused | pause) - resume
        work = partial(self._read, pause, resume, wait_ms / 1000)
        self._reading = self._handle.call(work, apart=True)
        self._reading.add_done_callback(self._arrived)

    def _read(self, pause: set[int], resume: set[int], wait_s: float) -> list[Any]:
        """On the thread. Ends with all records that are there or come in a moment if many do, or
        that come together after a wait.

        At the end of a partition librdkafka tells it after nearly every record. That alone ends no
        read: each read is a turn of all stages, and twice a turn of the interpreter between two
        threads.
        """
        self._handle.follow_topics()
        consumer = self._handle.consumer
        if pause:
            consumer.pause(self._names.places(pause))
        if resume:
            consumer.resume(self._names.places(resume))
        until_s = time.monotonic() + wait_s
        # Often something is there: one call then brings all of it.
        self._early = consumer.consume(MAX_RECORDS, 0)
        if FLOW_RECORDS <= records_in(self._early) < ENOUGH_RECORDS:
            behind = consumer.consume(MAX_RECORDS - len(self._early), GATHER_S)
            self._early += behind
        while all(map(is_end, self._early)) and (left_s := until_s - time.monotonic()) > 0:
            # `consume` alone would wait until it had the full number.
            if (first := consumer.poll(left_s)) is not None:
                self._early.append(first)
                # A rebalance within this call takes what is early.
                behind = consumer.consume(MAX_RECORDS, 0)
                self._early += behind
        found, self._early = self._early, []
        return found

    def _arrived(self, reading: "asyncio.Future[list[Any]]") -> None:
        self._reading = None
        if not reading.cancelled():
            if (failure := reading.exception()) is not None:
                self.failure = self.failure or failure
            else:
                self._keep(reading.result())
        self.wake()

    def keep_early(self) -> None:
        """Called while a rebalance holds up a read: keep what the read has found before it."""
        early, self._early = self._early, []
        self._keep(early)

    def _keep(self, messages: list[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self.inbox.put(record_of(self._names.number_of(message), message))
            elif is_end(message):
                self.inbox.ends(self._names.number_of(message), message.offset())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                number = self._names.number_of(message)
                if self.ours.held([number]):
                    self.lost[number] = message.offset()
            else:
                self.errors.append(error)

    # Where reading goes on.

    def begin(self, starts: Mapping[int, Commit]) -> set[int]:
        """These partitions are assigned at these positions. Returns those that are paused: their
        positions are not decided, and a seek will tell them. librdkafka keeps the pauses of earlier
        assignments: the caller takes those off.
        """
        self.forget(starts)
        self.ours.begin(starts)
        self.inbox.begin({one: start for one, start in starts.items() if start != UNDECIDED})
        undecided = {one for one, start in starts.items() if start == UNDECIDED}
        self._paused |= undecided
        self.stopped |= undecided
        return undecided

    def forget(self, partitions: Collection[int]) -> None:
        """They were revoked."""
        self._paused.difference_update(partitions)
        self.stopped.difference_update(partitions)
        for one in partitions:
            self._sought.pop(one, None)
            self.lost.pop(one, None)
        self.ours.end(partitions)
        self.inbox.forget(partitions)

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        """Move to new positions. The records that wait for these partitions are dropped, and so
        are those of a read under way: the thread ends that read before it comes to the seek.
        Partitions that are revoked meanwhile are left out.
        """
        if not (held := self.ours.held(starts)):
            return
        with translated("a seek"):
            await self._handle.call(partial(self._seek, starts, held), apart=True)
        for one in self.ours.still(held):
            self.lost.pop(one, None)
            self.inbox.begin({one: starts[one]})
            if self._sought.get(one) is starts[one]:
                del self._sought[one]

    def _seek(self, starts: Mapping[int, Commit], held: Mapping[int, int]) -> None:
        """On the thread. librdkafka refuses to seek a partition that it is not fetching (not yet,
        or because its position is gone): then all partitions are assigned anew, each at its
        position.
        """
        consumer, place = self._handle.consumer, self._names.place
        all_held = set(map(self._names.number, consumer.assignment()))
        wanted = self.ours.still(held) & all_held
        anew = [place(one, starts[one].next_offset) for one in wanted]
        self._sought |= {one: starts[one] for one in wanted}
        try:
            for each in anew:
                consumer.seek(each)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            if self._handle.is_incremental:
                consumer.incremental_unassign(anew)
                consumer.incremental_assign(anew)
                return
            # What the inbox has not yet comes again, and it takes each record once.
            sought = {one: start.next_offset for one, start in dict(self._sought).items()}
            places = self.inbox.read_up_to() | sought
            consumer.assign([place(one, places.get(one, 0)) for one in all_held])
            consumer.pause(self._names.places(self._paused & all_held))


def is_end(message: Any) -> bool:
    """Is it not a record, but the notice that all records of a partition have been handed over?"""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(messages: list[Any]) -> int:
    return len(messages) - sum(map(is_end, messages))


def record_of(number: int, message: Any) -> Record:
    """The record as the pipeline also gets it from aiokafka."""
    value, headers = message.value(), message.headers()
    return Record(
        number,
        message.offset(),
        message.key(),
        structured(value, headers) if headers else value,
        message.timestamp()[1],
        in_headers(headers) if headers else None,
    )
