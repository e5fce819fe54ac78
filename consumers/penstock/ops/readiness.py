"""What `/readyz` answers: is the worker ready, and if not, why?

Rule: a reason is one line for people. It is made of facts that the worker knows anyway, so no
request waits for a service. Owner: the worker's page.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final

from penstock.core.order.stall import Stall, Stalled
from penstock.ops.http_server import NO_PARTITION
from penstock.ops.service_answers import ServiceAnswers
from penstock.pipeline.life import Pipeline
from penstock.process.stopping import meanwhile

LOOK_EVERY_S: Final = 5.0
# A partition that has not moved for this share of `limits.stall_ms` makes the worker unready. After
# the whole of `limits.stall_ms` the watchdog ends the worker.
STALL_SHARE: Final = 0.5
# If Kafka has not answered for this many sessions, the group has given this worker's partitions to
# others.
SESSIONS: Final = 2


class Readiness:
    """Says whether the worker is ready: a model answers, a partition is assigned, and the worker's
    work moves. While a service is known to be away, work that waits for that service counts as
    moving. `watching` must run: it notices work that does not move.
    """

    def __init__(self, pipeline: Pipeline, services: ServiceAnswers, session_s: float) -> None:
        self._pipeline = pipeline
        self._services = services
        self._away_s = SESSIONS * session_s
        self._stalled: Stalled | None = None

    def why_not(self) -> str | None:
        """Why the worker is not ready, in a line for people. None: the worker is ready."""
        lanes = self._pipeline.wiring.lanes
        # The model is looked at first, so that a member without a partition tells whether its model
        # answers.
        if not any(self._services.answers.values()):
            return "the model does not answer\n"
        if not lanes:
            return NO_PARTITION
        if all(lane.stopped for lane in lanes.values()):
            return "".join(f"line stopped: {stop}\n" for stop in self._pipeline.stopped)
        away_s = self._services.kafka_away_s
        if away_s is not None and away_s > self._away_s:
            return f"Kafka has not answered for {away_s:.0f} s: {self._services.why_kafka}\n"
        if self._stalled is not None and self._stalled.partition in lanes:
            lane, snapshot = lanes[self._stalled.partition], self._stalled.snapshot
            return (
                f"{lane.topic}/{lane.partition} has not moved for {self._stalled.still_s:.0f} s: "
                f"{snapshot.stage} holds offset {snapshot.offset}\n"
            )
        return None

    def watching(self) -> AbstractAsyncContextManager[None]:
        """While the body runs, look for work that does not move."""
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
