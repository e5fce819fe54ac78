"""Turns deliveries into commits.

Rule: what is committed is what the lanes' ledgers say, one request for all partitions; nothing is
committed for a lane that is closed. A commit that fails is tried again with the next one, as the
ledger only moves forward; a broker that answers none for too long ends the process.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from consumers.errors import EXIT_UNREACHABLE, Fatal, Transient
from consumers.lane import Lane
from consumers.ports import Clock, Source
from consumers.services.outage import Outage
from consumers.telemetry.worker import Telemetry

# One commit may hang for 5 s, and what is left of a stop's 10 s is for leaving.
LAST_S = 4.0
LAST_PAUSE_S = 0.2


class Settle:
    """Commits every `interval_s`, and at once when a lane is handed back."""

    def __init__(
        self,
        source: Source,
        lanes: Mapping[int, Lane],
        telemetry: Telemetry,
        outage: Outage,
        clock: Clock,
        *,
        interval_s: float,
    ) -> None:
        self._source = source
        self._lanes = lanes
        self._telemetry = telemetry
        self._outage = outage
        self._clock = clock
        self._interval_s = interval_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.try_to_commit(list(self._lanes.values()))

    async def try_to_commit(self, lanes: Iterable[Lane]) -> None:
        """What fails is logged and left to the next commit."""
        try:
            await self.commit(lanes)
        except Transient as error:
            self._telemetry.retried("settle")
            self._outage.unreachable(error)

    async def commit_at_last(self, lanes: Sequence[Lane]) -> None:
        """At a stop: no later one makes up for it. Raises `Fatal` if it fails for too long."""
        began_s = self._clock.now()
        while True:
            try:
                await self.commit(lanes)
                return
            except Transient as error:
                self._telemetry.retried("settle")
                if self._clock.now() - began_s >= LAST_S:
                    raise Fatal(
                        f"the last commit failed, what it says will be repeated: {error}",
                        exit_code=EXIT_UNREACHABLE,
                    ) from error
                await asyncio.sleep(LAST_PAUSE_S)

    async def commit(self, lanes: Iterable[Lane]) -> None:
        """One request, if anything moved. Raises `Transient`."""
        due = {lane: position for lane in lanes if (position := lane.due) is not None}
        if not due:
            return
        await self._source.commit({lane.number: position for lane, position in due.items()})
        self._outage.answered()
        for lane, position in due.items():
            lane.committed_up_to(position)
        self._telemetry.committed()
