"""How a consumer group stands: its lag, and how many workers of its own it has.

Rule: asked by a client that is a member of no group. A member counts as the group's own unless its
client id says that it helps; a group that the broker does not know has nobody. Owner: who asks.
"""

from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.protocol.admin import DescribeGroupsRequest

from consumers import config
from consumers.adapters.kafka_client import answered_within, close, connection, start
from consumers.adapters.kafka_metadata import count_partitions
from consumers.adapters.kafka_positions import check_code, positions
from consumers.core.regions import Standing

# A broker that is well answers each of the questions within milliseconds.
LOOK_S: Final = 5.0
CLOSE_S: Final = 2.0


class GroupStanding:
    """`helpers`: how the client ids of those begin that help a group."""

    def __init__(self, settings: config.Kafka, helpers: str) -> None:
        self._settings = settings
        self._helpers = helpers
        self._consumer: AIOKafkaConsumer | None = None

    async def of(self, group: config.Kafka) -> Standing:
        """Of the group and the inputs of these settings. Raises `Transient`, or `Fatal`."""
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**connection(self._settings), enable_auto_commit=False)
            await start(consumer, self._settings, "a client that looks at other regions")
            self._consumer = consumer
        async with answered_within(f"a question about group {group.group}", LOOK_S):
            lag = await self._lag(self._consumer, group)
            return Standing(lag, await self._workers(self._consumer, group.group))

    async def _lag(self, consumer: Any, group: config.Kafka) -> int:
        parts = [
            TopicPartition(topic, number)
            for topic in group.inputs
            for number in range(await count_partitions(consumer._client, topic))
        ]
        committed = await positions(consumer._client, group.group, parts)
        ends = await consumer.end_offsets(parts)
        fresh = [part for part, commit in committed.items() if commit is None]
        begins = await consumer.beginning_offsets(fresh) if fresh else {}
        at = {
            part: begins[part] if commit is None else commit.next_offset
            for part, commit in committed.items()
        }
        return sum(max(0, ends[part] - at[part]) for part in parts)

    async def _workers(self, consumer: Any, group: str) -> int:
        client = consumer._client
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(node, DescribeGroupsRequest([group]))
        (described,) = answer.to_object()["groups"]
        check_code(described["error_code"])
        members = [member["client_id"] for member in described["members"]]
        return sum(not name.startswith(self._helpers) for name in members)

    async def stop(self) -> None:
        if self._consumer is not None:
            await close(self._consumer, CLOSE_S, "the end of a client that looks at other regions")
