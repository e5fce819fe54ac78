"""Where a worker goes on when its group's position and the topic do not fit together."""

import asyncio
import signal

import pytest
from aiokafka import AIOKafkaProducer

from penstock.ops.topic_checks import GONE_S, LOOK_EVERY_S
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

RECORDS = 10
# Of a transaction that stays open: longer than a test may take, as the broker ends it after that.
OPEN_MS = 600_000
ROW = list(range(16))


def rows(count: int, first: int = 0) -> list[Message]:
    return [
        Message({"inline": [[first + number, *ROW[1:]]], "stream": "s"}) for number in range(count)
    ]


async def answered(broker: Broker, topics: Topics) -> list[int]:
    """The offsets that were answered, in the order of the answers."""
    records = (await broker.records(topics.output))[0]
    return [record.document["source"]["offset"] for record in records]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_a_group_beyond_the_end_of_its_topic_begins_again_at_the_earliest_record(
    services: Services, make_topics: MakeTopics, broker: Broker, guarantee: str, client: Client
) -> None:
    """As after a topic that was made again, or a broker that was restored."""
    topics = await make_topics(1)
    await broker.publish(topics.input, rows(RECORDS))
    await broker.move(topics.input, topics.input, {0: 1_000})
    environ = environment(services, topics, DELIVERY__GUARANTEE=guarantee, KAFKA__CLIENT=client)
    async with running_worker(environ) as worker:
        await broker.until_answered(topics.output, RECORDS)

        async def is_back() -> bool:
            return await broker.committed(topics.input, topics.input) == {0: RECORDS}

        await until(is_back, lambda: worker.said)
        assert "beyond the end of the topic (10)" in worker.said
        assert await worker.stop() == 0, worker.said
    assert await answered(broker, topics) == list(range(RECORDS))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_topic_that_is_made_again_under_a_worker_is_read_from_its_first_record(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    topics = await make_topics(1)
    await broker.publish(topics.input, rows(RECORDS))
    async with running_worker(environment(services, topics, KAFKA__CLIENT=client)) as worker:
        await broker.until_committed(topics.input, topics.input, {0: RECORDS})
        await broker.delete([topics.input])

        async def is_gone() -> bool:
            return topics.input not in await broker.topics()

        await until(is_gone, lambda: f"the end of {topics.input}")
        await broker.create(topics.input)
        await broker.publish(topics.input, rows(3))
        await broker.until_committed(topics.input, topics.input, {0: 3})
        assert await worker.stop() == 0, worker.said
    assert await answered(broker, topics) == [*range(RECORDS), *range(3)]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_a_topic_made_again_with_more_records_than_before_is_read_from_its_first(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client, guarantee: str
) -> None:
    """The position of the former topic is in the new one, too, and is another record there."""
    topics = await make_topics(1)
    await broker.publish(topics.input, rows(RECORDS))
    environ = environment(services, topics, DELIVERY__GUARANTEE=guarantee, KAFKA__CLIENT=client)
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: RECORDS})
        worker.send(signal.SIGSTOP)
        await broker.delete([topics.input])

        async def is_gone() -> bool:
            return topics.input not in await broker.topics()

        await until(is_gone, lambda: f"the end of {topics.input}")
        await broker.create(topics.input)
        await broker.publish(topics.input, rows(3 * RECORDS, first=100))
        worker.send(signal.SIGCONT)

        async def are_all_answered() -> bool:
            records = (await broker.records(topics.output))[0]
            offsets = {record.document["source"]["offset"] for record in records[RECORDS:]}
            return offsets == set(range(3 * RECORDS))

        await until(are_all_answered, lambda: worker.said)
        records = (await broker.records(topics.output))[0]
        ids = [record.document["source"]["topic_id"] for record in records]
        assert len(set(ids[:RECORDS])) == 1
        assert ids[-1] != ids[0], "the answers tell the topics apart"
        assert "was deleted and created again" in worker.said
        assert await worker.stop() == 0, worker.said
    assert await broker.committed(topics.input, topics.input) == {0: 3 * RECORDS}


@pytest.mark.parametrize("client", CLIENTS)
async def test_references_that_were_deleted_before_they_were_read_are_told_and_passed_over(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    topics = await make_topics(1)
    await broker.publish(topics.input, rows(RECORDS))
    await broker.move(topics.input, topics.input, {0: 2})
    await broker.delete_before(topics.input, 5)
    async with running_worker(environment(services, topics, KAFKA__CLIENT=client)) as worker:
        await broker.until_committed(topics.input, topics.input, {0: RECORDS})
        assert "offsets 2 to 4 were deleted before they were read" in worker.said
        assert await worker.stop() == 0, worker.said
    assert await answered(broker, topics) == list(range(5, RECORDS))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_topic_that_ends_in_a_transaction_is_committed_to_its_end(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    topics = await make_topics(1)
    async with (
        AIOKafkaProducer(
            bootstrap_servers=services.bootstrap_servers, transactional_id=topics.input
        ) as producer,
        producer.transaction(),
    ):
        for message in rows(3):
            await producer.send(topics.input, message.encoded, partition=0)
    async with running_worker(environment(services, topics, KAFKA__CLIENT=client)) as worker:
        # Three records, and the offset of the transaction's own end.
        await broker.until_committed(topics.input, topics.input, {0: 4})
        assert await worker.stop() == 0, worker.said
    assert await answered(broker, topics) == [0, 1, 2]


@pytest.mark.parametrize("client", CLIENTS)
async def test_references_of_transactions_are_answered_however_these_end(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    """One is taken back, one stays open; a reference without a transaction follows."""
    topics = await make_topics(1)
    names = (f"{topics.input}-{number}" for number in range(2))
    taken_back, stays_open = (
        AIOKafkaProducer(
            bootstrap_servers=services.bootstrap_servers,
            transactional_id=name,
            transaction_timeout_ms=OPEN_MS,
        )
        for name in names
    )
    environ = environment(
        services, topics, DELIVERY__GUARANTEE="exactly_once", KAFKA__CLIENT=client
    )
    async with taken_back, stays_open:
        for producer, message in zip((taken_back, stays_open), rows(2), strict=True):
            await producer.begin_transaction()
            await producer.send_and_wait(topics.input, message.encoded, partition=0)
            if producer is taken_back:
                await producer.abort_transaction()
                # The broker answers before it has written the mark.
                await broker.until_answered(topics.input, 2)
        await broker.publish(topics.input, rows(1))
        async with running_worker(environ) as worker:
            # The second offset is the mark of what was taken back.
            await broker.until_committed(topics.input, topics.input, {0: 4})
            assert await worker.stop() == 0, worker.said
        judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged
    assert await answered(broker, topics) == [0, 2, 3]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_topics_that_take_smaller_batches_get_them(
    services: Services, make_topics: MakeTopics, broker: Broker, guarantee: str
) -> None:
    topics = await make_topics(1, max_message_bytes="100000")
    too_large = b'{"stream":"s","inline":' + b"[" * 200_000
    good = Message({"stream": "s", "inline": [ROW] * 2_000})
    await broker.publish(topics.input, [good, Message(too_large), good])
    environ = environment(services, topics, DELIVERY__GUARANTEE=guarantee)
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: 3})
        assert await worker.stop() == 0, worker.said
    assert await answered(broker, topics) == [0] * 2_000 + [1] + [2] * 2_000
    (letter,) = (await broker.records(topics.dlq))[0]
    assert letter.document["code"] == "bad_reference"
    assert letter.document["value_b64"] is None


async def test_a_topic_too_small_for_a_name_is_a_matter_of_settings(
    services: Services, make_topics: MakeTopics
) -> None:
    topics = await make_topics(1, max_message_bytes="20000")
    async with running_worker(environment(services, topics)) as worker:
        worker.may_end()
        assert await worker.ended() == 2
        assert "max.message.bytes" in worker.said


@pytest.mark.timeout(GONE_S + 480)
async def test_a_topic_that_was_deleted_is_called_gone_in_the_last_line(
    services: Services, make_topics: MakeTopics, broker: Broker
) -> None:
    """Three workers at the same time, as each of them waits for more than a minute."""

    async def says_so(topics: Topics, gone: str, client: Client) -> None:
        async with running_worker(environment(services, topics, KAFKA__CLIENT=client)) as worker:
            await worker.ready()
            worker.may_end()
            await broker.delete([gone])
            if gone == topics.output:
                await broker.publish(topics.input, rows(1))
            assert await worker.ended(GONE_S + 12 * LOOK_EVERY_S) == 2, worker.said
            last = worker.said.strip().rpartition("\n")[2]
        assert gone in last
        assert "penstock topics create" in last

    of_each = [await make_topics(1) for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        for topics, client in zip(of_each[:2], CLIENTS, strict=True):
            tasks.create_task(says_so(topics, topics.input, client))
        tasks.create_task(says_so(of_each[2], of_each[2].output, "aiokafka"))
