"""What the broker itself says of topics and groups, by clients that are none of ours.

Rule: reads topics whole, from their beginning to their end; judges nothing. Only the question where
a group is is the product's own: aiokafka's takes an answer that is an error for "nowhere".
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)

from penstock.adapters.kafka.positions import positions
from penstock.adapters.kafka.topics import controller_known
from penstock.errors import Transient
from penstock.ports import Commit
from tests.support.services import Services
from tests.support.waiting import DEADLINE_S, until

_NOT_YET = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    Transient,
)


class Message(NamedTuple):
    """To be published; `value` as it is, or as JSON."""

    value: Any
    partition: int = 0
    key: bytes | None = None

    @property
    def encoded(self) -> bytes | None:
        value = self.value
        return value if value is None or isinstance(value, bytes) else orjson.dumps(value)


class Record(NamedTuple):
    """As it stands on a topic."""

    offset: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()

    @property
    def document(self) -> dict[str, Any]:
        parsed: dict[str, Any] = orjson.loads(self.value)
        return parsed


class Broker:
    """Made by `broker_of`. `isolation` is for reading `records`."""

    def __init__(self, servers: str, isolation: str) -> None:
        self._servers = servers
        self._producer = AIOKafkaProducer(bootstrap_servers=servers)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation
        )
        self._admin = AIOKafkaAdminClient(bootstrap_servers=servers)

    async def start(self) -> None:
        await self._producer.start()
        await self._consumer.start()
        await self._admin.start()

    async def stop(self) -> None:
        await self._producer.stop()
        await self._consumer.stop()
        await self._admin.close()

    async def publish(self, topic: str, messages: Iterable[Message]) -> None:
        """In this order within a partition; returns when all are acknowledged."""
        sent = [
            await self._producer.send(
                topic, message.encoded, key=message.key, partition=message.partition
            )
            for message in messages
        ]
        for delivery in sent:
            await delivery

    async def topics(self) -> set[str]:
        return set(await self._admin.list_topics())

    async def create(self, topic: str) -> None:
        """With one partition; the caller deletes it."""
        await controller_known(self._admin)
        await self._admin.create_topics([NewTopic(topic, 1, 1)])

    async def delete(self, topics: Iterable[str]) -> None:
        await controller_known(self._admin)
        await self._admin.delete_topics(list(topics))

    async def ends(self, topic: str) -> dict[int, int]:
        """The offset after the last record of each partition."""
        places = await self._partitions(topic)
        ends = await self._consumer.end_offsets(places)
        return {where.partition: offset for where, offset in sorted(ends.items())}

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        numbers: list[int] = []

        async def known() -> bool:
            (description,) = await self._admin.describe_topics([topic])
            numbers[:] = [partition["partition"] for partition in description["partitions"]]
            return bool(numbers)

        await until(known, lambda: f"the partitions of {topic}")
        return [TopicPartition(topic, number) for number in numbers]

    async def records(self, topic: str) -> dict[int, list[Record]]:
        """All there is, by partition, and what comes meanwhile."""
        ends = await self.ends(topic)
        places = {number: TopicPartition(topic, number) for number in ends}
        self._consumer.assign(list(places.values()))
        await self._consumer.seek_to_beginning()
        read: dict[int, list[Record]] = {number: [] for number in ends}

        async def all_read() -> bool:
            for where, batch in (await self._consumer.getmany(timeout_ms=20)).items():
                read[where.partition] += [
                    Record(one.offset, one.key, one.value, one.headers) for one in batch
                ]
            positions = [await self._consumer.position(where) for where in places.values()]
            return all(map(int.__ge__, positions, ends.values()))

        await until(all_read, lambda: f"{topic} read up to {ends}")
        return read

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of each partition that the group has committed."""
        return {
            number: position.next_offset
            for number, position in (await self.positions(group, topic)).items()
        }

    async def positions(self, group: str, topic: str) -> dict[int, Commit]:
        places = await self._partitions(topic)
        try:
            found = await positions(self._admin._client, group, places)
        except _NOT_YET:
            return {}  # a fresh broker, whose first group has not come yet
        return {where.partition: commit for where, commit in found.items() if commit is not None}

    async def skip_to_the_end(self, group: str, topic: str) -> None:
        """What is on the topic now is not for this group, which has no members yet."""
        await self.move(group, topic, await self.ends(topic))

    async def move(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """To these offsets, whether the topic has them or not. The group has no members now."""
        async with AIOKafkaConsumer(
            bootstrap_servers=self._servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            places = {TopicPartition(topic, number): at for number, at in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)

    async def delete_before(self, topic: str, offset: int) -> None:
        """Of partition 0, as retention does it."""
        where = TopicPartition(topic, 0)
        await self._admin.delete_records({where: RecordsToDelete(before_offset=offset)})

    async def add_partitions(self, topic: str, count: int) -> None:
        await controller_known(self._admin)
        await self._admin.create_partitions({topic: NewPartitions(count)})

    async def until_committed(
        self, group: str, topic: str, offsets: Mapping[int, int], within_s: float = DEADLINE_S
    ) -> None:
        """Until the group has committed (at least) these; partitions without records are none of
        it.
        """
        wanted = {number: offset for number, offset in offsets.items() if offset}
        seen: dict[int, int] = {}

        async def reached() -> bool:
            nonlocal seen
            seen = await self.committed(group, topic)
            return all(seen.get(number, 0) >= offset for number, offset in wanted.items())

        await until(reached, lambda: f"{wanted} committed by {group}; it has {seen}", within_s)

    async def until_answered(self, topic: str, records: int, within_s: float = DEADLINE_S) -> None:
        """Until so many records are on the topic."""
        ends: dict[int, int] = {}

        async def reached() -> bool:
            nonlocal ends
            ends = await self.ends(topic)
            return sum(ends.values()) >= records

        await until(reached, lambda: f"{records} records on {topic}; it has {ends}", within_s)


@asynccontextmanager
async def broker_of(
    services: Services, isolation: str = "read_uncommitted"
) -> AsyncIterator[Broker]:
    broker = Broker(services.bootstrap_servers, isolation)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
