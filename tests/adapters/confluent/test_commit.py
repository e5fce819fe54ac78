"""Commits of a member whose epoch has just changed."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock import config
from penstock.adapters.confluent.broker_calls import Questions
from penstock.adapters.confluent.handle import Handle
from penstock.adapters.confluent.member import check_release, member_options
from penstock.adapters.confluent.numbered import Numbered
from penstock.adapters.kafka.committed_positions import GroupPositions
from penstock.adapters.kafka.partition_numbers import Numbers
from penstock.errors import EXIT_USAGE, Fatal
from penstock.ports import Commit

T = TypeVar("T")


class Consumer:
    """Its commits fail with these codes, one after the other, then go well."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.commits = 0

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.commits += 1
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return offsets


class Handled(Handle):
    """Calls are made at once."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def call(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(work())
        except KafkaException as error:
            answer.set_exception(error)
        return answer


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
    kafka, consumer = config.Kafka(), Consumer(*codes)
    group, numbered = GroupPositions(kafka), Numbered(Numbers(kafka.inputs))
    try:
        await Questions(Handled(consumer), group, numbered, 60.0).commit({0: Commit(1)})
    finally:
        await group.stop()
    assert consumer.commits == commits


def test_what_the_broker_decides_is_not_asked_for() -> None:
    kafka = config.Kafka(client="confluent", group_protocol="consumer", instance_id="pod-7")
    options = member_options(kafka, 25_000, print)
    assert options["group.protocol"] == "consumer"
    assert options["group.instance.id"] == "pod-7"
    decided = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    assert not decided & options.keys()


def test_a_release_that_stands_still_in_such_a_group_is_refused() -> None:
    check_release("2.16.1")
    with pytest.raises(Fatal, match=r"here is 2\.15\.3") as refused:
        check_release("2.15.3")
    assert refused.value.exit_code == EXIT_USAGE
