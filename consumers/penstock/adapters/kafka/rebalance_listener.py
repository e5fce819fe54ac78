"""The rebalance listener that aiokafka calls.

Rule: before it joins, aiokafka takes all partitions away; after the join it gives some of them
back. So all are suspended first, and those that do not come back are revoked then. If the listener
fails, aiokafka only logs the failure and stays in the group: so the failure is kept, and the task
that polls raises it. Owner: the source.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from penstock.adapters.kafka.partition_numbers import Numbers
from penstock.adapters.kafka.starting_points import Places
from penstock.ports import Commit, Rebalance


class RebalancedSource(Protocol):
    """The methods of the source that a rebalance calls."""

    async def seek(self, starts: Mapping[int, Commit]) -> None: ...

    def now_ours(self, partitions: Collection[int]) -> None: ...

    def now_joining(self) -> None: ...

    def keep_failure(self, error: BaseException) -> None: ...


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(
        self, source: RebalancedSource, numbers: Numbers, places: Places, rebalance: Rebalance
    ) -> None:
        self._numbers = numbers
        self._source = source
        self._places = places
        self._rebalance = rebalance
        # If the topics changed during an assignment, aiokafka does not name all partitions that it
        # takes away.
        self._held: set[int] = set()
        self._suspended: set[int] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            numbers = self._held.union(self._numbers.number(where) for where in revoked)
            self._held.clear()
            self._suspended |= numbers
            await self._rebalance.suspended(numbers)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
        finally:
            self._source.now_joining()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        numbers = [self._numbers.number(where) for where in assigned]
        try:
            lost = self._suspended.difference(numbers)
            self._suspended.clear()
            if lost:
                await self._rebalance.revoked(lost)
            self._held.update(numbers)
            starts = await self._places.starts(numbers)
            kept = await self._rebalance.assigned(starts)
            # No read may come between `seek` and `now_ours`: its records would be dropped, because
            # the partitions are not ours yet, and the next read would begin after them.
            await self._source.seek(
                {**starts, **{number: Commit(offset) for number, offset in kept.items()}}
            )
            self._source.now_ours(numbers)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
