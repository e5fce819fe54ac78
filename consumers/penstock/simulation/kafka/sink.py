"""The output topics as one worker's producer reaches them, in memory, slow and unreliable.

Rule: what is on the wire may still arrive after the worker's death. What was only accepted leaves
while the process runs, unless the worker forgets it before. Owner: the simulation, one per worker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import Fatal
from penstock.ports import Outgoing
from penstock.simulation.faults import FaultInjector
from penstock.simulation.worker_process import Process


class Accepted(NamedTuple):
    """`leave` is called when the batch goes on the wire. `append` appends it, and returns a
    function to call when the delivery report has reached the worker.
    """

    leave: Callable[[], None]
    append: Callable[[Outgoing], Callable[[], None]]


# Keeps two events of one connection in order on the loop's heap.
IN_ORDER_S = 1e-6
# How often a batch checks whether its process goes on.
LOOK_S = 0.5


@dataclass(eq=False)
class SimulatedSink:
    """This worker's producer. `accept` decides what happens to records that reach the broker. A
    slow producer keeps records for a while. `count`: how many partitions a topic has.
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
        if self.process.alive:  # a dead one would wait for ever
            await self.process.gate()
        self._accepted.clear()

    async def stop(self) -> None:
        return

    def _next_s(self, outgoing: Outgoing, what: str) -> float:
        """When the next event of this kind happens; never before the one before it."""
        where = (outgoing.topic, outgoing.partition, what)
        now_s = asyncio.get_running_loop().time()
        arrives_s = max(
            now_s + self.injector.delay_s(), self._busy_until_s.get(where, 0.0) + IN_ORDER_S
        )
        self._busy_until_s[where] = arrives_s
        return arrives_s
