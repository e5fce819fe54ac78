"""Exactly once: how a worker takes over a partition, and again after a failed transaction.

Rule: fence, read the committed position, go there, work. In this order no row is published twice,
even if another worker published before or still believes that it owns the partition; the worst that
two owners can do is to stop each other. Owner: the pipeline runs `live` once per assigned partition
and cancels it when the partition is handed back.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.core.health.retry import Backoff
from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, EXIT_USAGE, Fatal, Fenced, Transient
from penstock.lane.lane import Lane
from penstock.ports import Clock, Commit, Outlet, Transactions
from penstock.stages.publish import Publish
from penstock.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

# Each has a producer of its own: 0.3 MB, 10 ms to start, and three connections, of the 1,024 files
# that a process usually may have open.
MAX_PARTITIONS = 100
# A member that lost its partitions learns it with the next heartbeat, 2 s apart. So a worker that
# still has the partition after two of them is its owner.
FENCED_WAIT_S = 5.0


class Takeover:
    """`begin` opens a lane at a position, `end` closes it (safe to call twice). A partition whose
    transactions fail for `patience_s` ends the worker.
    """

    def __init__(
        self,
        transactions: Transactions,
        publish: Publish,
        begin: Callable[[int, Commit], Lane],
        end: Callable[[Lane], None],
        clock: Clock,
        telemetry: Telemetry,
        jitter: Callable[[], float],
        *,
        idle_s: float,
        patience_s: float,
    ) -> None:
        self._outlets, self._positions = transactions
        self._publish = publish
        self._begin = begin
        self._end = end
        self._clock = clock
        self._telemetry = telemetry
        self._jitter = jitter
        self._idle_s = idle_s
        self._backoff = Backoff(first_s=0.2, most_s=5.0, give_up_s=patience_s)

    async def live(self, partition: int) -> None:
        """Work on the partition until its lane is closed or drains; a failed transaction has it
        taken over again.
        """
        failures, since_s = 0, 0.0
        while True:
            lane: Lane | None = None
            try:
                outlet = await self._outlets.open(partition)
                try:
                    start = (await self._positions.rewind([partition])).get(partition)
                    if start is None:
                        return None
                    lane = self._begin(partition, start)
                    return await self._work(lane, outlet)
                finally:
                    await outlet.close()
            except Transient as error:
                if not failures or (lane is not None and lane.committed != start):
                    failures, since_s = 0, self._clock.now()
                failures += 1
                keys = of_place(*self._positions.where(partition))
                log.warning("partition %d: %s", partition, error, extra=keys)
                if lane is not None and (lane.draining or lane.suspended):
                    return None
                await asyncio.sleep(self._wait_s(error, failures, since_s))

    async def _work(self, lane: Lane, outlet: Outlet) -> None:
        try:
            await self._publish.lane_in_transactions(lane, outlet, self._idle_s)
        finally:
            if lane.stopped is None:
                self._end(lane)

    def _wait_s(self, error: Transient, failures: int, since_s: float) -> float:
        self._telemetry.retried("publish")
        self._telemetry.commit_failed()
        if isinstance(error, Fenced):
            return FENCED_WAIT_S
        delay_s = self._backoff.delay_s(failures, self._clock.now() - since_s, self._jitter())
        if delay_s is None:
            raise Fatal(
                f"no transaction for {self._backoff.give_up_s:g} s: {error}",
                exit_code=EXIT_UNREACHABLE,
            ) from error
        return delay_s


def check_count(partitions: int) -> None:
    if partitions > MAX_PARTITIONS:
        raise Fatal(
            f"{partitions} partitions for one worker: delivery.guarantee = 'exactly_once' takes at "
            f"most {MAX_PARTITIONS}, a producer each. Start more workers, or use fewer partitions.",
            exit_code=EXIT_USAGE,
        )
