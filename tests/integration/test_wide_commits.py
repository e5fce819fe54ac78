"""A commit of more metadata than a broker with its default limits stores at once."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from confluent_kafka.admin import AdminClient

from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.ports import Commit, Where
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
        self.partitions: set[Where] = set()

    async def suspended(self, partitions: Collection[Where]) -> None:
        self.partitions -= set(partitions)

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.partitions |= starts.keys()
        return {}

    async def revoked(self, partitions: Collection[Where]) -> None:
        self.partitions -= set(partitions)


@pytest.mark.stack
@pytest.mark.parametrize("client", CLIENTS)
async def test_more_metadata_than_the_broker_takes_at_once_is_committed(
    services: Services, make_topics: MakeTopics, client: Client
) -> None:
    topics = await make_topics(PARTITIONS)
    admin = AdminClient({"bootstrap.servers": services.bootstrap_servers})

    async def have_leaders() -> bool:
        found = (await asyncio.to_thread(admin.list_topics, topics.input)).topics[topics.input]
        return sum(partition.leader >= 0 for partition in found.partitions.values()) == PARTITIONS

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
            return len(ours.partitions) == PARTITIONS

        await until(are_assigned, lambda: str(len(ours.partitions)))
        commits = {Where(topics.input, number): Commit(0, METADATA) for number in range(PARTITIONS)}

        async def are_committed() -> bool:
            await source.poll((), 50)  # a member that a busy machine has expelled joins again
            await source.commit({where: commits[where] for where in ours.partitions})
            return await source.rewind(ours.partitions) == commits

        await until(are_committed, lambda: str(len(ours.partitions)))
