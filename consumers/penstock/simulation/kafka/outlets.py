"""Transactions of one worker, in memory: answers, dead letters and position become visible at once.

Rule: the broker knows only the epoch of a partition. A worker that opens an outlet fences all
earlier ones; a commit that was on the wire then has either arrived or never will. Owner: the
simulation, one of each per worker; the epochs are shared.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from penstock.errors import Fenced, Transient
from penstock.ports import Commit, Outgoing
from penstock.simulation.checks.history import History
from penstock.simulation.faults import Weather
from penstock.simulation.unreliable_services import Process

# While the broker is in trouble, closing an outlet may take this long.
CLOSE_S = 5.0
# Called when a transaction is committed, with its records and its position.
Land = Callable[[int, Sequence[Outgoing], Commit], None]


class SimulatedOutlets:
    def __init__(
        self,
        epochs: Counter[int],
        owns: Callable[[int], bool],
        land: Land,
        process: Process,
        weather: Weather,
        history: History,
        *,
        is_slow: bool,
    ) -> None:
        self._epochs = epochs
        self._owns = owns
        self._is_slow = is_slow
        self._history = history
        self._land = land
        self._process = process
        self._weather = weather

    async def open(self, partition: int) -> "SimulatedOutlet":
        if not self._owns(partition):
            raise self._history.broken(f"partition {partition} is taken over after its hand-back")
        await self._process.gate()
        await self._weather.pass_by()
        if self._weather.happens(self._weather.faults.commit_fails):
            raise Transient("no producer could be opened")
        self._epochs[partition] += 1
        epoch = self._epochs[partition]

        def land(outgoing: Sequence[Outgoing], position: Commit) -> bool:
            """Returns False if another outlet was opened meanwhile."""
            if self._epochs[partition] != epoch:
                self._history.note("fenced transaction", f"{partition} {position}")
                return False
            self._land(partition, outgoing, position)
            return True

        await self._weather.pass_by()
        await self._process.gate()
        return SimulatedOutlet(land, self._process, self._weather, is_slow=self._is_slow)


class SimulatedOutlet:
    """One transaction at a time. Whether it counts is decided when the commit arrives, or by
    `close`.
    """

    def __init__(
        self,
        land: Callable[[Sequence[Outgoing], Commit], bool],
        process: Process,
        weather: Weather,
        *,
        is_slow: bool,
    ) -> None:
        self._land = land
        self._is_slow = is_slow
        self._process = process
        self._weather = weather
        self._closed = False

    async def publish(self, outgoing: Sequence[Outgoing], position: Commit) -> None:
        await self._process.gate()
        loop = asyncio.get_running_loop()
        is_lost = self._weather.happens(self._weather.faults.commit_fails)
        arrived: asyncio.Future[bool] = loop.create_future()

        def arrive() -> None:
            is_cut = self._closed or self._process.is_cut
            landed = not (is_lost or is_cut) and self._land(outgoing, position)
            if not arrived.done():
                arrived.set_result(landed)

        loop.call_later(self._weather.delay_s(), arrive)
        landed = await arrived
        await self._weather.pass_by()
        await self._process.gate()
        if is_lost or self._weather.happens(self._weather.faults.answer_lost):
            raise Transient("the transaction was not answered")
        if not landed:
            raise Fenced("another outlet of the partition was opened")

    async def close(self) -> None:
        self._closed = True
        await self._weather.pass_by()
        if self._is_slow and self._weather.happens(self._weather.faults.commit_fails):
            await asyncio.sleep(CLOSE_S)
