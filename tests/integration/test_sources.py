"""Both Kafka clients as members of one group: what one commits, the other goes on from."""

from collections.abc import Collection, Mapping
from itertools import product

import pytest

from penstock import config
from penstock.adapters.inputs.choice import open_source
from penstock.ports import Commit, Source
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message

CURSOR = "p1:0.2.0123456789abcdef"


class Assigned:
    """What the source says to the pipeline in a rebalance."""

    def __init__(self) -> None:
        self.starts: dict[int, Commit] = {}

    async def assigned(self, starts: Mapping[int, Commit]) -> Mapping[int, int]:
        self.starts |= starts
        return {}

    async def suspended(self, partitions: Collection[int]) -> None:
        await self.revoked(partitions)

    async def revoked(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self.starts.pop(partition, None)


def member(services: Services, topics: Topics, client: Client) -> Source:
    kafka = config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client=client,
    )
    return open_source(kafka, drain_ms=2_000)


async def read(source: Source, assigned_to: Assigned, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count or len(assigned_to.starts) < 2:
        records = await source.poll(list(assigned_to.starts), 50)
        found += [(record.partition, record.offset) for record in records]
    return found


@pytest.mark.parametrize(("first", "second"), list(product(CLIENTS, CLIENTS)))
async def test_what_a_client_commits_either_client_goes_on_from(
    services: Services, make_topics: MakeTopics, broker: Broker, first: Client, second: Client
) -> None:
    topics = await make_topics(2)
    await broker.publish(topics.input, [Message({"n": number}, number % 2) for number in range(10)])
    wanted = {0: Commit(3, CURSOR), 1: Commit(2)}
    for client, begins in ((first, {0: Commit(0), 1: Commit(0)}), (second, wanted)):
        assigned_to, source = Assigned(), member(services, topics, client)
        try:
            await source.start(assigned_to)
            left = [(where, n) for where, (at, _) in begins.items() for n in range(at, 5)]
            assert sorted(await read(source, assigned_to, len(left))) == left
            assert assigned_to.starts == begins
            await source.commit(wanted)
            assert await source.rewind([0, 1]) == wanted
            again = [(0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
            assert sorted(await read(source, assigned_to, len(again))) == again
            assert await source.end_offsets() == {0: 5, 1: 5}
        finally:
            await source.stop()
    assert await broker.positions(topics.input, topics.input) == wanted


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_end_that_was_read_before_a_rewind_passes_over_no_record_after_it(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    """As a takeover rewinds a partition while a read is under way."""
    topics = await make_topics(1)
    await broker.publish(topics.input, [Message({"n": number}) for number in range(3)])
    await broker.move(topics.input, topics.input, {0: 3})
    assigned_to, source = Assigned(), member(services, topics, client)
    try:
        await source.start(assigned_to)
        while not assigned_to.starts:
            await source.poll([0], 500)
        await source.commit({0: Commit(0)})
        assert await source.rewind([0]) == {0: Commit(0)}
        found = 0
        while found < 3:
            found += len(await source.poll([0], 1))
            assert source.reached().get(0, 0) <= found
    finally:
        await source.stop()
