"""Exactly once: decides which of the worker's producers carries the answers of which partitions.

Rule: all releases that wait when a producer becomes free go into one transaction. A partition has
only one release under way at a time, so its answers stay in order, whichever producer carries them.
If a transaction fails, each of its partitions goes on from the position that Kafka has, in
transactions of its own, until one succeeds; at most half of the producers carry such, so that
partitions that always fail do not take the others down with them. One that the broker did not end
in time makes the next ones smaller. If the broker has forgotten one producer, all are opened anew
at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from copy import copy
from functools import partial
from typing import Any

from penstock.errors import Expired, Fenced, PenstockError, Transient, Unreachable
from penstock.ports import Commit, Outgoing, Passage, Producers, Where

log = logging.getLogger(__name__)

# The number of producers of each worker. With more producers, transactions would be smaller, and a
# failed transaction would take fewer partitions along; but each producer has up to three
# connections.
PRODUCERS = 8
# At most this many producers carry partitions whose last transaction failed.
SUSPECTS = PRODUCERS // 2
# A transaction that has reached this size or this number of partitions takes no more releases. The
# limits hold because a transaction must end well within its timeout, and at its end the broker
# writes a marker to each of its partitions.
TRANSACTION_BYTES = 8 << 20
TRANSACTION_PARTITIONS = 64
# A pool begins with transactions of this size. A broker that a quota slows down takes the first
# ones at once, and says only then how long it rests.
FIRST_BYTES = 256 << 10
# After a transaction that did not end in time, the next ones have at most a quarter of its bytes:
# so the third try has a sixteenth, well before `kafka.timeout_ms` is over. Below the least size a
# transaction is one release.
SHRINK_TIMES = 4
LEAST_BYTES = 16 << 10
# A transaction that fills at least half of the limit and ends within this time doubles it. It is a
# fifth of the time after which a transaction is given up.
SOON_S = 6.0


class _Share:
    """What one partition adds to a transaction."""

    def __init__(self, where: Where, outgoing: Sequence[Outgoing], position: Commit) -> None:
        self.where = where
        self.outgoing = outgoing
        self.position = position
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transaction: _Transaction | None = None

    @property
    def cost_bytes(self) -> int:
        return sum(sum(map(len, out.values)) for out in self.outgoing)

    def ended(self, error: PenstockError | None = None) -> None:
        if self.done.done():
            return  # the lane's task was cancelled
        if error is None:
            self.done.set_result(None)
        else:
            # Each lane raises its own copy of the exception: if several tasks raised one exception,
            # it would collect the tracebacks of all these tasks.
            self.done.set_exception(copy(error))


class _Transaction:
    """One transaction of producer `number`. Without shares it only opens the producer."""

    def __init__(self, number: int, shares: Sequence[_Share]) -> None:
        self.number = number
        self.shares = shares
        self.task: asyncio.Task[None]

    def begin(self, task: asyncio.Task[None]) -> None:
        self.task = task
        for share in self.shares:
            share.transaction = self

    async def take_back(self) -> None:
        """Cancel the transaction and wait for its end. When this returns, the transaction publishes
        nothing more.
        """
        self.cancel()
        await asyncio.wait([self.task])

    def cancel(self) -> None:
        """Cancel the task only once: a second cancellation would disturb the closing of its
        producer.
        """
        if not self.task.cancelling():
            self.task.cancel()


class TransactionPool:
    """`tasks`: the task group in which the transactions run."""

    tasks: asyncio.TaskGroup

    def __init__(self, producers: Producers) -> None:
        self._producers = producers
        self._open: dict[int, Passage] = {}
        # The producer that has been idle longest stands first. If a producer became idle only now,
        # the broker may still be writing the markers of its last transaction, and its next
        # transaction would wait until they are written.
        self._idle = deque(range(PRODUCERS))
        self._waiting: dict[_Share, None] = {}
        self._suspects: set[Where] = set()
        self._running: set[_Transaction] = set()
        self._is_stopping = False
        self._alone = 0
        self._expired: set[int] = set()
        # The most bytes of a transaction now, and so of a partition's release.
        self.most_bytes = FIRST_BYTES
        self._is_looking = False
        self._taking_back: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Open the producers that are not open yet, so that the first answers need not wait for a
        producer. When a producer is opened, the broker takes back the transaction that a former
        process left open under the name of this producer.
        """
        closed = [number for number in self._idle if not self._is_ready(number)]
        for number in closed:
            self._idle.remove(number)
            self._begin(_Transaction(number, ()))

    def take_back_left(self) -> None:
        """Take back the open transactions of workers that are gone, because partitions that have
        just come to us may have belonged to them.
        """
        if self._taking_back is not None:
            self._taking_back.cancel()
        self._taking_back = self._started(self._producers.take_back_left())

    async def publish(self, where: Where, outgoing: Sequence[Outgoing], position: Commit) -> None:
        """Publish records and the partition's new position. Both become visible together, or
        neither does. Only one task at a time may call this for the same partition.

        After a failure or a cancellation the caller does not know whether records and position
        became visible: `Source.rewind` says where to go on. If the caller was cancelled before
        the transaction was decided, the transaction never becomes visible.

        Raises `Fenced`, `Transient`, `Fatal`.
        """
        share = _Share(where, outgoing, position)
        self._waiting[share] = None
        self._look_soon()
        try:
            await share.done
        except asyncio.CancelledError:
            self._waiting.pop(share, None)
            if share.transaction is not None:
                await share.transaction.take_back()
            raise

    def _look_soon(self) -> None:
        """Begin the transactions that are due, but only after this turn of the event loop, so that
        lanes whose answers came in one batch share a transaction.
        """
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        while self._idle and (shares := self._next()):
            for share in shares:
                del self._waiting[share]
            self._begin(_Transaction(self._take(), shares))

    def _take(self) -> int:
        """Take an idle producer, and return its number. An open producer is preferred, because
        opening one may take long.
        """
        number = next(filter(self._is_ready, self._idle), self._idle[0])
        self._idle.remove(number)
        return number

    def _is_ready(self, number: int) -> bool:
        return number in self._open and number not in self._expired

    def _next(self) -> list[_Share]:
        """The oldest share that may leave now, and all shares that may leave in the same
        transaction.
        """
        shares: list[_Share] = []
        room_bytes, group = self.most_bytes, ""
        for share in self._waiting:
            if share.where in self._suspects:
                if not shares and self._alone < SUSPECTS:
                    return [share]
                continue
            if not shares:
                group = self._producers.group(share.where)
            elif room_bytes <= 0 or len(shares) == TRANSACTION_PARTITIONS:
                break
            elif self._producers.group(share.where) != group:
                continue
            shares.append(share)
            room_bytes -= share.cost_bytes
        return shares

    def _begin(self, transaction: _Transaction) -> None:
        work = self._carry(transaction)
        if (task := self._started(work)) is None:
            return
        transaction.begin(task)
        is_alone = self._is_suspicious(transaction)
        self._alone += is_alone
        self._running.add(transaction)
        transaction.task.add_done_callback(partial(self._end, transaction, is_alone))

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task for this work. Returns None if another task has failed, because then the
        task group takes no more tasks.
        """
        try:
            return self.tasks.create_task(work)
        except RuntimeError:
            work.close()
            return None

    def _is_suspicious(self, transaction: _Transaction) -> bool:
        return any(share.where in self._suspects for share in transaction.shares)

    async def _carry(self, transaction: _Transaction) -> None:
        number, shares = transaction.number, transaction.shares
        is_spent = True
        try:
            if not self._is_ready(number):
                await self._open_anew(number)
            if shares:
                await self._publish(number, shares)
            is_spent = False
        except Transient as error:
            # If a transaction was fenced, its content is not to blame: one of its partitions has
            # another owner now.
            if not isinstance(error, Fenced):
                self._suspects.update(share.where for share in shares)
            if isinstance(error, Unreachable) and shares:
                less_bytes = min(self.most_bytes, _bytes_of(shares)) // SHRINK_TIMES
                self.most_bytes = max(LEAST_BYTES, less_bytes)
            failure: PenstockError = error
        except PenstockError as error:
            if not shares:
                raise
            failure = error
        finally:
            # After a failure or a cancellation it is not known what the producer still holds, so
            # the producer is not used again.
            if is_spent:
                await self._close(number)
        if is_spent:
            for share in shares:
                share.ended(failure)
            return
        self._suspects.difference_update(share.where for share in shares)
        for share in shares:
            share.ended()

    async def _open_anew(self, number: int) -> None:
        await self._close(number)
        self._expired.discard(number)
        self._open[number] = await self._producers.open(number)

    async def _publish(self, number: int, shares: Sequence[_Share]) -> None:
        outgoing = [out for share in shares for out in share.outgoing]
        positions = {share.where: share.position for share in shares}
        began_s = _now_s()
        try:
            await self._open[number].publish(outgoing, positions)
        except Expired as error:
            log.info("%s; all producers are opened anew", error)
            self._expired.update(self._open)
            self.open()
            await self._open_anew(number)
            await self._open[number].publish(outgoing, positions)
        is_filled = _bytes_of(shares) >= self.most_bytes // 2
        if is_filled and _now_s() - began_s < SOON_S:
            self.most_bytes = min(TRANSACTION_BYTES, 2 * self.most_bytes)

    def _end(self, transaction: _Transaction, is_alone: bool, task: asyncio.Task[None]) -> None:
        """Called when the task of a transaction has ended, even if the task was cancelled before it
        began. The producer of the transaction is free now.

        If the producer has failed, it is opened again at once, because it may have left its last
        transaction open. Readers of committed records wait until the opening of the producer takes
        that transaction back.
        """
        self._alone -= is_alone
        self._running.discard(transaction)
        if transaction.shares and transaction.number not in self._open and not self._is_stopping:
            self._begin(_Transaction(transaction.number, ()))
        else:
            self._idle.append(transaction.number)
        if task.cancelled():
            for share in transaction.shares:
                share.ended(Transient("a transaction was taken back with that of another lane"))
        if self._waiting:
            self._look_soon()

    async def _close(self, number: int) -> None:
        if (passage := self._open.pop(number, None)) is not None:
            await passage.close()

    def stop(self) -> None:
        """Call this once no lane is left. Two kinds of tasks may still run then: those that open a
        producer, and the one that searches for transactions of workers that are gone. Both kinds
        are cancelled.
        """
        self._is_stopping = True
        if self._taking_back is not None:
            self._taking_back.cancel()
        for transaction in self._running:
            transaction.cancel()

    async def close(self) -> None:
        """Close all producers. Call this once no transaction runs."""
        async with asyncio.TaskGroup() as tasks:
            for number in list(self._open):
                tasks.create_task(self._close(number))


def _bytes_of(shares: Sequence[_Share]) -> int:
    return sum(share.cost_bytes for share in shares)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
