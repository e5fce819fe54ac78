"""The transactional producers of one worker, in memory.

Rule: a group that has gone on without this member refuses the positions; otherwise it holds them
back until the transaction's end. A request on the wire may arrive after the worker's death, and a
worker that dies leaves its transaction open.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import Fenced, Transient
from penstock.ports import Commit, Outgoing, Where
from penstock.tools.simulation.checks.life import Life
from penstock.tools.simulation.kafka.group import Group, SimulatedTransaction
from penstock.tools.simulation.kafka.source import SimulatedSource
from penstock.tools.simulation.process_and_faults import FaultInjector, Process

# While the broker is in trouble, closing a producer may take this long.
CLOSE_S = 5.0


class Landing(NamedTuple):
    """What a transaction makes visible. `outgoing`: its records; `positions`: its positions, each
    with the life that it belongs to.
    """

    outgoing: Sequence[Outgoing]
    positions: Sequence[tuple[Life, Commit]]


# The type of a function that is called when a transaction is committed.
Land = Callable[[Landing], None]


@dataclass(eq=False)
class SimulatedProducers:
    source: SimulatedSource[Life]
    coordinator: Group
    land: Land
    process: Process
    injector: FaultInjector
    is_slow: bool
    _last: dict[int, SimulatedTransaction] = field(default_factory=dict, init=False)

    def group(self, where: Where) -> str:
        return "group"

    async def take_back_left(self) -> None:
        """Does nothing. In this world an open transaction holds back only the positions, and a
        source that asks for a position takes the open transaction back.
        """

    async def open(self, number: int) -> "SimulatedPassage":
        await self.process.gate()
        await self.injector.delay()
        if self.injector.happens(self.injector.faults.commit_fails):
            raise Transient("no producer could be opened")
        if number in self._last:
            self.coordinator.take_back(self._last[number])
        await self.injector.delay()
        await self.process.gate()
        return SimulatedPassage(self, number)

    async def publish(
        self, number: int, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        source, group, faults = self.source, self.coordinator, self.injector.faults
        await self.process.gate()
        lives = [(source.life(where), to) for where, to in positions.items()]
        opened = self._last[number] = group.begin(source, positions)
        is_lost = self.injector.happens(faults.commit_fails) and self.injector.happens(0.5)
        generation = source.generation
        is_taken = await self._request(lambda: not is_lost and group.stage(opened, generation))
        if is_lost or self.injector.happens(faults.answer_lost):
            raise Transient("the positions were not answered")
        if not is_taken:
            raise Fenced("the group has gone on without this member")
        for life, position in lives:
            life.committing(position)
        is_lost = self.injector.happens(faults.commit_fails)

        def end() -> bool:
            if is_lost or not group.decide(opened, self.injector.delay_s()):
                return False
            self.land(Landing(outgoing, lives))
            return True

        is_committed = await self._request(end)
        if is_lost or self.injector.happens(faults.answer_lost):
            raise Transient("the transaction was not answered")
        if not is_committed:
            raise Transient("another producer has taken the transaction back")

    async def _request(self, arrive: Callable[[], bool]) -> bool:
        """Send a request and wait for its answer. `arrive` is called when the request arrives. It
        arrives even if the worker dies, unless the worker's connection is cut.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def reach_broker() -> None:
            has_arrived = not self.process.is_cut and arrive()
            if not answer.done():
                answer.set_result(has_arrived)

        asyncio.get_running_loop().call_later(self.injector.delay_s(), reach_broker)
        reply = await answer
        await self.injector.delay()
        await self.process.gate()
        return reply

    async def close(self, number: int) -> None:
        """If the last transaction is open, take it back. The request to do so may be lost."""
        await self.injector.delay()
        is_lost = not self.process.alive or self.process.is_cut
        if self.is_slow and self.injector.happens(self.injector.faults.commit_fails):
            is_lost = True
            await asyncio.sleep(CLOSE_S)
        if number in self._last and not is_lost:
            self.coordinator.take_back(self._last[number])


class SimulatedPassage:
    def __init__(self, producers: SimulatedProducers, number: int) -> None:
        self._producers = producers
        self._number = number

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        await self._producers.publish(self._number, outgoing, positions)

    async def close(self) -> None:
        await self._producers.close(self._number)
