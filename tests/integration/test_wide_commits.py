"""A commit of more metadata than a broker with its default limits stores at once."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from confluent_kafka.admin import AdminClient

from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.ports import Commit
from penstock.process.asyncio_additions import stopped_after
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services
from tests.support.waiting import until

# Of 4,000 characters each: together more than a batch of 1,048,588 bytes.
PARTITIONS = 300
# As long as a position's metadata may be.
METADATA = "p1:" + "x" * 3_997


class Ours:
    def __init__(self) -> None:
        self.numbers: set[int] = set()

    async def suspended(self, partitions: Collection[int]) -> None:
        self.numbers -= set(partitions)

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        self.numbers |= starts.keys()
        return {}

    async def revoked(self, partitions: Collection[int]) -> None:
        self.numbers -= set(partitions)


@pytest.mark.stack
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", CLIENTS)
async def test_more_metadata_than_the_broker_takes_at_once_is_committed(
    services: Services, make_topics: MakeTopics, client: Client
) -> None:
    topics = await make_topics(PARTITIONS)
    admin = AdminClient({"bootstrap.servers": services.bootstrap_servers})

    async def have_leaders() -> bool:
        found = (await asyncio.to_thread(admin.list_topics, topics.input)).topics[topics.input]
        return sum(one.leader >= 0 for one in found.partitions.values()) == PARTITIONS

    await until(have_leaders, lambda: "partitions without a leader")
    kafka = config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client=client,
    )
    source, ours = open_source(kafka, drain_ms=2_000), Ours()
    async with stopped_after(source.stop):
        await source.start(ours)

        async def are_assigned() -> bool:
            await source.poll((), 50)
            return len(ours.numbers) == PARTITIONS

        await until(are_assigned, lambda: str(len(ours.numbers)))
        commits = {number: Commit(0, METADATA) for number in range(PARTITIONS)}

        async def are_committed() -> bool:
            await source.poll((), 50)  # a member that a busy machine has expelled joins again
            await source.commit({number: commits[number] for number in ours.numbers})
            return await source.rewind(ours.numbers) == commits

        await until(are_committed, lambda: str(len(ours.numbers)))
