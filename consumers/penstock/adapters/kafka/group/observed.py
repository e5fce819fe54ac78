"""Asks for a consumer group's lag, the number of its own workers, and the owner of each partition.

Rule: the client that asks is a member of no group. A member whose client id begins with the
helpers' prefix is no worker of the group's own. A group that the broker does not know has 0
workers.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors
from aiokafka.client import CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.protocol.admin import DescribeGroupsRequest

from penstock import config
from penstock.adapters.kafka.client import answered_within, check_code, close, connection, start
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.positions import parts_of, positions
from penstock.adapters.kafka.topics import count_partitions
from penstock.core.health.other_groups import RegionState
from penstock.ports import Where

# A healthy broker answers each of these requests within milliseconds.
LOOK_S: Final = 5.0
CLOSE_S: Final = 2.0


class _Looker:
    """The base of two classes that ask brokers about groups. Keeps a client, and starts it before
    the first question. `what`: the client's name in the texts of errors.
    """

    def __init__(self, settings: config.Kafka, what: str) -> None:
        self._settings = settings
        self._what = what
        self._consumer: AIOKafkaConsumer | None = None

    async def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(**connection(self._settings), enable_auto_commit=False)
            await start(consumer, self._settings, self._what)
            self._consumer = consumer
        return self._consumer

    async def stop(self) -> None:
        if self._consumer is not None:
            await close(self._consumer, CLOSE_S, f"the end of {self._what}")


class GroupStanding(_Looker):
    """Tells the lag of any group, and how many workers the group has, without its helpers.
    `helpers`: the prefix of the client ids of helpers, which are workers of another region.
    """

    def __init__(self, settings: config.Kafka, helpers: str) -> None:
        super().__init__(settings, "a client that looks at other regions")
        self._helpers = helpers

    async def of(self, group: config.Kafka) -> RegionState:
        """Asks about the group that these settings name. Raises `Transient` or `Fatal`."""
        consumer = await self._started()
        async with answered_within(f"a question about group {group.group}", LOOK_S):
            lag = await self._lag(consumer, group)
            members = await members_of(consumer, group.group)
            helping = (member["client_id"].startswith(self._helpers) for member in members)
            return RegionState(lag, len(members) - sum(helping))

    async def _lag(self, consumer: Any, group: config.Kafka) -> int:
        parts = await _parts(consumer, group)
        committed = await positions(client_of(consumer), group.group, parts)
        ends = await consumer.end_offsets(parts_of(parts))
        fresh = [part for part, commit in committed.items() if commit is None]
        begins = await consumer.beginning_offsets(parts_of(fresh)) if fresh else {}
        at = {
            part: begins[part] if commit is None else commit.next_offset
            for part, commit in committed.items()
        }
        return sum(max(0, ends[part] - at[part]) for part in parts)


class Placed(NamedTuple):
    """A partition of the group. `committed`: the next offset to read; None: nothing is committed.
    `end`: the offset that the next new record will get. `owner` and `host`: the id and the address
    of the member that has the partition; None: no member has it, or the broker does not tell.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    owner: str | None
    host: str | None


class GroupView(_Looker):
    """Shows all partitions of a group's inputs."""

    def __init__(self, settings: config.Kafka) -> None:
        super().__init__(settings, "a client that looks at the group")

    async def partitions(self) -> list[Placed]:
        """Raises `Transient`, `Fatal`, or aiokafka's errors."""
        consumer, group = await self._started(), self._settings.group
        owners = await self._owners(consumer)
        # With a pattern, only the members know which topics match it.
        every = sorted({*await _parts(consumer, self._settings), *owners})
        committed = await positions(client_of(consumer), group, every) if every else {}
        ends = await consumer.end_offsets(parts_of(every)) if every else {}
        places: list[Placed] = []
        for part in every:
            at, owner = committed[part], owners.get(part, (None, None))
            next_offset = None if at is None else at.next_offset
            places.append(Placed(part.topic, part.partition, next_offset, ends[part], *owner))
        return places

    async def _owners(self, consumer: Any) -> Mapping[Where, tuple[str, str]]:
        try:
            members = await members_of(consumer, self._settings.group)
        except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
            return {}
        return {
            Where(topic, number): (member["member_id"], member["client_host"].strip("/"))
            for member in members
            if member["member_assignment"]
            for topic, numbers in ConsumerProtocolMemberAssignment.decode(
                member["member_assignment"]
            ).assignment
            for number in numbers
        }


async def _parts(consumer: Any, settings: config.Kafka) -> list[Where]:
    return [
        Where(topic, number)
        for topic in settings.inputs
        for number in range(await count_partitions(client_of(consumer), topic))
    ]


async def members_of(consumer: Any, group: str) -> list[dict[str, Any]]:
    client = client_of(consumer)
    node = await client.coordinator_lookup(CoordinationType.GROUP, group)
    answer = await client.send(node, DescribeGroupsRequest([group]))
    (described,) = answer.to_object()["groups"]
    check_code(described["error_code"])
    members: list[dict[str, Any]] = described["members"]
    return members
