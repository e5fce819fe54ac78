"""Each row once for readers of committed records, whatever happens to the workers."""

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import config
from penstock.adapters.kafka.transactions import KafkaOutlets
from penstock.pipeline.takeover import FENCED_WAIT_S
from penstock.ports import Commit
from penstock.process.clock import SystemClock
from tests.adapters.kafka.outlets_contract import LETTERS, TOPIC, Ground, OutletsContract
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

PARTITIONS = 4
# A second of work in batches of 64 rows, 8 transactions and more.
LARGE_ROWS = 20_000
# Some transactions, and far from all.
BEGUN_ROWS = 3_000


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services, "read_committed") as broker:
        yield broker


class KafkaGround:
    """The broker says yes to a commit before its markers are written, and lets the next producer of
    the same id in when they are: so one is opened before anybody looks.
    """

    def __init__(self, services: Services, topics: Topics, broker: Broker) -> None:
        kafka = config.Kafka(
            bootstrap_servers=services.bootstrap_servers,
            input_topic=topics.input,
            group=topics.input,
        )
        self.outlets = KafkaOutlets(kafka, SystemClock(), {})
        self._topics = topics
        self._broker = broker

    def topic(self, name: str) -> str:
        return {TOPIC: self._topics.output, LETTERS: self._topics.dlq}[name]

    async def values(self, name: str) -> list[bytes]:
        await self._all_written(0)
        return [record.value for record in (await self._broker.records(self.topic(name)))[0]]

    async def position(self, partition: int = 0) -> Commit | None:
        await self._all_written(partition)
        found = await self._broker.positions(self._topics.input, self._topics.input)
        return found.get(partition)

    async def _all_written(self, partition: int) -> None:
        outlet = await self.outlets.open(partition)
        await outlet.close()


class TestKafkaOutlets(OutletsContract):
    @pytest.fixture
    async def ground(self, services: Services, topics: Topics, broker: Broker) -> Ground:
        return KafkaGround(services, topics, broker)


def exactly_once(services: Services, topics: Topics) -> dict[str, str]:
    return environment(
        services,
        topics,
        DELIVERY__GUARANTEE="exactly_once",
        MODEL__REQUEST="float32",
        WINDOW__MAX_ROWS=64,
    )


async def announce(
    s3: Any, bucket: str, broker: Broker, topics: Topics, partitions: int = PARTITIONS
) -> dict[int, int]:
    """Two large objects with a missing one between them, in each partition; the topic's ends."""
    row = ",".join(["0.5"] * 16) + "\n"
    s3.put_object(Bucket=bucket, Key="large.csv", Body=(row * LARGE_ROWS).encode())
    keys = ("large.csv", "missing.csv", "large.csv")
    await broker.publish(
        topics.input,
        [
            Message({"bucket": bucket, "key": key, "stream": f"s{partition}"}, partition)
            for partition in range(partitions)
            for key in keys
        ],
    )
    return dict.fromkeys(range(partitions), len(keys))


async def assert_each_row_once(
    broker: Broker, topics: Topics, partitions: int = PARTITIONS
) -> None:
    """In order, too; and one dead letter for each missing object."""
    answers = await broker.records(topics.output)
    for partition in range(partitions):
        found = [record.document for record in answers[partition]]
        rows = [(document["source"]["offset"], document["row"]) for document in found]
        assert rows == [
            *((0, row) for row in range(LARGE_ROWS)),
            (1, None),
            *((2, row) for row in range(LARGE_ROWS)),
        ]
    letters = await broker.records(topics.dlq)
    assert sum(map(len, letters.values())) == partitions


def assert_calm(worker: Worker) -> None:
    assert "Traceback" not in worker.said, worker.said
    assert "never retrieved" not in worker.said, worker.said


async def test_after_a_kill_in_the_middle_of_an_object_no_row_is_repeated_and_none_is_lost(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    ends = await announce(s3, bucket, broker, topics, partitions=1)
    environ = exactly_once(services, topics)
    async with running_worker(environ) as worker:
        await broker.until_answered(topics.output, BEGUN_ROWS)
        await worker.kill()
        assert (await broker.committed(topics.input, topics.input)) == {0: 0}
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, ends)
        assert await worker.stop() == 0, worker.said
        assert_calm(worker)
    await assert_each_row_once(broker, topics, partitions=1)


async def test_a_worker_that_was_frozen_and_replaced_can_publish_nothing_when_it_wakes(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    environ = exactly_once(services, topics)
    other = exactly_once(services, topics)
    async with running_worker(environ) as frozen, running_worker(other) as heir:
        await frozen.ready(partitions=2)
        await heir.ready(partitions=2)
        ends = await announce(s3, bucket, broker, topics)
        await broker.until_answered(topics.output, BEGUN_ROWS)
        frozen.send(signal.SIGSTOP)
        await heir.ready(partitions=4)
        frozen.send(signal.SIGCONT)
        await frozen.ready(partitions=2)
        await broker.until_committed(topics.input, topics.input, ends)
        assert await frozen.stop() == 0, frozen.said
        assert await heir.stop() == 0, heir.said
        assert_calm(frozen)
        assert_calm(heir)
    await assert_each_row_once(broker, topics)


async def test_a_producer_that_fences_the_owner_costs_it_a_while_and_no_row(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    ends = await announce(s3, bucket, broker, topics, partitions=1)
    outlets = KafkaGround(services, topics, broker).outlets
    async with running_worker(exactly_once(services, topics)) as worker:
        await broker.until_answered(topics.output, BEGUN_ROWS)
        intruder = await outlets.open(0)
        await intruder.close()

        async def is_fenced() -> bool:
            return "another worker took it over" in worker.said

        await until(is_fenced, lambda: worker.said, within_s=FENCED_WAIT_S)
        await broker.until_committed(topics.input, topics.input, ends)
        assert await worker.stop() == 0, worker.said
        assert_calm(worker)
    await assert_each_row_once(broker, topics, partitions=1)
