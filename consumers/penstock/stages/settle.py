"""Turns deliveries into commits, and says when a failed commit is tried again or given up.

Rule: with at least once, `Settle` commits the positions of all open lanes in one request. A failed
commit does no harm, because positions only move forward and the next commit covers them. If no
commit succeeds for too long, the process ends. Owner: the pipeline.

With exactly once, and in a rekeyer, transactions carry the positions. `TransactionRetry` says how
long to wait after a failed transaction. Its patience counts from the first failure since a
transaction last went through. A member that was fenced waits until it knows whether it still owns
its partitions; its fenced transaction does not count as a failure.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.core.health.retries import Backoff
from penstock.errors import EXIT_UNREACHABLE, Fatal, Fenced, Transient
from penstock.failures.outage import Outage
from penstock.lane.lane import Lane
from penstock.ports import Clock, InputSource, Where
from penstock.telemetry.worker import Telemetry

# A stop repeats its last commit until this time is over. A stop has 10 s in all: one more commit
# may begin at the end of this time and hang for 5 s, and the remaining second is for leaving the
# group.
LAST_S = 4.0
LAST_PAUSE_S = 0.2


class Settle:
    """Commits every `interval_s`, and at once when a lane is suspended or handed back."""

    def __init__(
        self,
        source: InputSource,
        lanes: Mapping[Where, Lane],
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
            # Suspended lanes are left out: they were committed before the rebalance. A commit
            # during the rebalance would come too late, and would begin another rebalance.
            await self.try_to_commit([lane for lane in self._lanes.values() if not lane.suspended])
            # The partition of a failed commit may be another worker's now.
            if self._outage.why is not None and not any(map(_is_due, self._lanes.values())):
                self._outage.forget()

    async def try_to_commit(self, lanes: Iterable[Lane]) -> None:
        """Commit once. A failure is only logged, because the next commit makes up for it."""
        began_s = self._clock.now()
        try:
            await self.commit(lanes)
        except Transient as error:
            self._telemetry.retried("settle")
            self._telemetry.commit_failed()
            self._outage.unreachable(error, self._clock.now() - began_s)

    async def commit_at_last(self, lanes: Sequence[Lane]) -> None:
        """The last commit of a stop. No later commit could make up for it, so a failed commit is
        tried again. If all tries within `LAST_S` fail, `Fatal` is raised.
        """
        began_s = self._clock.now()
        while True:
            try:
                await self.commit(lanes)
                return
            except Transient as error:
                self._telemetry.retried("settle")
                self._telemetry.commit_failed()
                if self._clock.now() - began_s >= LAST_S:
                    raise Fatal(
                        f"the last commit failed; its rows will be repeated: {error}",
                        exit_code=EXIT_UNREACHABLE,
                    ) from error
                await asyncio.sleep(LAST_PAUSE_S)

    async def commit(self, lanes: Iterable[Lane]) -> None:
        """Commit all positions that moved, in one request. Raises `Transient`."""
        due = {lane: position for lane in lanes if (position := lane.due) is not None}
        if not due:
            return
        await self._source.commit({lane.where: position for lane, position in due.items()})
        if self._outage.why is not None:
            self._outage.answered()
        for lane, position in due.items():
            lane.account.committed = position
        self._telemetry.committed()


def _is_due(lane: Lane) -> bool:
    return lane.due is not None


# A fenced member that has lost its partitions learns of the loss with its next heartbeat
# (`kafka.heartbeat_ms`, 500 by default). If it still has the partitions after this time, it is
# their owner.
FENCED_WAIT_S = 5.0
# Failures that are further apart than this, and than twice the patience, are two troubles: no try
# takes so long, so there was nothing to do between them.
APART_S = 60.0


class TransactionRetry:
    """If transactions fail for `patience_s`, the process ends."""

    def __init__(self, patience_s: float, clock: Clock, jitter: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._jitter = jitter
        self._backoff = Backoff(first_s=0.2, most_s=5.0, give_up_s=patience_s)
        self._failures = 0
        self._since_s = self._last_s = 0.0

    def went_through(self) -> None:
        self._failures = 0

    def pause_s(self, error: Transient) -> float:
        """Seconds until the next transaction after this failure. Raises `Fatal`."""
        if isinstance(error, Fenced):
            return FENCED_WAIT_S
        now_s = self._clock.now()
        if now_s - self._last_s > max(APART_S, 2 * self._patience_s):
            self._failures = 0
        self._last_s = now_s
        if not self._failures:
            self._since_s = now_s
        self._failures += 1
        pause_s = self._backoff.delay_s(self._failures, now_s - self._since_s, self._jitter())
        if pause_s is None:
            raise Fatal(
                f"no transaction for {self._patience_s:g} s: {error}",
                exit_code=EXIT_UNREACHABLE,
            ) from error
        return pause_s
