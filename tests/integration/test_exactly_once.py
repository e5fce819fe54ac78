"""Each row once for readers of committed records, whatever happens to the workers."""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from penstock import config
from penstock.adapters.kafka.exactly_once.transactions import KafkaProducers
from penstock.adapters.kafka.group.membership import GroupMember, MemberSource
from penstock.ports import Commit, Headers, Where
from penstock.process.asyncio_additions import SystemClock
from tests.adapters.kafka.producers_contract import LETTERS, TOPIC, Ground, ProducersContract
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS
from tests.support.members import member
from tests.support.model_proxy import ModelProxy
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.waiting import until
from tests.support.worker import Worker, environment, running_worker

PARTITIONS = 4
# Half a second of work in batches of 64 rows, 4 transactions and more.
LARGE_ROWS = 10_000
BATCH_ROWS = 64
# Some transactions, and far from all.
BEGUN_ROWS = 3_000
KEYS = ("large.csv", "missing.csv", "large.csv")
# Far more than producers.
MANY = 200


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services, "read_committed") as broker:
        yield broker


class KafkaGround:
    """The broker says yes to a commit before its markers are written, and lets the next producer of
    the same id in when they are: so one is opened before anybody looks.
    """

    def __init__(
        self, kafka: config.Kafka, topics: Topics, broker: Broker, member: MemberSource
    ) -> None:
        self.producers = KafkaProducers(kafka, SystemClock(), {}, self._member_of)
        self._member = member
        self._is_expelled = False
        self._topics = topics
        self._broker = broker

    def _member_of(self, topic: str) -> GroupMember:
        member = self._member.member_of(topic)
        return member._replace(generation=member.generation - self._is_expelled)

    def topic(self, name: str) -> str:
        return {TOPIC: self._topics.output, LETTERS: self._topics.dlq}[name]

    def place(self, partition: int) -> Where:
        return Where(self._topics.input, partition)

    def expel(self) -> None:
        self._is_expelled = True

    async def values(self, name: str) -> list[bytes]:
        await self._all_written()
        return [record.value for record in (await self._broker.records(self.topic(name)))[0]]

    async def headers(self, name: str) -> list[Headers]:
        await self._all_written()
        records = (await self._broker.records(self.topic(name)))[0]
        return [list(record.headers) for record in records]

    async def position(self, partition: int = 0) -> Commit | None:
        await self._all_written()
        positions = await self._broker.positions(self._topics.input, self._topics.input)
        return positions.get(partition)

    async def _all_written(self) -> None:
        for number in range(2):
            await (await self.producers.open(number)).close()


class TestKafkaProducers(ProducersContract):
    @pytest.fixture(params=CLIENTS)
    async def ground(
        self, services: Services, topics: Topics, broker: Broker, request: Any
    ) -> AsyncIterator[Ground]:
        kafka = config.Kafka(
            bootstrap_servers=services.bootstrap_servers,
            input_topic=topics.input,
            group=topics.input,
            client=request.param,
            session_ms=45_000,  # however long this process gets no processor
        )
        async with member(kafka) as one:
            await one.until_it_has(PARTITIONS)
            yield KafkaGround(kafka, topics, broker, one.source)


def exactly_once(services: Services, topics: Topics, **changes: Any) -> dict[str, str]:
    return environment(
        services,
        topics,
        DELIVERY__GUARANTEE="exactly_once",
        MODEL__REQUEST="float32",
        WINDOW__MAX_ROWS=BATCH_ROWS,
        **changes,
    )


async def announce(
    s3: Any,
    bucket: str,
    broker: Broker,
    topics: Topics,
    partitions: int = PARTITIONS,
    keys: Sequence[str] = KEYS,
) -> dict[int, int]:
    """Two large objects with a missing one between them, in each partition; the topic's ends."""
    row = ",".join(["0.5"] * 16) + "\n"
    s3.put_object(Bucket=bucket, Key="large.csv", Body=(row * LARGE_ROWS).encode())
    await broker.publish(
        topics.input,
        [
            Message({"bucket": bucket, "key": key, "stream": f"s{partition}"}, partition)
            for partition in range(partitions)
            for key in keys
        ],
    )
    return dict.fromkeys(range(partitions), len(KEYS))


async def assert_each_row_once(
    broker: Broker, topics: Topics, partitions: int = PARTITIONS
) -> None:
    """In order, too; and one dead letter for each missing object."""
    answers = await broker.records(topics.output)
    for partition in range(partitions):
        documents = [record.document for record in answers[partition]]
        rows = [(document["source"]["offset"], document["row"]) for document in documents]
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
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, proxy: ModelProxy
) -> None:
    # One alone: rows of another could take all that passes before the first of these.
    await announce(s3, bucket, broker, topics, 1, KEYS[:1])
    # However late the kill comes, the worker has not done with the object.
    proxy.hold_after(LARGE_ROWS * 3 // 4)

    async def is_in_the_middle() -> bool:
        return await broker.committed(topics.input, topics.input) == {0: 0}

    async with running_worker(exactly_once(services, topics, MODEL__URL=proxy.url)) as worker:
        await broker.until_answered(topics.output, BEGUN_ROWS)
        await worker.kill()
        # Readers may see a transaction's records a moment before the group has its position.
        await until(is_in_the_middle, lambda: f"a position in the object: {worker.said}")
    ends = await announce(s3, bucket, broker, topics, 1, KEYS[1:])
    async with running_worker(exactly_once(services, topics)) as worker:
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


@asynccontextmanager
async def open_transaction(services: Services, id_: str) -> AsyncIterator[AIOKafkaProducer]:
    """Which its producer does not end, nor the broker during a test."""
    async with AIOKafkaProducer(
        bootstrap_servers=services.bootstrap_servers,
        transactional_id=id_,
        transaction_timeout_ms=600_000,
    ) as producer:
        await producer.begin_transaction()
        yield producer


async def test_what_a_dead_worker_left_open_holds_up_no_reader(
    services: Services, topics: Topics, broker: Broker
) -> None:
    """It had sent records, and no position yet that anybody would wait for."""
    async with open_transaction(services, f"{topics.input}/dead/3") as dead:
        await dead.send_and_wait(topics.output, b"half", partition=0)
        async with running_worker(exactly_once(services, topics)) as worker:
            await broker.publish(topics.input, [Message({"stream": "s", "inline": [[0.5] * 16]})])
            await broker.until_committed(topics.input, topics.input, {0: 1})

            async def is_readable() -> bool:
                return bool((await broker.records(topics.output))[0])

            await until(is_readable, lambda: worker.said)
            assert await worker.stop() == 0, worker.said


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_position_that_a_stranger_keeps_open_ends_the_worker_with_3(
    services: Services, topics: Topics, client: str
) -> None:
    """No worker of the group may end a transaction whose id is not one of the group's."""
    async with open_transaction(services, f"a-stranger-{topics.input}") as stranger:
        moved = {TopicPartition(topics.input, 2): 5}
        await stranger.send_offsets_to_transaction(moved, topics.input)
        environ = exactly_once(services, topics, KAFKA__CLIENT=client, KAFKA__TIMEOUT_MS=10_000)
        async with running_worker(environ) as worker:
            worker.may_end()
            assert await worker.ended() == 3, worker.said
            assert "find-hanging" in worker.said


async def test_hundreds_of_partitions_are_answered_once_by_one_worker(
    services: Services, make_topics: MakeTopics, broker: Broker
) -> None:
    topics = await make_topics(MANY)
    rows = {"inline": [[0.5] * 16] * 2}
    async with running_worker(exactly_once(services, topics)) as worker:
        await worker.ready(partitions=MANY)
        for _ in range(3):
            messages = [Message({**rows, "stream": f"s{n}"}, n) for n in range(MANY)]
            await broker.publish(topics.input, messages)
        ends = dict.fromkeys(range(MANY), 3)
        await broker.until_committed(topics.input, topics.input, ends)
        assert await worker.stop() == 0, worker.said
        assert_calm(worker)
    answers = await broker.records(topics.output)
    for partition in range(MANY):
        documents = [record.document for record in answers[partition]]
        assert [(document["source"]["offset"], document["row"]) for document in documents] == [
            (offset, row) for offset in range(3) for row in range(2)
        ]
