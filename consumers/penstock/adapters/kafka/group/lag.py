"""Asks for a consumer group's lag and for the number of its own workers.

Rule: the client that asks is a member of no group. A member counts as the group's own unless its
client id begins with the helpers' prefix; a group that the broker does not know has 0 workers.
Owner: the caller, which stops it.
"""

from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.protocol.admin import DescribeGroupsRequest

from penstock import config
from penstock.adapters.kafka.client import answered_within, close, connection, start
from penstock.adapters.kafka.committed_positions import check_code, positions
from penstock.adapters.kafka.inside.handles import client_of
from penstock.adapters.kafka.metadata import count_partitions
from penstock.core.health.region_needs_help import Standing

# A healthy broker answers each of these requests within milliseconds.
LOOK_S: Final = 5.0
CLOSE_S: Final = 2.0


class GroupStanding:
    """`helpers`: the prefix of the client ids of workers that help a group."""

    def __init__(self, settings: config.Kafka, helpers: str) -> None:
        self._settings = settings
        self._helpers = helpers
        self._consumer: AIOKafkaConsumer | None = None

    async def of(self, group: config.Kafka) -> Standing:
        """The standing of these settings' group on its inputs. Raises `Transient` or `Fatal`."""
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
            for number in range(await count_partitions(client_of(consumer), topic))
        ]
        committed = await positions(client_of(consumer), group.group, parts)
        ends = await consumer.end_offsets(parts)
        fresh = [part for part, commit in committed.items() if commit is None]
        begins = await consumer.beginning_offsets(fresh) if fresh else {}
        at = {
            part: begins[part] if commit is None else commit.next_offset
            for part, commit in committed.items()
        }
        return sum(max(0, ends[part] - at[part]) for part in parts)

    async def _workers(self, consumer: Any, group: str) -> int:
        client = client_of(consumer)
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await client.send(node, DescribeGroupsRequest([group]))
        (described,) = answer.to_object()["groups"]
        check_code(described["error_code"])
        members = [member["client_id"] for member in described["members"]]
        return sum(not name.startswith(self._helpers) for name in members)

    async def stop(self) -> None:
        if self._consumer is not None:
            await close(self._consumer, CLOSE_S, "the end of a client that looks at other regions")
