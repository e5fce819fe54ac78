"""The rebalance listener that aiokafka calls.

Rule: aiokafka only logs a listener's failure and stays in the group. So the failure is kept, and
the task that polls raises it. Owner: the source.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from penstock.adapters.kafka.partition_numbers import Numbers
from penstock.adapters.kafka.starting_points import Places
from penstock.ports import Commit, Rebalance


class Membership(Protocol):
    """The methods of the source that a rebalance calls."""

    async def seek(self, starts: Mapping[int, Commit]) -> None: ...

    def now_ours(self, partitions: Collection[int]) -> None: ...

    def now_joining(self) -> None: ...

    def keep_failure(self, error: BaseException) -> None: ...


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(
        self, source: Membership, numbers: Numbers, places: Places, rebalance: Rebalance
    ) -> None:
        self._numbers = numbers
        self._source = source
        self._places = places
        self._rebalance = rebalance

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            await self._rebalance.revoked([self._numbers.number(where) for where in revoked])
        except BaseException as error:
            self._source.keep_failure(error)
            raise
        finally:
            self._source.now_joining()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        numbers = [self._numbers.number(where) for where in assigned]
        try:
            starts = await self._places.starts(numbers)
            await self._source.seek(starts)
            await self._rebalance.assigned(starts)
            self._source.now_ours(numbers)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
