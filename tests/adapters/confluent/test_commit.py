"""Commits of a member whose epoch has just changed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock import config
from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.member_options import check_release, member_options
from penstock.adapters.confluent.reads import AssignedPartitions
from penstock.adapters.confluent.source import BrokerCalls
from penstock.adapters.kafka.positions import GroupPositions
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Commit, Where
from tests.support.partitions import P0, P1, P2

T = TypeVar("T")


class Consumer:
    """Its commits fail with these codes, one after the other, then go well."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.tried: list[set[int]] = []
        self.after_a_refusal: Callable[[], None] = lambda: None

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.tried.append({offset.partition for offset in offsets})
        if self.codes:
            self.after_a_refusal()
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return offsets


class Handled(Handle):
    """Calls are made at once."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def call(self, work: Callable[[], T], *, apart: bool = False) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(work())
        except KafkaException as error:
            answer.set_exception(error)
        return answer


def ours_of(*partitions: Where) -> AssignedPartitions:
    ours = AssignedPartitions()
    ours.begin(partitions)
    return ours


@asynccontextmanager
async def questions(consumer: Consumer, ours: AssignedPartitions) -> AsyncIterator[BrokerCalls]:
    kafka = config.Kafka()
    group = GroupPositions(kafka)
    try:
        yield BrokerCalls(Handled(consumer), ours, group, kafka.group, 60.0)
    finally:
        await group.stop()


@pytest.mark.parametrize(
    ("codes", "commits"),
    [
        ([KafkaError.STALE_MEMBER_EPOCH] * 2, 3),
        ([KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH], 2),
    ],
)
async def test_a_stale_epoch_is_tried_again_and_a_fenced_one_is_not(
    codes: list[int], commits: int
) -> None:
    consumer = Consumer(*codes)
    async with questions(consumer, ours_of(P0)) as asked:
        await asked.commit({P0: Commit(1)})
    assert len(consumer.tried) == commits


@pytest.mark.parametrize("comes_back", [False, True])
async def test_under_a_new_epoch_nothing_of_a_partition_that_was_revoked_is_committed(
    comes_back: bool,
) -> None:
    consumer, ours = Consumer(KafkaError.STALE_MEMBER_EPOCH), ours_of(P0, P1)

    def revoke() -> None:
        ours.end([P0])
        if comes_back:  # its owner in between may have got further
            ours.begin([P0])

    consumer.after_a_refusal = revoke
    async with questions(consumer, ours) as asked:
        await asked.commit({P0: Commit(1), P1: Commit(1), P2: Commit(1)})
    assert consumer.tried == [{0, 1}, {1}]


async def test_without_a_partition_of_ours_nothing_is_asked() -> None:
    consumer = Consumer()
    async with questions(consumer, ours_of()) as asked:
        await asked.commit({P0: Commit(1)})
    assert consumer.tried == []


def test_what_the_broker_decides_is_not_asked_for() -> None:
    kafka = config.Kafka(client="confluent", group_protocol="consumer", instance_id="pod-7")
    options = member_options(kafka, {}, 25_000, print)
    assert options["group.protocol"] == "consumer"
    assert options["group.instance.id"] == "pod-7"
    decided = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    assert not decided & options.keys()


def test_a_release_that_stands_still_in_such_a_group_is_refused() -> None:
    check_release("2.16.1")
    with pytest.raises(Fatal, match=r"here is 2\.15\.3") as refused:
        check_release("2.15.3")
    assert refused.value.exit_code == EXIT_USAGE
