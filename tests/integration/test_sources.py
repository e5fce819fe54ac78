"""The port of the input, by both Kafka clients: the same reading, the same rebalances."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import product

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer

from penstock import config
from penstock.adapters.inputs.kafka_sources import open_source
from penstock.errors import EXIT_USAGE, Fatal, Undecided
from penstock.ports import UNDECIDED, Commit, InputSource, Where
from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.partitions import by_number
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until

CURSOR = "p1:0.2.0123456789abcdef"
# Of a transaction that stays open: longer than a test may take, as the broker ends it after that.
OPEN_MS = 600_000


class Assigned:
    """What the source says to the pipeline in a rebalance."""

    def __init__(self) -> None:
        self.starts: dict[Where, Commit] = {}

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.starts |= starts
        return {}

    async def suspended(self, partitions: Collection[Where]) -> None:
        await self.revoked(partitions)

    async def revoked(self, partitions: Collection[Where]) -> None:
        for partition in partitions:
            self.starts.pop(partition, None)


def member(
    services: Services, topics: Topics, client: Client, *, decided: bool = False
) -> InputSource:
    kafka = config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client=client,
    )
    return open_source(kafka, drain_ms=2_000, decided=decided)


async def read(source: InputSource, assigned_to: Assigned, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count or len(assigned_to.starts) < 2:
        records = await source.poll(list(assigned_to.starts), 50)
        found += [(record.where.partition, record.offset) for record in records]
    return found


@pytest.mark.parametrize(("first", "second"), list(product(CLIENTS, CLIENTS)))
async def test_what_a_client_commits_either_client_goes_on_from(
    services: Services, make_topics: MakeTopics, broker: Broker, first: Client, second: Client
) -> None:
    topics = await make_topics(2)
    await broker.publish(topics.input, [Message({"n": number}, number % 2) for number in range(10)])
    p0, p1 = Where(topics.input, 0), Where(topics.input, 1)
    wanted = {p0: Commit(3, CURSOR), p1: Commit(2)}
    for client, begins in ((first, {p0: Commit(0), p1: Commit(0)}), (second, wanted)):
        assigned_to, source = Assigned(), member(services, topics, client)
        try:
            await source.start(assigned_to)
            left = [(where.partition, n) for where, (at, _) in begins.items() for n in range(at, 5)]
            assert sorted(await read(source, assigned_to, len(left))) == left
            assert assigned_to.starts == begins
            await source.commit(wanted)
            assert await source.rewind([p0, p1]) == wanted
            again = [(0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
            assert sorted(await read(source, assigned_to, len(again))) == again
            assert await source.end_offsets() == {p0: 5, p1: 5}
        finally:
            await source.stop()
    assert await broker.positions(topics.input, topics.input) == by_number(wanted)


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_end_that_was_read_before_a_rewind_passes_over_no_record_after_it(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    """As a takeover rewinds a partition while a read is under way."""
    topics = await make_topics(1)
    await broker.publish(topics.input, [Message({"n": number}) for number in range(3)])
    await broker.move(topics.input, topics.input, {0: 3})
    p0 = Where(topics.input, 0)
    assigned_to, source = Assigned(), member(services, topics, client)
    try:
        await source.start(assigned_to)
        while not assigned_to.starts:
            await source.poll([p0], 500)
        await source.commit({p0: Commit(0)})
        assert await source.rewind([p0]) == {p0: Commit(0)}
        found = 0
        while found < 3:
            found += len(await source.poll([p0], 1))
            assert source.reached().get(p0, 0) <= found
    finally:
        await source.stop()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_position_that_is_not_decided_holds_up_no_other_partition(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    topics = await make_topics(2)
    await broker.publish(topics.input, [Message({"n": number}, number % 2) for number in range(10)])
    p0, p1 = Where(topics.input, 0), Where(topics.input, 1)
    assigned_to, source = Assigned(), member(services, topics, client, decided=True)
    async with AIOKafkaProducer(
        bootstrap_servers=services.bootstrap_servers,
        transactional_id=f"a-stranger-{topics.input}",
        transaction_timeout_ms=OPEN_MS,
    ) as stranger:
        await stranger.begin_transaction()
        moved = {TopicPartition(*p0): 2}
        await stranger.send_offsets_to_transaction(moved, topics.input)
        try:
            await source.start(assigned_to)
            assert await read(source, assigned_to, 5) == [(1, offset) for offset in range(5)]
            assert assigned_to.starts == {p0: UNDECIDED, p1: Commit(0)}
            with pytest.raises(Undecided):
                await source.rewind([p0])
            await stranger.commit_transaction()

            async def is_decided() -> bool:
                with suppress(Undecided):
                    return await source.rewind([p0]) == {p0: Commit(2)}
                return False

            await until(is_decided, lambda: "the position of partition 0")
            assert await read(source, assigned_to, 3) == [(0, 2), (0, 3), (0, 4)]
        finally:
            await source.stop()


class Reader:
    """A member that keeps what it reads, and lets what comes back go on where it read last."""

    def __init__(self, source: InputSource) -> None:
        self.source = source
        self.ours: set[Where] = set()
        self.suspended_ones: set[Where] = set()
        self.revoked_ones: set[Where] = set()
        self.kept: set[Where] = set()
        self.offsets: dict[Where, list[int]] = defaultdict(list)
        self.next: dict[Where, int] = {}

    async def suspended(self, partitions: Collection[Where]) -> None:
        self.suspended_ones |= set(partitions)
        self.ours -= set(partitions)

    async def revoked(self, partitions: Collection[Where]) -> None:
        assert self.suspended_ones >= set(partitions), "nobody waits for a drain"
        self.revoked_ones |= set(partitions)

    async def assigned(self, starts: Mapping[Where, Commit]) -> Mapping[Where, int]:
        self.ours |= set(starts)
        kept = self.next.keys() & starts.keys()
        self.kept |= kept
        return {partition: self.next[partition] for partition in kept}

    async def read_forever(self) -> None:
        await self.source.start(self)
        while True:
            for record in await self.source.poll(list(self.ours), 50):
                assert record.where in self.ours
                self.offsets[record.where].append(record.offset)
                self.next[record.where] = record.offset + 1

    def counts(self) -> dict[Where, int]:
        return {where: len(offsets) for where, offsets in self.offsets.items()}


@asynccontextmanager
async def reading(kafka: config.Kafka) -> AsyncIterator[Reader]:
    reader = Reader(open_source(kafka, drain_ms=2_000))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reader.read_forever())
        try:
            yield reader
        finally:
            task.cancel()
            await asyncio.wait([task])
            await reader.source.stop()


async def until_it(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    async def does() -> bool:
        return holds()

    await until(does, lambda: str(what()))


def kafka_of(services: Services, topics: Topics, client: Client, **changes: object) -> config.Kafka:
    return config.Kafka(
        bootstrap_servers=services.bootstrap_servers,
        input_topic=topics.input,
        group=topics.input,
        client=client,
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_rebalance_suspends_and_what_comes_back_is_read_on_where_it_was(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    topics = await make_topics(4)
    kafka = kafka_of(services, topics, client)
    tens = [Message({"n": number}, number % 4) for number in range(40)]
    await broker.publish(topics.input, tens)
    async with reading(kafka) as first:
        await until_it(lambda: sum(first.counts().values()) == 40, first.counts)
        async with reading(kafka) as second:
            await until_it(lambda: len(first.ours) == len(second.ours) == 2, lambda: first.ours)
            assert first.suspended_ones == {Where(topics.input, number) for number in range(4)}
            assert (first.kept, first.revoked_ones) == (first.ours, second.ours)
            await broker.publish(topics.input, tens)
            # Nothing was committed, so the second begins its partitions at their beginning.
            await until_it(lambda: sum(second.counts().values()) == 40, second.counts)
            await until_it(lambda: sum(first.counts().values()) == 60, first.counts)
            for where, offsets in first.offsets.items():
                assert offsets == list(range(20 if where in first.ours else 10))
            for offsets in second.offsets.values():
                assert offsets == list(range(20))


@pytest.mark.parametrize("client", CLIENTS)
async def test_what_transactions_leave_is_read_as_the_isolation_says(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    """Offsets: 0 is taken back, 1 its mark, 2 is in no transaction, 3 stays open, 4 is behind."""
    topics = await make_topics(1)
    p0, value = Where(topics.input, 0), b"{}"

    async def begun(name: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=services.bootstrap_servers,
            transactional_id=f"{topics.input}-{name}",
            transaction_timeout_ms=OPEN_MS,
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(topics.input, value, partition=0)
        return producer

    taken_back = await begun("taken back")
    await taken_back.abort_transaction()
    await taken_back.stop()
    # The broker answers before it has written the mark.
    await broker.until_answered(topics.input, 2)
    await broker.publish(topics.input, [Message({})])
    stays_open = await begun("stays open")
    try:
        await broker.publish(topics.input, [Message({})])
        every = kafka_of(services, topics, client)
        async with reading(every) as reader:
            await until_it(lambda: reader.next.get(p0) == 5, reader.counts)
            assert reader.offsets[p0] == [0, 2, 3, 4]
            assert await reader.source.end_offsets() == {p0: 5}
        certain = kafka_of(services, topics, client, isolation="read_committed")
        async with reading(certain) as reader:
            await until_it(lambda: reader.source.reached().get(p0) == 3, reader.counts)
            assert reader.offsets[p0] == [2]
            assert await reader.source.end_offsets() == {p0: 3}
            await stays_open.commit_transaction()
            await until_it(lambda: reader.source.reached().get(p0) == 6, reader.counts)
            assert reader.offsets[p0] == [2, 3, 4]
    finally:
        await stays_open.stop()


@pytest.mark.parametrize("client", CLIENTS)
async def test_topics_are_read_together_and_a_new_one_that_matches_is_found(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    one, other = await make_topics(2), await make_topics(1)
    named = kafka_of(services, one, client, input_topics=[one.input, other.input])
    places = {Where(one.input, 0), Where(one.input, 1), Where(other.input, 0)}
    async with reading(named) as reader:
        await until_it(lambda: len(reader.ours) == 3, lambda: reader.ours)
        assert reader.ours == places
        assert reader.source.partitions() == 3
        for topic, partition in places:
            await broker.publish(topic, [Message({}, partition)])
        await until_it(lambda: reader.counts() == dict.fromkeys(places, 1), reader.counts)
        commits = {where: Commit(1, f"of {where}") for where in reader.ours}
        await reader.source.commit(commits)
        assert await reader.source.rewind(reader.ours) == commits
    late = f"{one.input}-late"
    matching = kafka_of(services, one, client, input_pattern=f"{one.input}(?:-late)?$")
    try:
        async with reading(matching) as reader:
            await until_it(lambda: len(reader.ours) == 2, lambda: reader.ours)
            await broker.create(late)
            await broker.publish(late, [Message({})])
            await until_it(lambda: reader.counts() == {Where(late, 0): 1}, reader.counts)
    finally:  # once nobody reads it
        await broker.delete({late} & await broker.topics())


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_group_that_assigns_in_another_way_refuses_a_worker_for_good(
    services: Services, make_topics: MakeTopics, client: Client
) -> None:
    topics = await make_topics(1)
    foreign = Consumer(
        {
            "bootstrap.servers": services.bootstrap_servers,
            "group.id": topics.input,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    try:
        foreign.subscribe([topics.input])

        async def is_a_member() -> bool:
            await asyncio.to_thread(foreign.poll, 0.1)
            return bool(foreign.assignment())

        await until(is_a_member, lambda: "no assignment")
        with pytest.raises(ExceptionGroup) as refused:
            async with reading(kafka_of(services, topics, client)) as reader:
                await until_it(lambda: bool(reader.ours), lambda: reader.ours)
        (fatal,) = refused.value.exceptions
        assert isinstance(fatal, Fatal)
        assert fatal.exit_code == EXIT_USAGE
        assert "Stop all members of kafka.group" in str(fatal)
    finally:
        await asyncio.to_thread(foreign.close)
