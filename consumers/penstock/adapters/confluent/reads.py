"""Reads: librdkafka hands over records on a thread, and the inbox keeps them for the pipeline.

Rule: one read at a time. When a seek or a rebalance begins, all records that were read before are
in the inbox: if they came later, they would be taken for records of the new position. Owner: the
source.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.errors import translated
from penstock.adapters.confluent.inbox import Inbox
from penstock.adapters.confluent.partitions import AssignedPartitions, PartitionNames
from penstock.adapters.kafka.source import MAX_RECORDS
from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import UNDECIDED, Commit, Record

# If `FLOW_RECORDS` or more records wait when a read begins, records come faster than they are read.
# In this case the read waits `GATHER_S` for more records, so that one turn of all stages handles
# more of them. If `ENOUGH_RECORDS` wait already, a turn is worth its cost, and the read does not
# wait. A lone record does not wait either. (aiokafka needs no such wait: it asks the broker for
# records only after the former ones were taken, while librdkafka asks ahead.)
FLOW_RECORDS, ENOUGH_RECORDS = 3, 50
GATHER_S = 0.003


class Reads:
    """`failure`: the exception that ended a read. `lost`: from a partition to a position that the
    log does not have; the entry stays until a seek moves the partition. `errors`: the other errors
    that came among the records. `stopped`: partitions that may not be read until a seek or a new
    assignment.
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
        # The positions that the thread has sought and that the inbox does not know yet.
        self._sought: dict[int, Commit] = {}
        self._paused: set[int] = set()
        self._early: list[Any] = []
        self._reading: asyncio.Future[list[Any]] | None = None
        self._woken: asyncio.Future[None] | None = None

    async def some(self, wanted: set[int], wait_ms: int) -> None:
        """Return when a read has ended or a rebalance has begun. A read within which a rebalance
        begins lasts until the rebalance has ended.
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
        """Read on the thread. Take all records that are there; if many are there, also take those
        that come within a moment. If no record is there, wait for the first one, and take the
        records that came with it.

        A notice that a partition was read to its end comes after nearly every record of a slow
        topic. Such notices alone do not end a read, because each read costs a turn of all stages,
        and two switches of the interpreter between threads.
        """
        self._handle.follow_topics()
        consumer = self._handle.consumer
        if pause:
            consumer.pause(self._names.places(pause))
        if resume:
            consumer.resume(self._names.places(resume))
        until_s = time.monotonic() + wait_s
        # Often records are there already. In this case one call brings all of them.
        self._early = consumer.consume(MAX_RECORDS, 0)
        if FLOW_RECORDS <= records_in(self._early) < ENOUGH_RECORDS:
            behind = consumer.consume(MAX_RECORDS - len(self._early), GATHER_S)
            self._early += behind
        while all(map(is_end, self._early)) and (left_s := until_s - time.monotonic()) > 0:
            # `consume` alone would wait until it had the full number of records.
            if (first := consumer.poll(left_s)) is not None:
                self._early.append(first)
                # Not `self._early += consumer.consume(...)`: a rebalance within this call empties
                # `_early`, and `+=` would bring its old records back.
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
        """Keep the records that the read found before a rebalance began within it. Call this at the
        beginning of the rebalance.
        """
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

    # The positions at which reading goes on.

    def begin(self, starts: Mapping[int, Commit]) -> set[int]:
        """Note that these partitions are now assigned to us, at these positions. Returns the
        partitions that must stay paused, because their positions are undecided: a seek will set
        them. The caller resumes the other partitions, because librdkafka keeps the pauses of
        earlier assignments.
        """
        self.forget(starts)
        self.ours.begin(starts)
        self.inbox.begin({one: start for one, start in starts.items() if start != UNDECIDED})
        undecided = {one for one, start in starts.items() if start == UNDECIDED}
        self._paused |= undecided
        self.stopped |= undecided
        return undecided

    def forget(self, partitions: Collection[int]) -> None:
        """Forget these partitions: they were revoked."""
        self._paused.difference_update(partitions)
        self.stopped.difference_update(partitions)
        for one in partitions:
            self._sought.pop(one, None)
            self.lost.pop(one, None)
        self.ours.end(partitions)
        self.inbox.forget(partitions)

    async def seek(self, starts: Mapping[int, Commit]) -> None:
        """Move to new positions. The waiting records of these partitions are dropped. The records
        of a read that is under way are dropped, too, because the thread ends that read before it
        makes the seek. Partitions that are revoked meanwhile are left out.
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
        """Seek on the thread. librdkafka refuses to seek a partition that it does not fetch: either
        the fetch has not begun yet, or the position is gone. In this case the partitions are
        assigned anew, each at its position; with the protocol `classic` all partitions of the
        member must be assigned anew at once.
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
            # Records that were read but are not in the inbox yet come a second time; the inbox
            # takes each record once.
            sought = {one: start.next_offset for one, start in dict(self._sought).items()}
            places = self.inbox.read_up_to() | sought
            consumer.assign([place(one, places.get(one, 0)) for one in all_held])
            consumer.pause(self._names.places(self._paused & all_held))


def is_end(message: Any) -> bool:
    """True for a notice that all records of a partition were handed over, false for a record."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(messages: list[Any]) -> int:
    return len(messages) - sum(map(is_end, messages))


def record_of(number: int, message: Any) -> Record:
    """The record in the form in which aiokafka's source gives it to the pipeline."""
    value, headers = message.value(), message.headers()
    return Record(
        number,
        message.offset(),
        message.key(),
        structured(value, headers) if headers else value,
        message.timestamp()[1],
        in_headers(headers) if headers else None,
    )
