"""Members with an instance id: a restart moves nothing, and a place is one worker's alone."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

from penstock import config
from penstock.adapters.inputs.choice import open_source
from penstock.adapters.kafka.group.lag import GroupStanding
from penstock.errors import EXIT_USAGE
from penstock.ports import Commit, Source
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

FIRST, SECOND = "first", "second"


class Member:
    """A bare member in this process; `begun` counts its assignments."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.begun = 0
        self.ours: set[int] = set()

    async def assigned(self, starts: Mapping[int, Commit]) -> None:
        self.begun += 1
        self.ours |= set(starts)

    async def revoked(self, partitions: Collection[int]) -> None:
        self.ours -= set(partitions)

    async def read_forever(self) -> None:
        await self.source.start(self)
        while True:
            await self.source.poll(list(self.ours), 50)

    async def until_it_has(self, count: int) -> None:
        async def has() -> bool:
            return len(self.ours) == count

        await until(has, lambda: f"{count} partitions; it has {self.ours}")


@asynccontextmanager
async def member(kafka: config.Kafka, *, leaves: bool = False) -> AsyncIterator[Member]:
    one = Member(open_source(kafka, drain_ms=2_000, leaves=leaves))
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(one.read_forever())
        try:
            yield one
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await one.source.stop()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_restart_disturbs_nobody_and_a_place_is_one_workers_alone(
    services: Services, topics: Topics, broker: Broker, client: Client
) -> None:
    def kafka(instance_id: str) -> config.Kafka:
        return config.Kafka(
            bootstrap_servers=services.bootstrap_servers,
            input_topic=topics.input,
            group=topics.input,
            client=client,
            instance_id=instance_id,
            session_ms=30_000,
        )

    def worker_environment() -> dict[str, str]:
        return environment(
            services,
            topics,
            KAFKA__CLIENT=client,
            KAFKA__INSTANCE_ID=FIRST,
            KAFKA__SESSION_MS=30_000,
        )

    async def answered(worker: Worker, offset: int) -> None:
        rows = [Message({"stream": "s", "inline": [[1.0] * 16]}, number) for number in range(4)]
        await broker.publish(topics.input, rows)
        ours = set(range(4)) - second.ours

        async def is_committed() -> bool:
            committed = await broker.committed(topics.input, topics.input)
            return all(committed.get(number) == offset for number in ours)

        await until(is_committed, lambda: f"{ours} up to {offset}: {worker.said}")

    standing = GroupStanding(kafka(FIRST), "nobody")
    try:
        async with member(kafka(SECOND), leaves=True) as second:
            await second.until_it_has(4)
            async with running_worker(worker_environment()) as worker:
                await worker.ready(2)
                await second.until_it_has(2)
                begun = second.begun
                await answered(worker, 1)
                await worker.kill()
            async with running_worker(worker_environment()) as again:
                await again.ready(2)
                await answered(again, 2)
                again.may_end()
                async with member(kafka(FIRST)) as double:
                    assert await again.ended() == EXIT_USAGE, again.said
                    assert "kafka.instance_id of this one" in again.said
                    await double.until_it_has(2)
            assert second.begun == begun
            assert (await standing.of(kafka(FIRST))).workers == 2
        # The first has kept its place, the second has left.
        assert (await standing.of(kafka(FIRST))).workers == 1
    finally:
        await standing.stop()
