"""Ends a worker that owes answers and makes no progress.

Rule: it only looks, a few times within the limit, at counters that exist anyway. To end a worker
loses no answers, because the next worker begins at the last commit. Owner: the pipeline.
"""

import asyncio
from collections.abc import Mapping

from penstock.core.order.stall import Stall
from penstock.errors import EXIT_UNREACHABLE, Fatal
from penstock.lane.lane import Lane
from penstock.ports import Clock
from penstock.telemetry.worker import Telemetry

# How many times the watchdog looks within the limit.
LOOKS = 10


class Watchdog:
    """`limit_s`: after this time without any progress the worker ends."""

    def __init__(
        self, lanes: Mapping[int, Lane], clock: Clock, telemetry: Telemetry, *, limit_s: float
    ) -> None:
        self._lanes = lanes
        self._clock = clock
        self._telemetry = telemetry
        self._limit_s = limit_s

    async def run(self) -> None:
        look_s = self._limit_s / LOOKS
        stall = Stall(self._limit_s, look_s, self._clock.now())
        while True:
            await asyncio.sleep(look_s)
            snapshots = {partition: lane.snapshot for partition, lane in self._lanes.items()}
            found = stall.look(self._clock.now(), snapshots, self._telemetry.retries)
            if found is not None:
                lane = self._lanes[found.partition]
                raise Fatal(
                    f"{lane.topic}/{lane.partition} stands still since {found.still_s:.0f} s "
                    f"(limits.stall_ms): {found.snapshot.stage} holds offset "
                    f"{found.snapshot.offset}.\n"
                    f"{lane!r}.\n"
                    "Nothing is lost: start the worker again, it goes on at the last commit.",
                    exit_code=EXIT_UNREACHABLE,
                )
