"""Reads records: librdkafka hands them over on a thread, and the inbox keeps them for the pipeline.

Rule: there is one read at a time. Before a seek or a rebalance begins, all records that were read
are put into the inbox; later they would be taken for records of the new position. A partition with
many waiting records is paused, so memory is bounded. Each assignment of a partition has a number of
its own: a commit or a seek of a former one must not reach the new one. Only the event loop changes
the assignments; the thread looks them up.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.errors import translated
from penstock.adapters.kafka.source import MAX_RECORDS
from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import UNDECIDED, Commit, Record, Where


def places(partitions: Iterable[Where]) -> list[Any]:
    """The partitions as librdkafka names them."""
    return [TopicPartition(*where) for where in partitions]


def places_at(starts: Mapping[Where, Commit]) -> list[Any]:
    """The partitions as librdkafka names them, each with its first offset. If a position is
    undecided, we give the offset 0. "The end" would be wrong, because librdkafka would ask the
    broker for the end, and go there even after a later seek.
    """
    return [TopicPartition(*where, max(0, start.next_offset)) for where, start in starts.items()]


def where_of(place: Any) -> Where:
    return Where(place.topic, place.partition)


class AssignedPartitions:
    """Knows the number of the present assignment of each partition of this member."""

    def __init__(self) -> None:
        self._assignments: dict[Where, int] = {}
        self._next = count(1)

    def begin(self, partitions: Iterable[Where]) -> None:
        self._assignments |= {part: next(self._next) for part in partitions}

    def end(self, partitions: Iterable[Where]) -> None:
        for part in partitions:
            self._assignments.pop(part, None)

    def all(self) -> set[Where]:
        return set(self._assignments)

    def held(self, partitions: Iterable[Where]) -> dict[Where, int]:
        """A mapping from those of the partitions that are ours to the numbers of their assignments.
        Later, `still` tells which of these assignments still hold.
        """
        held = self._assignments
        return {part: held[part] for part in partitions if part in held}

    def still(self, held: Mapping[Where, int]) -> set[Where]:
        """The partitions whose assignment is still the one in `held`."""
        return {part for part, number in held.items() if self._assignments.get(part) == number}


# A partition is paused when this many of its records, or this many bytes, wait. The number of
# records is what one poll gives; the number of bytes is what aiokafka would hold of a partition.
CROWD_RECORDS = 500
CROWD_BYTES = 1 << 20


class _WaitingRecords:
    """The waiting records of one partition. `next_offset`: the offset after the last record that
    came. `end`: the end of the log, as librdkafka reported it. If the last offsets of the log have
    markers of transactions and no records, `end` is higher than `next_offset`.
    """

    __slots__ = ("end", "nbytes", "next_offset", "records")

    def __init__(self, start: int) -> None:
        self.records: deque[Record] = deque()
        self.nbytes = 0
        self.next_offset = start
        self.end = start


class Inbox:
    def __init__(self) -> None:
        self._waiting: dict[Where, _WaitingRecords] = {}

    def clear(self) -> None:
        """Forget all partitions. Call this when none is assigned to us any more."""
        self._waiting.clear()

    def forget(self, partitions: Iterable[Where]) -> None:
        """Forget these partitions, because they were revoked."""
        for partition in partitions:
            self._waiting.pop(partition, None)

    def begin(self, starts: Mapping[Where, Commit]) -> None:
        """Start these partitions at new positions, and drop the records that wait for them."""
        for partition, start in starts.items():
            self._waiting[partition] = _WaitingRecords(start.next_offset)

    def put(self, record: Record) -> None:
        """Add a record. If its partition was revoked, or the record has come before, do nothing."""
        waiting = self._waiting.get(record.where)
        if waiting is not None and record.offset >= waiting.next_offset:
            waiting.next_offset = record.offset + 1
            waiting.records.append(record)
            waiting.nbytes += len(record.value or b"")

    def ends(self, partition: Where, offset: int) -> None:
        """Note that every record before `offset` has come."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.end = max(waiting.end, offset)

    def take(self, partitions: Iterable[Where], most: int) -> list[Record]:
        """Give out up to `most` waiting records of these partitions. The records of one partition
        are in order.
        """
        taken: list[Record] = []
        for partition in partitions:
            waiting = self._waiting.get(partition)
            if waiting is None or not waiting.records:
                continue
            if len(taken) + len(waiting.records) <= most:
                taken += waiting.records
                waiting.records.clear()
                waiting.nbytes = 0
            while waiting.records and len(taken) < most:
                taken.append(waiting.records.popleft())
                waiting.nbytes -= len(taken[-1].value or b"")
        return taken

    def crowded(self, wanted: Collection[Where]) -> set[Where]:
        """The partitions that must be paused, because many of their records wait and they are not
        in `wanted`.
        """
        return {
            partition
            for partition, waiting in self._waiting.items()
            if partition not in wanted
            and (len(waiting.records) >= CROWD_RECORDS or waiting.nbytes >= CROWD_BYTES)
        }

    def has_any(self, partition: Where) -> bool:
        waiting = self._waiting.get(partition)
        return waiting is not None and bool(waiting.records)

    def read_up_to(self) -> dict[Where, int]:
        """For each partition: the offset at which reading goes on. The partitions are copied in one
        step, because the thread of the reads also calls this, and the event loop may change the
        partitions meanwhile.
        """
        waiting = list(self._waiting.items())
        return {partition: each.next_offset for partition, each in waiting}

    def given_up_to(self) -> dict[Where, int]:
        """For each partition: the offset up to which all records were given out."""
        return {
            partition: (
                waiting.records[0].offset
                if waiting.records
                else max(waiting.next_offset, waiting.end)
            )
            for partition, waiting in self._waiting.items()
        }


# If `FLOW_RECORDS` or more records wait when a read begins, records come faster than they are read.
# Then the read waits `GATHER_S` for more records, so that one turn of all stages handles more of
# them. If `ENOUGH_RECORDS` wait already, a turn is worth its cost, so the read does not wait. If
# fewer than `FLOW_RECORDS` wait, the read does not wait either. (aiokafka needs no such wait,
# because it asks the broker for records only after the former ones were taken, while librdkafka
# asks ahead.)
FLOW_RECORDS, ENOUGH_RECORDS = 3, 50
GATHER_S = 0.003
# Stands for the lost position of a partition whose log was cut: librdkafka notices this by the
# epochs of the log's leaders (KIP-320), and tells no offset.
CUT = -1


class Reads:
    """`failure`: the exception that ended a read. `lost`: a mapping from a partition to a position
    of ours that its log does not have, or `CUT`; the entry stays until a seek moves the partition.
    `errors`: the other errors that came among the records. `stopped`: partitions that may not be
    read until a seek or a new assignment.
    """

    def __init__(self, handle: Handle) -> None:
        self.inbox = Inbox()
        self.lost: dict[Where, int] = {}
        self.errors: deque[KafkaError] = deque()
        self.ours = AssignedPartitions()
        self.stopped: set[Where] = set()
        self.failure: BaseException | None = None
        self._handle = handle
        # For each partition that the thread has moved by a seek: the new position, until the inbox
        # knows it.
        self._sought: dict[Where, Commit] = {}
        self._paused: set[Where] = set()
        self._early: list[Any] = []
        self._reading: asyncio.Future[list[Any]] | None = None
        self._woken: asyncio.Future[None] | None = None

    async def some(self, wanted: set[Where], wait_ms: int) -> None:
        """Return when a read has ended or a rebalance has begun. If a rebalance begins within a
        read, this read lasts until the rebalance has ended.
        """
        if self._reading is None:
            self._begin(wanted, wait_ms)
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _begin(self, wanted: set[Where], wait_ms: int) -> None:
        crowded = self.inbox.crowded(wanted) | self.stopped
        pause = crowded - self._paused
        resume = {part for part in self._paused - crowded if not self.inbox.has_any(part)}
        self._paused = (self._paused | pause) - resume
        work = partial(self._read, pause, resume, wait_ms / 1000)
        self._reading = self._handle.call(work, apart=True)
        self._reading.add_done_callback(self._arrived)

    def _read(self, pause: set[Where], resume: set[Where], wait_s: float) -> list[Any]:
        """Called on the thread. Take all records that are there. If `FLOW_RECORDS` or more are
        there, but fewer than `ENOUGH_RECORDS`, also take those that come within `GATHER_S`. If none
        is there, wait for the first one, and take it with the records that came with it.

        librdkafka also gives a notice when a partition was read to its end. On a slow topic such a
        notice comes after nearly every record. A notice does not end a read, because each read
        costs a turn of all stages, and two switches of the interpreter between threads.
        """
        self._handle.follow_changes()
        consumer = self._handle.consumer
        if pause:
            consumer.pause(places(pause))
        if resume:
            consumer.resume(places(resume))
        until_s = time.monotonic() + wait_s
        # Often records are there already. Then this call brings all of them.
        self._early = consumer.consume(MAX_RECORDS, 0)
        if FLOW_RECORDS <= records_in(self._early) < ENOUGH_RECORDS:
            behind = consumer.consume(MAX_RECORDS - len(self._early), GATHER_S)
            self._early += behind
        while all(map(is_end, self._early)) and (left_s := until_s - time.monotonic()) > 0:
            # `poll` returns with the first record; `consume` would wait for the full number of
            # records.
            if (first := consumer.poll(left_s)) is not None:
                self._early.append(first)
                # This is not written `self._early += consumer.consume(...)`, because a rebalance
                # within the call empties `_early`, and `+=` would bring the old records back.
                behind = consumer.consume(MAX_RECORDS, 0)
                self._early += behind
        messages, self._early = self._early, []
        return messages

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
                self.inbox.put(record_of(message))
            elif is_end(message):
                self.inbox.ends(_where(message), message.offset())
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                where = _where(message)
                if self.ours.held([where]):
                    offset = message.offset()
                    self.lost[where] = CUT if offset is None else offset
            else:
                self.errors.append(error)

    # The following methods set the positions at which reading goes on.

    def begin(self, starts: Mapping[Where, Commit]) -> set[Where]:
        """Note that these partitions are now assigned to us, at these positions. Returns the
        partitions that must stay paused, because their positions are undecided: a seek will set
        them. The caller resumes the other partitions, because librdkafka keeps the pauses of
        earlier assignments.
        """
        self.forget(starts)
        self.ours.begin(starts)
        self.inbox.begin({part: start for part, start in starts.items() if start != UNDECIDED})
        undecided = {part for part, start in starts.items() if start == UNDECIDED}
        self._paused |= undecided
        self.stopped |= undecided
        return undecided

    def forget(self, partitions: Collection[Where]) -> None:
        """Forget these partitions, because they were revoked."""
        self._paused.difference_update(partitions)
        self.stopped.difference_update(partitions)
        for part in partitions:
            self._sought.pop(part, None)
            self.lost.pop(part, None)
        self.ours.end(partitions)
        self.inbox.forget(partitions)

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        """Move these partitions to new positions. Their waiting records are dropped. If a read is
        under way, the thread ends it before it makes the seek, so the records of that read are
        dropped, too. Partitions that are revoked meanwhile are left out.
        """
        if not (held := self.ours.held(starts)):
            return
        with translated("a seek"):
            await self._handle.call(partial(self._seek, starts, held), apart=True)
        for part in self.ours.still(held):
            self.lost.pop(part, None)
            self.inbox.begin({part: starts[part]})
            if self._sought.get(part) is starts[part]:
                del self._sought[part]

    def _seek(self, starts: Mapping[Where, Commit], held: Mapping[Where, int]) -> None:
        """Called on the thread. librdkafka refuses a seek in a partition that it does not fetch,
        because the fetch has not begun yet or the log does not have the position. Then we assign
        the partitions to librdkafka anew, each at its position. With the protocol `classic` we must
        do this for all partitions of the member at once.
        """
        consumer = self._handle.consumer
        all_held = set(map(where_of, consumer.assignment()))
        wanted = self.ours.still(held) & all_held
        anew = [TopicPartition(*part, starts[part].next_offset) for part in wanted]
        self._sought |= {part: starts[part] for part in wanted}
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
            # The records that are not in the inbox yet will come a second time. The inbox takes
            # each record only once.
            sought = {part: start.next_offset for part, start in dict(self._sought).items()}
            offsets = self.inbox.read_up_to() | sought
            consumer.assign([TopicPartition(*part, offsets.get(part, 0)) for part in all_held])
            consumer.pause(places(self._paused & all_held))


def is_end(message: Any) -> bool:
    """True for a notice that all records of a partition were handed over, false for a record."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(messages: list[Any]) -> int:
    return len(messages) - sum(map(is_end, messages))


def _where(message: Any) -> Where:
    return Where(message.topic(), message.partition())


def record_of(message: Any) -> Record:
    """Make the same record that aiokafka's source would give to the pipeline."""
    value, headers = message.value(), message.headers()
    return Record(
        _where(message),
        message.offset(),
        message.key(),
        structured(value, headers) if headers else value,
        message.timestamp()[1],
        in_headers(headers) if headers else None,
    )
