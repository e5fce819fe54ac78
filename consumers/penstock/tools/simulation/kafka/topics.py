"""The topics in memory: the input topic, and the output topics as one worker's producer reaches
them, slow and unreliable.

Rule: input offsets may have gaps, even after the last record. A batch on the wire may still arrive
after the worker's death; one accepted but not sent leaves later, if the process still runs and
`forget` was not called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import Fatal
from penstock.ports import Outgoing, Record, Where
from penstock.tools.simulation.process_and_faults import FaultInjector, Process


class Topic:
    """The partitions of one topic, or of several. Each event in `readers` is set when a record is
    appended.
    """

    def __init__(self, partitions: Iterable[Where]) -> None:
        self.records: dict[Where, list[Record]] = {where: [] for where in partitions}
        self._ends = dict.fromkeys(self.records, 0)
        self.readers: list[asyncio.Event] = []

    @property
    def partitions(self) -> Sequence[Where]:
        return tuple(self.records)

    def append(self, where: Where, key: bytes | None, value: bytes | None, gap: int) -> Record:
        log = self.records[where]
        offset = gap + self._ends[where]
        self._ends[where] = offset + 1
        record = Record(where, offset, key, value, 0)
        log.append(record)
        for reader in self.readers:
            reader.set()
        return record

    def grow(self, where: Where) -> None:
        """Add this partition."""
        self.records[where] = []
        self._ends[where] = 0

    def leave_gap(self, where: Where) -> None:
        """Use up an offset without a record, as a producer's transaction does when it ends."""
        self._ends[where] += 1

    def end(self, where: Where) -> int:
        return self._ends[where]


class Accepted(NamedTuple):
    """What happens to a batch. `leave`: a function that is called when the batch goes on the wire.
    `append`: a function that is called when the batch reaches the broker; it returns a function
    that is called when the delivery report reaches the worker.
    """

    leave: Callable[[], None]
    append: Callable[[Outgoing], Callable[[], None]]


# The time between two events of one connection, which keeps them in order on the loop's heap.
IN_ORDER_S = 1e-6
# How often the batches of a frozen process check whether the process goes on.
LOOK_S = 0.5


@dataclass(eq=False)
class SimulatedSink:
    """This worker's producer. `count`: a function that returns the number of partitions of each
    topic. `accept`: a function that decides what happens to a batch. `is_slow`: True if the
    producer keeps batches for a while before they leave.
    """

    count: Callable[[], int]
    accept: Callable[[Outgoing], Accepted]
    most_bytes: int | None
    process: Process
    injector: FaultInjector
    is_slow: bool
    failure: Fatal | None = field(default=None, init=False)
    _accepted: dict[object, None] = field(default_factory=dict, init=False)
    _busy_until_s: dict[tuple[str, int, str], float] = field(default_factory=dict, init=False)

    async def start(self) -> None:
        return

    async def partitions(self, topic: str) -> int:
        return self.count()

    async def send(self, outgoing: Outgoing) -> Awaitable[None]:
        await self.process.gate()
        accepted = self.accept(outgoing)
        await self.injector.delay()
        await self.process.gate()
        loop = asyncio.get_running_loop()
        report: asyncio.Future[None] = loop.create_future()
        report.add_done_callback(lambda done: done.cancelled() or done.exception())
        fails = self.injector.happens(self.injector.faults.delivery_fails)
        is_lost = self.failure is not None or (fails and self.injector.happens(0.5))
        if fails and self.failure is None:
            self.failure = Fatal("the broker did not take a batch")
        failure = self.failure
        self._accepted[report] = None

        def leave() -> None:
            if report not in self._accepted or not self.process.alive:
                return
            if not self.process.going.is_set():
                loop.call_later(LOOK_S, leave)
                return
            del self._accepted[report]
            accepted.leave()
            loop.call_at(self._next_s(outgoing, "records"), reach_broker)

        def reach_broker() -> None:
            is_there = not is_lost and not self.process.is_cut
            acknowledge = accepted.append(outgoing) if is_there else None
            loop.call_at(self._next_s(outgoing, "report"), reach_worker, acknowledge)

        def reach_worker(acknowledge: Callable[[], None] | None) -> None:
            if report.done() or not self.process.alive:
                return
            if failure is not None or acknowledge is None:
                report.set_exception(failure or Fatal("the broker did not take a batch"))
            else:
                acknowledge()
                report.set_result(None)

        if self.is_slow:
            loop.call_at(self._next_s(outgoing, "leave"), leave)
        else:
            leave()
        return report

    def fits(self, topic: str, key: bytes | None, value_bytes: int) -> bool:
        return self.most_bytes is None or len(key or b"") + value_bytes <= self.most_bytes

    async def forget(self) -> None:
        if self.process.alive:  # a dead process would wait at the gate for ever
            await self.process.gate()
        self._accepted.clear()

    async def stop(self) -> None:
        return

    def _next_s(self, outgoing: Outgoing, what: str) -> float:
        """When the next event of this kind happens: after a random time, but always after the
        former event of this kind.
        """
        where = (outgoing.topic, outgoing.partition, what)
        now_s = asyncio.get_running_loop().time()
        arrives_s = max(
            now_s + self.injector.delay_s(), self._busy_until_s.get(where, 0.0) + IN_ORDER_S
        )
        self._busy_until_s[where] = arrives_s
        return arrives_s
