"""The group protocol `consumer` (KIP-848), on a broker with its own settings."""

import logging

import pytest

from penstock import config
from penstock.adapters.kafka.group.leaving import leave_for
from penstock.ports import Commit, Where
from penstock.tools.doctor.topics import look_at_group
from tests.support.members import member
from tests.support.partitions import by_number
from tests.support.services import Services, Topics, needs_kafka_4
from tests.support.topic_tools import Broker
from tests.support.waiting import DEADLINE_S, until

pytestmark = needs_kafka_4


def kafka(services: Services, topics: Topics, instance_id: str | None = None) -> config.Kafka:
    return config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client="confluent",
        group_protocol="consumer",
        instance_id=instance_id,
    )


async def test_a_member_that_joins_takes_only_its_share_and_all_commit(
    services: Services, topics: Topics, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = kafka(services, topics)
    with caplog.at_level(logging.INFO):
        async with member(settings) as first:
            await first.until_it_has(4)
            async with member(settings) as second:
                await second.until_it_has(2)
                await first.until_it_has(2)
                assert sorted(first.taken) == sorted(second.ours)
                both = {
                    Where(topics.input, number): Commit(0, f"cursor of {number}")
                    for number in range(4)
                }
                for each in (first, second):
                    await each.source.commit({our: both[our] for our in each.ours})
                assert await broker.positions(topics.input, topics.input) == by_number(both)
                assert (await first.source.rewind(first.ours)).keys() == first.ours
    (told,) = await look_at_group(config.Config(kafka=settings))
    assert (told.level, "after 45 s" in told.said) == ("mind", True), told
    assert "moves a crashed worker's partitions after 45 s" in caplog.text


async def test_a_place_in_use_is_waited_for_until_it_is_free(
    services: Services, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    settings = kafka(services, topics, "one-place")

    async def waits() -> bool:
        return "still counts a member one-place" in caplog.text

    freed = 0
    async with member(settings) as first:
        await first.until_it_has(4)
        async with member(settings) as second:
            await until(waits, lambda: caplog.text)

            async def has_it() -> bool:
                """The first lives, and on a busy machine it may take its place again before the
                second asks for it: then it is freed again.
                """
                nonlocal freed
                if first.begun > freed:
                    freed = first.begun
                    await leave_for(settings, "one-place", DEADLINE_S)
                return len(second.ours) == 4

            await until(has_it, lambda: f"the second in the place: {caplog.text}")
