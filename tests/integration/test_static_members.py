"""Members with an instance id: a restart moves nothing, and a place is one worker's alone."""

import pytest

from penstock import config
from penstock.adapters.kafka.group.observed import GroupStanding
from penstock.errors import EXIT_USAGE
from penstock.tools.doctor.topics import look_at_group
from tests.support.broker_stage import CLIENTS, Client
from tests.support.members import member
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

FIRST, SECOND = "first", "second"


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
            session_ms=45_000,
        )

    def worker_environment() -> dict[str, str]:
        return environment(
            services,
            topics,
            KAFKA__CLIENT=client,
            KAFKA__INSTANCE_ID=FIRST,
            KAFKA__SESSION_MS=45_000,
        )

    async def answered(worker: Worker, offset: int) -> None:
        rows = [Message({"stream": "s", "inline": [[1.0] * 16]}, number) for number in range(4)]
        await broker.publish(topics.input, rows)
        ours = set(range(4)) - {where.partition for where in second.ours}

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


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_leader_that_is_started_again_still_finds_added_partitions(
    services: Services, topics: Topics, broker: Broker, client: Client
) -> None:
    """The broker does not tell it that it leads, and nobody else looks."""
    kafka = config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client=client,
        instance_id=FIRST,
    )
    async with member(kafka) as before:
        await before.until_it_has(4)
    async with member(kafka) as again:
        await again.until_it_has(4)
        (told,) = await look_at_group(config.Config(kafka=kafka))
        assert "the member first (kafka.instance_id) is a worker at" in told.said
        await broker.add_partitions(topics.input, 5)
        await again.until_it_has(5)
