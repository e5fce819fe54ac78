"""Is the worker ready: assigned and moving, or with nothing to do?

Rule: a reason why not is one line for people. Nothing is asked for it: it is made of what is known
anyway. While a service is known to be away, work that waits for it moves. Owner: the health page.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final

from penstock.core.order.stall import Stall, Stalled
from penstock.ops.listening import NO_PARTITION
from penstock.ops.lookout import Lookout
from penstock.pipeline.life import Pipeline
from penstock.process.stopping import meanwhile

LOOK_EVERY_S: Final = 5.0
# The watchdog ends the worker after all of `limits.stall_ms`.
STALL_SHARE: Final = 0.5
# By then the group has given this worker's partitions to others.
SESSIONS: Final = 2


class Readiness:
    """`why_not`: None while it is ready; whether work moves is looked at while `watching`."""

    def __init__(self, pipeline: Pipeline, lookout: Lookout, session_s: float) -> None:
        self._pipeline = pipeline
        self._lookout = lookout
        self._away_s = SESSIONS * session_s
        self._stalled: Stalled | None = None

    def why_not(self) -> str | None:
        lanes = self._pipeline.wiring.lanes
        # The model first: a member without a partition still tells whether its model answers.
        if not any(self._lookout.answers.values()):
            return "the model does not answer\n"
        if not lanes:
            return NO_PARTITION
        if all(lane.stopped for lane in lanes.values()):
            return "".join(f"line stopped: {stop}\n" for stop in self._pipeline.stopped)
        away_s = self._lookout.kafka_away_s
        if away_s is not None and away_s > self._away_s:
            return f"Kafka has not answered for {away_s:.0f} s: {self._lookout.why_kafka}\n"
        if self._stalled is not None and self._stalled.partition in lanes:
            lane, snapshot = lanes[self._stalled.partition], self._stalled.snapshot
            return (
                f"{lane.topic}/{lane.partition} has not moved for {self._stalled.still_s:.0f} s: "
                f"{snapshot.stage} holds offset {snapshot.offset}\n"
            )
        return None

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Look while the body runs."""
        return meanwhile(self._look_forever())

    async def _look_forever(self) -> None:
        wiring = self._pipeline.wiring
        clock, stall_s = wiring.adapters.clock, wiring.settings.times.stall_s
        if stall_s is None:
            return
        stall = Stall(stall_s * STALL_SHARE, LOOK_EVERY_S, clock.now())
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            snapshots = {number: lane.snapshot for number, lane in wiring.lanes.items()}
            self._stalled = stall.look(clock.now(), snapshots, wiring.telemetry.retries)
