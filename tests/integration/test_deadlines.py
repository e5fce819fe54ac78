"""Services that are away, late or mute: a worker waits with a line, recovers, or ends with 3."""

import asyncio
import re
from collections.abc import Collection
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.relay import Manner, Relay, relay_to
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import Worker, environment, penstock, running_worker

# Short enough to wait for; only what fails is held against it.
SHORT_MS = 3_000
# Long enough for whatever answers at all on a busy machine.
JOIN_MS = 10_000
# The pause between tries begins at 0.1 to 0.2 s and doubles: at most 5 in that time. A try of the
# store is up to four connections, as both of its clients ask, one of them three times. At the end
# the brokers are asked once more whether they refuse our credentials.
MOST_TRIES = {"KAFKA": 7, "OBJECTS": 24, "MODEL": 6}
SERVICE = {"KAFKA": "Kafka broker", "OBJECTS": "object store", "MODEL": "model server"}


def count_of(worker: Worker, words: str) -> int:
    return len(re.findall(words, worker.said))


async def until_told(worker: Worker, words: str) -> None:
    async def is_told() -> bool:
        return count_of(worker, words) > 0

    await until(is_told, lambda: f"{words!r} from the worker, which says {worker.said}")


def address_of(services: Services, section: str) -> str:
    url = {
        "KAFKA": services.bootstrap_servers,
        "OBJECTS": services.endpoint_url,
        "MODEL": services.model_url,
    }[section]
    return url.rpartition("//")[2]


def through(relay: Relay, section: str) -> dict[str, str]:
    if section == "KAFKA":
        return {"PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": relay.address}
    key = "ENDPOINT_URL" if section == "OBJECTS" else "URL"
    return {f"PENSTOCK_{section}__{key}": f"http://{relay.address}"}


async def test_a_worker_waits_for_each_service_with_a_line_and_recovers_when_it_comes(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
    async with (
        relay_to(address_of(services, "KAFKA")) as kafka,
        relay_to(address_of(services, "OBJECTS")) as store,
        relay_to(address_of(services, "MODEL")) as model,
    ):
        relays = {"KAFKA": kafka, "OBJECTS": store, "MODEL": model}
        environ = environment(services, topics)
        for section, relay in relays.items():
            environ |= through(relay, section)
        async with running_worker(environ) as worker:
            for section, relay in relays.items():
                await until_told(worker, f"{SERVICE[section]} does not answer, waiting up to 60 s")
                await relay.listen()
                await until_told(worker, f"{SERVICE[section]} answers again")
            await broker.until_committed(topics.input, topics.input, {0: 1})
            assert await worker.stop() == 0, worker.said
            for service in SERVICE.values():
                assert count_of(worker, f"{service} does not answer") == 1
            assert "Traceback" not in worker.said


@pytest.mark.parametrize(
    ("section", "manner"),
    [("KAFKA", "rude"), ("KAFKA", "mute"), ("OBJECTS", "rude"), ("MODEL", "rude")],
)
async def test_a_service_that_stays_away_ends_the_start_with_3_after_few_tries(
    services: Services, topics: Topics, section: str, manner: Manner
) -> None:
    async with relay_to(address_of(services, section)) as relay:
        await relay.listen(manner)
        environ = environment(services, topics, LIMITS__START_MS=SHORT_MS)
        ended = await penstock("run", environ=environ | through(relay, section))
    assert ended.code == 3, ended.stderr
    assert ended.stderr.count(f"the {SERVICE[section]} does not answer, waiting up to 3 s") == 1
    assert f"the {SERVICE[section]} did not answer for 3 s" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert 1 <= relay.came <= MOST_TRIES[section]


class HandsBackLate(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if revoked:
            await self.may.wait()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        return


async def test_a_group_that_cannot_be_joined_ends_the_worker_with_3(
    services: Services, topics: Topics
) -> None:
    listener = HandsBackLate()
    member = AIOKafkaConsumer(
        bootstrap_servers=services.bootstrap_servers,
        group_id=topics.input,
        # The group waits for it for longer than the worker waits for the group.
        rebalance_timeout_ms=30_000,
        session_timeout_ms=45_000,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    member.subscribe([topics.input], listener=listener)
    try:
        await member.start()
        ended = await penstock(
            "run", environ=environment(services, topics, KAFKA__TIMEOUT_MS=JOIN_MS)
        )
    finally:
        listener.may.set()
        await member.stop()
    assert ended.code == 3, ended.stderr
    assert f"Kafka did not let us join group {topics.input} within 10 s" in ended.stderr
    assert "Traceback" not in ended.stderr
