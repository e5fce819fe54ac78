"""What aiokafka calls in a rebalance, and which partitions are suspended and revoked then."""

from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import TopicPartition

from penstock.adapters.kafka.assigned_partitions import Listener, Starts
from penstock.ports import Commit, Where
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P1, P2


class Group:
    """Source, places and lanes: notes what each rebalance said."""

    def __init__(self, made_again: Collection[Where] = ()) -> None:
        self.said: list[tuple[str, set[int]]] = []
        self._made_again = made_again

    async def starts(self, partitions: Collection[Where]) -> Starts:
        return Starts({partition: Commit(0) for partition in partitions}, self._made_again)

    async def suspended(self, partitions: Collection[Where]) -> None:
        self.said.append(("suspended", {partition.partition for partition in partitions}))

    async def revoked(self, partitions: Collection[Where]) -> None:
        self.said.append(("revoked", {partition.partition for partition in partitions}))

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.said.append(("assigned", {start.partition for start in starts}))
        return {}

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        return

    def now_ours(self, partitions: Collection[Where]) -> None:
        return

    def now_joining(self) -> None:
        return

    def keep_failure(self, error: BaseException) -> None:
        raise AssertionError from error


def listener(group: Any) -> Listener:
    return Listener(group, group, group)


def parts(*numbers: int) -> set[TopicPartition]:
    return {TopicPartition("refs", number) for number in numbers}


@virtual_time
async def test_what_does_not_come_back_is_revoked() -> None:
    group = Group()
    ours = listener(group)
    await ours.on_partitions_assigned(parts(0, 1))
    await ours.on_partitions_revoked(parts(0, 1))
    await ours.on_partitions_assigned(parts(1, 2))
    assert group.said[1:] == [("suspended", {0, 1}), ("revoked", {0}), ("assigned", {1, 2})]


@virtual_time
async def test_all_that_is_held_is_suspended_though_the_client_names_nothing() -> None:
    """aiokafka does so if the set of topics changed while an assignment was being made."""
    group = Group()
    ours = listener(group)
    await ours.on_partitions_assigned(parts(0, 1))
    await ours.on_partitions_revoked(set())
    await ours.on_partitions_assigned(parts(1))
    assert group.said[1:] == [("suspended", {0, 1}), ("revoked", {0}), ("assigned", {1})]


@virtual_time
async def test_work_on_a_topic_that_was_made_again_is_revoked_though_its_partition_comes_back() -> (
    None
):
    group = Group(made_again=[P1, P2])
    ours = listener(group)
    await ours.on_partitions_assigned(parts(0, 1))
    await ours.on_partitions_revoked(parts(0, 1))
    await ours.on_partitions_assigned(parts(0, 1, 2))
    assert group.said[1:] == [("suspended", {0, 1}), ("revoked", {1}), ("assigned", {0, 1, 2})]
