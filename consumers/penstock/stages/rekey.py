"""Passes the messages of the input topics on, in the order of their times, to a topic that is keyed
by stream.

Rule: one member of the group reads all partitions, and merges by the broker's times: if one is
known to have more records, those of the others wait for it, `wait_s` at most. Records and positions
are in one transaction, so a message is passed on once. A new owner first fences the former one,
then reads the committed positions.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from penstock.core.progress.time_order import Latest, Merge
from penstock.core.routing.stream_keys import KeyedMessage, StreamNames, keyed, unread
from penstock.core.rows.log_keys import of_place
from penstock.errors import Transient, Unforeseen
from penstock.failures.unexpected_errors import Guards, works_on
from penstock.ports import (
    Clock,
    Commit,
    Followed,
    Headers,
    Outgoing,
    Passage,
    Record,
    Where,
)
from penstock.stages.settle import TransactionRetry
from penstock.telemetry.rekey import RekeyTelemetry

log = logging.getLogger(__name__)

POLL_MS = 50
# How long a step reads up to the ends before it passes on what it has. An answer of a broker takes
# some milliseconds, or tens of them over a long way.
CATCH_UP_S = 0.05
# The header that says where a message came from: topic/partition/offset.
SOURCE = "penstock-source"
# The header `SOURCE` has at most this many bytes, its name included: a topic has at most 249
# characters, and two numbers follow.
SOURCE_BYTES = 300
# If the broker did not answer when it was asked for the partitions' ends, the ends that came with
# the last reads are used for this long. Then the broker is asked again.
UNANSWERED_S = 5.0
# The end of a partition whose end no read has told yet. It is so high that the partition counts as
# one with more records.
UNKNOWN = sys.maxsize
# If a message is too large for the topic, only its first bytes are passed on, so that people can
# recognise it.
CUT_BYTES = 1_000

Ask = Callable[[Iterable[Where], float], Awaitable[Mapping[Where, int]]]


class RekeyedSource(Followed, Protocol):
    """What the rekeyer needs of a source: `known_ends`, and some methods of `ports.Source`."""

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]: ...


@dataclass(frozen=True, slots=True)
class RekeyTerms:
    """`record_bytes`: key, value and headers of a record have at most this many bytes together.
    `patience_s`: if transactions fail for this long, the process ends.
    """

    topic: str
    partition_of: Callable[[bytes], int]
    record_bytes: int
    stream_from: str | None
    wait_s: float
    patience_s: float


class Rekeyer:
    """One member of the rekeyers' group. `open_passage`: a function that first fences all earlier
    passages of the group, also those of other processes, and waits until their transactions are
    decided. So the committed positions no longer change when it returns. It raises `Transient` or
    `Fatal`. `ask`: a function that returns the current ends of partitions.
    """

    def __init__(
        self,
        source: RekeyedSource,
        open_passage: Callable[[], Awaitable[Passage]],
        ask: Ask,
        terms: RekeyTerms,
        clock: Clock,
        telemetry: RekeyTelemetry,
        jitter: Callable[[], float],
    ) -> None:
        self._source = source
        self._open_passage = open_passage
        self._ask = ask
        self._terms = terms
        self._clock = clock
        self._telemetry = telemetry
        self._guard = Guards(telemetry, clock).at("message")
        self._naming = StreamNames(terms.stream_from)
        self._merge = Merge(terms.wait_s)
        self._latest = Latest()
        self._retry = TransactionRetry(terms.patience_s, clock, jitter)
        self._ours: frozenset[Where] = frozenset()
        self._life = 0
        self._publishing = asyncio.Lock()
        self._ask_again_s = 0.0
        telemetry.backlog = self._backlog

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self._ours |= starts.keys()
        self._life += 1
        return {}

    async def suspended(self, partitions: Collection[Where]) -> None:
        """Drop the work, as `revoked` does: little work is lost, because it begins again at the
        committed position.
        """
        await self.revoked(partitions)

    async def revoked(self, partitions: Collection[Where]) -> None:
        self._ours -= set(partitions)
        self._life += 1
        # The lock is free once the transaction in progress has ended.
        async with self._publishing:
            pass

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; then leave the group, so that another member goes on at once."""
        await self._source.start(self)
        while not stop.is_set():
            if not self._ours:
                await self._source.poll((), POLL_MS)
                continue
            try:
                await self._lead(stop)
            except Transient as error:
                log.warning("rekeying to %s: %s", self._terms.topic, error)
                pause_s = self._retry.pause_s(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause_s)
        await self._source.stop()

    async def _lead(self, stop: asyncio.Event) -> None:
        """Work until the next rebalance, or until `stop` is set."""
        life, ours = self._life, self._ours
        self._merge.clear()
        passage = await self._open_passage()
        try:
            starts = await self._source.rewind(ours)
            if life != self._life or starts.keys() != ours:
                return
            log.info("%d partitions are rekeyed to %s", len(ours), self._terms.topic)
            self._telemetry.leads = True
            while life == self._life and not stop.is_set():
                await self._step(passage, life)
        finally:
            self._telemetry.leads = False
            await passage.close()

    async def _step(self, passage: Passage, life: int) -> None:
        read = await self._source.poll(self._merge.room(self._ours), POLL_MS)
        if life != self._life:
            # the assignment is over: these records are dropped, and the partitions' next owner
            # reads them
            return
        self._merge.add(read)
        if not len(self._merge):
            return
        # The ends are asked for only after the read, so that they include every record that was
        # written before the records just read. What they include besides is under way to us. It
        # is read first: a transaction for the rest would cost it several round trips.
        ends = await self._ends()
        await self._catch_up(ends)
        async with self._publishing:
            if life != self._life:
                return
            records = self._merge.take(self._source.reached(), ends, self._clock.now())
            if not records:
                return
            passed = [(record, self._keyed(record)) for record in records]
            await passage.publish(self._outgoing(passed), self._positions(records))
        self._retry.went_through()
        self._count(passed)

    async def _catch_up(self, ends: Mapping[Where, int]) -> None:
        """Read up to these ends, as far as that takes no longer than `CATCH_UP_S`."""
        until_s = self._clock.now() + CATCH_UP_S
        while (left_s := until_s - self._clock.now()) > 0:
            reached = self._source.reached()
            room = self._merge.room(self._ours)
            if not any(reached.get(each, end) < end for each, end in ends.items() if each in room):
                return
            self._merge.add(await self._source.poll(room, int(left_s * 1000)))

    async def _ends(self) -> Mapping[Where, int]:
        now_s = self._clock.now()
        if now_s >= self._ask_again_s:
            try:
                return await self._ask(self._ours, self._terms.wait_s)
            except Transient as error:
                log.warning("records may be passed on out of order: %s", error)
                self._ask_again_s = self._clock.now() + UNANSWERED_S
        known = self._source.known_ends()
        return {where: known.get(where, UNKNOWN) for where in self._ours}

    def _positions(self, records: Sequence[Record]) -> dict[Where, Commit]:
        """For each partition of these records, the next position to read: the offset after the
        last of these records. If no other record of the partition waits in the merge, the position
        also skips the offsets without a record that follow.
        """
        reached = self._source.reached()
        last = {record.where: record.offset + 1 for record in records}
        return {
            where: Commit(reached.get(where, after) if self._merge.is_empty(where) else after)
            for where, after in last.items()
        }

    def _keyed(self, record: Record) -> list[KeyedMessage]:
        where = record.where
        message = record.key, record.value, record.headers, where.partition
        works_on(partial(of_place, where, record.offset))
        try:
            with self._guard:
                return keyed(*message, self._naming, self._terms.record_bytes - SOURCE_BYTES)
        except Unforeseen:
            # The message is passed on as it came. A worker will read it, meet the same exception,
            # and answer the message by an error.
            return [unread(*message)]

    def _outgoing(self, passed: Iterable[tuple[Record, Sequence[KeyedMessage]]]) -> list[Outgoing]:
        out: dict[int, Outgoing] = {}
        for record, messages in passed:
            for message in messages:
                partition = self._terms.partition_of(message.key)
                if partition not in out:
                    headers: list[Headers] = []
                    made = Outgoing(self._terms.topic, partition, [], [], headers, [])
                    # Not `made` itself: a circle would keep its records until the collector comes.
                    made.instead = partial(self._cut, headers)
                    out[partition] = made
                self._write(out[partition], message, record)
        return list(out.values())

    def _write(self, out: Outgoing, message: KeyedMessage, record: Record) -> None:
        assert out.headers is not None
        assert out.times_ms is not None
        source = f"{record.where}/{record.offset}"
        ours = SOURCE, source.encode()
        # A record without a value would delete the stream's records from a compacted topic.
        written = KeyedMessage(message.key, message.value or b"", [*message.headers, ours])
        if (nbytes := written.nbytes) > self._terms.record_bytes:
            log.error(
                "%s has %d bytes, more than %s takes: it is passed on cut, so it will be answered "
                "by an error. Raise max.message.bytes of %s above that of the input topic",
                *(source, nbytes, out.topic, out.topic),
                extra=of_place(record.where, record.offset),
            )
            self._telemetry.count("cut")
            written = written._replace(value=(message.value or b"")[:CUT_BYTES])
            if written.nbytes > self._terms.record_bytes:
                written = written._replace(headers=[ours])
        out.keys.append(written.key)
        out.values.append(written.value or b"")
        out.headers.append(list(written.headers))
        out.times_ms.append(max(record.timestamp_ms, 0))

    def _cut(
        self, headers: list[Headers], index: int, value: bytes, reason: str
    ) -> Sequence[bytes]:
        """The value that is passed on in place of one which the topic refused."""
        source = dict(headers[index])[SOURCE].decode()
        log.error(
            "%s refused %s, so it is passed on cut, and will be answered by an error: %s",
            *(self._terms.topic, source, reason),
        )
        self._telemetry.count("cut")
        return [value[:CUT_BYTES]]

    def _count(self, passed: Iterable[tuple[Record, Sequence[KeyedMessage]]]) -> None:
        for record, messages in passed:
            self._telemetry.count("passed" if messages else "ignored")
            if len(messages) > 1:
                self._telemetry.count("split")
            for message in messages:
                if self._latest.is_late(message.key, record.timestamp_ms):
                    self._telemetry.count("late")

    def _backlog(self) -> int:
        reached = self._source.reached()
        ends = self._source.known_ends()
        return len(self._merge) + sum(
            max(0, end - reached.get(where, end)) for where, end in ends.items()
        )
