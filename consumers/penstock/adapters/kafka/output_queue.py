"""The queue of records for one output partition, into which any number of lanes write.

Rule: records leave in the order of the calls, and each caller gets the deliveries of its own. One
caller at a time hands batches to the producer, which takes a partition's next batch only when it
has sent the former one. What other callers have queued meanwhile leaves in the same batch as the
next caller's own. So the wait for a place is short however many lanes write into the partition. A
batch wakes those whose records it has, all at once, and nobody else: passing a lock on from one to
the next would cost each of them a turn of the event loop, which is long when there is much to do. A
caller that is cancelled before its records were handed over takes them back. Owner: the sink.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any, Protocol

from penstock.ports import Outgoing

# What a record takes in a batch beside key, value and headers: its length, attributes, time, offset
# and the lengths of its parts, each a varint of at most 10 bytes (Kafka's protocol, "Record").
RECORD_BYTES = 40
# What a batch takes beside its records ("Record Batch").
HEAD_BYTES = 61

Deliveries = list[asyncio.Future[Any]]
Patiently = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class Producer(Protocol):
    async def room(self, topic: str, partition: int) -> None:
        """Returns when the partition's next batch can be handed over at once."""
        ...

    async def hand_over(self, outgoing: Outgoing) -> Deliveries:
        """Hand over the records as batches. If they fit into one batch and there is room, this does
        not wait.
        """
        ...


class OutputQueue:
    def __init__(self) -> None:
        # `_leader` hands over batches; it is the first that waits. None: nobody waits.
        self._leader: _Waiting | None = None
        self._waiting: deque[_Waiting] = deque()

    async def send(
        self, outgoing: Outgoing, most_bytes: int, producer: Producer, patiently: Patiently
    ) -> Deliveries:
        """Returns when the records are handed over, with the deliveries of their batches. These may
        be others' deliveries, too. `most_bytes`: of a batch. `patiently` tries again what fails for
        a while.
        """
        ours = _Waiting(outgoing)
        self._waiting.append(ours)
        try:
            if self._leader is None:
                self._leader = ours
            else:
                await ours.woken()
            if ours.deliveries is None:
                await patiently(partial(self._hand_over, most_bytes, producer))
        finally:
            if ours.deliveries is None:
                self._waiting.remove(ours)
            if self._leader is ours:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.wake()
        assert ours.deliveries is not None
        return ours.deliveries

    async def _hand_over(self, most_bytes: int, producer: Producer) -> None:
        """Hand over the first records that wait: those of this call, and what fits with them into
        one batch. Nothing is awaited between the choice and the hand-over of several callers'
        records, because any of them may be cancelled meanwhile.
        """
        first = self._waiting[0].outgoing
        await producer.room(first.topic, first.partition)
        together = self._fitting(most_bytes)
        deliveries = await producer.hand_over(joined([each.outgoing for each in together]))
        for each in together:
            each.deliveries = deliveries
            self._waiting.popleft()
            each.wake()

    def _fitting(self, most_bytes: int) -> "list[_Waiting]":
        first = self._waiting[0]
        together, nbytes = [first], HEAD_BYTES + size_of(first.outgoing)
        for each in islice(self._waiting, 1, None):
            nbytes += size_of(each.outgoing)
            is_timed = each.outgoing.times_ms is not None
            if nbytes > most_bytes or is_timed != (first.outgoing.times_ms is not None):
                break
            together.append(each)
        return together


class _Waiting:
    """`deliveries`: None until the records are handed over."""

    __slots__ = ("_woken", "deliveries", "outgoing")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.deliveries: Deliveries | None = None
        self._woken: asyncio.Future[None] | None = None

    async def woken(self) -> None:
        """Returns when the records are handed over, or when it is our turn to do so."""
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def size_of(outgoing: Outgoing) -> int:
    """At least as many bytes as the records take in a batch."""
    headers = 0
    if outgoing.headers is not None:
        headers = sum(
            len(name) + len(value) + RECORD_BYTES
            for of_record in outgoing.headers
            for name, value in of_record
        )
    records = sum(map(len, outgoing.values)) + sum(map(len, filter(None, outgoing.keys)))
    return records + headers + RECORD_BYTES * len(outgoing.values)


def joined(parts: Sequence[Outgoing]) -> Outgoing:
    """The records of all parts as one. What is sent in the place of a refused record is asked of
    the record's own part, which also keeps its own `then`.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    whole = Outgoing(first.topic, first.partition, [], [])
    for part in parts:
        whole.keys += part.keys
        whole.values += part.values
    if any(part.headers is not None for part in parts):
        whole.headers = [
            of_record for part in parts for of_record in (part.headers or [[]] * len(part.values))
        ]
    if any(part.instead is not None for part in parts):
        ends = list(accumulate(len(part.values) for part in parts))

        def instead(index: int, value: bytes, said: str) -> Sequence[bytes] | None:
            at = bisect_right(ends, index)
            replace = parts[at].instead
            return (
                None
                if replace is None
                else replace(index - (ends[at - 1] if at else 0), value, said)
            )

        whole.instead = instead
    if first.times_ms is not None:
        whole.times_ms = [time_ms for part in parts for time_ms in part.times_ms or ()]
    return whole
