"""With exactly once: takes a partition over when it is assigned, and again after each of its
transactions that failed.

Rule: once the group has handed a partition over, Kafka refuses transactions of the partition's
former worker. If that worker had begun a transaction, the takeover waits until that transaction is
committed or aborted. Then the committed position is read, and the work begins there. So no row is
published twice, not even by a worker that still believes that it owns the partition. Owner: the
assignments, which run `live` once for each assigned partition and cancel it when the partition is
handed back.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from penstock.core.rows.log_keys import of_place
from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient, Undecided
from penstock.lane.lane import Lane
from penstock.pipeline.transaction_pool import TransactionPool
from penstock.ports import Clock, Commit, Transactions, Where
from penstock.stages.publish import Publish
from penstock.stages.settle import TransactionRetry
from penstock.telemetry.worker import Telemetry

log = logging.getLogger(__name__)

# As long as an open transaction may still move the committed position, this is the pause before the
# position is read again.
UNDECIDED_S = 0.1


class Takeover:
    """`begin`: a function that opens a lane at a position. `end`: a function that closes a lane; it
    may be called twice for a lane. After `idle_s` without a release a lane commits its position
    alone. If the transactions of a partition fail for `patience_s`, the worker ends.
    """

    def __init__(
        self,
        transactions: Transactions,
        publish: Publish,
        begin: Callable[[Where, Commit], Lane],
        end: Callable[[Lane], None],
        clock: Clock,
        telemetry: Telemetry,
        jitter: Callable[[], float],
        *,
        idle_s: float,
        patience_s: float,
    ) -> None:
        self._positions = transactions.positions
        self.pool = TransactionPool(transactions.producers)
        self._publish = publish
        self._begin = begin
        self._end = end
        self._clock = clock
        self._telemetry = telemetry
        self._jitter = jitter
        self._idle_s = idle_s
        self._patience_s = patience_s

    async def live(self, where: Where, lane: Lane | None = None) -> None:
        """Work on the partition until its lane is closed or drains. After a failed transaction the
        partition is taken over again. `lane`: a lane that is open already, at a position that no
        open transaction can still move. If it is None, a lane is opened here.
        """
        retry = TransactionRetry(self._patience_s, self._clock, self._jitter)
        began_at: Commit | None = None
        while True:
            try:
                if lane is None and (lane := await self._begun(where)) is None:
                    return None
                # Also if only the answer to a transaction was lost, the position has moved.
                if began_at not in (None, lane.account.committed):
                    retry.went_through()
                began_at = lane.account.committed
                return await self._work(lane)
            except Transient as error:
                if lane is not None and lane.account.committed != began_at:
                    retry.went_through()
                log.warning("%s: %s", where, error, extra=of_place(where))
                # In a drain or a rebalance the partition is about to go: its next owner goes on.
                if lane is not None and (lane.draining or lane.suspended):
                    return None
                lane = None
                self._telemetry.retried("publish")
                self._telemetry.commit_failed()
                await asyncio.sleep(retry.pause_s(error))

    async def _begun(self, where: Where) -> Lane | None:
        """Open a lane at the committed position. None: the partition is no longer ours."""
        began_s, is_told = self._clock.now(), False
        while True:
            try:
                start = (await self._positions.rewind([where])).get(where)
                return None if start is None else self._begin(where, start)
            except Undecided as error:
                if not is_told:
                    log.info("%s waits: %s", where, error, extra=of_place(where))
                is_told = True
                # The broker ends a transaction by itself after its timeout. A transaction that is
                # still open after `patience_s` hangs, and people must end it.
                if self._clock.now() - began_s > self._patience_s:
                    raise Fatal(
                        f"no position for {self._patience_s:g} s: {error}. Look for it by "
                        "kafka-transactions.sh find-hanging",
                        exit_code=EXIT_UNREACHABLE,
                    ) from error
                await asyncio.sleep(UNDECIDED_S)

    async def _work(self, lane: Lane) -> None:
        transact = partial(self.pool.publish, lane.where)
        try:
            await self._publish.lane_in_transactions(
                lane, transact, lambda: self.pool.most_bytes, self._idle_s
            )
        finally:
            # A lane that stopped at a dead letter stays open, because the status page shows it, and
            # operators may say how it goes on.
            if lane.stopped is None:
                self._end(lane)
