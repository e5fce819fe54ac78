"""Asks the broker for a group's committed positions, and never takes an error for "none".

Rule: only the broker's own -1 says that nothing is committed. aiokafka's functions check the error
code of each partition, but not the code of the whole answer. A coordinator that is loading its log,
or has moved, sets only the code of the whole answer. Then aiokafka would return no offsets, and
every partition would begin again at its earliest record. So the request is made here. Owner: the
source.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.commit import OffsetFetchRequest

from penstock import config
from penstock.adapters.kafka.client import (
    LEAVE_S,
    answered_within,
    check_code,
    close,
    connection,
    start,
)
from penstock.adapters.kafka.exactly_once.abandoned_transactions import Abandoned
from penstock.adapters.kafka.group.consumer_terms import ConsumerTerms, consumer_terms
from penstock.adapters.kafka.inside.handles import client_of
from penstock.adapters.kafka.requests import DecidedOffsets
from penstock.adapters.kafka.topics import ask_for_inputs, count_partitions
from penstock.errors import Transient
from penstock.ports import UNDECIDED, Commit

NO_OFFSET = -1
UNSTABLE_OFFSET_COMMIT = 88
# The broker writes the markers of an ended transaction, which decide its positions, within
# milliseconds.
TRIES, TRY_AGAIN_S = 10, 0.03
# Long, because the question is asked at the start, when a broker may be busy.
TERMS_S = 10.0


async def positions(
    client: AIOKafkaClient,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    decided: bool = False,
) -> Mapping[TopicPartition, Commit | None]:
    """For each partition the group's commit, or None if the broker says that there is none. With
    `decided`, a partition whose position an open transaction may move has `UNDECIDED`. Raises
    aiokafka's errors, and `Transient` if the answer leaves out a partition.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    node = await client.coordinator_lookup(CoordinationType.GROUP, group)
    request = DecidedOffsets if decided else OffsetFetchRequest
    answer = await client.send(node, request(group, list(by_topic.items())))
    check_code(getattr(answer, "error_code", 0))  # answers have it from version 2 on
    found: dict[TopicPartition, Commit | None] = {}
    for topic, entries in DecidedOffsets.plain(answer) if decided else answer.topics:
        for number, offset, metadata, code in entries:
            if code == UNSTABLE_OFFSET_COMMIT:
                found[TopicPartition(topic, number)] = UNDECIDED
                continue
            check_code(code)
            # confluent-kafka also writes into the metadata the zero byte that ends a C string.
            text = (metadata or "").rstrip("\0")
            commit = Commit(offset, text) if offset != NO_OFFSET else None
            found[TopicPartition(topic, number)] = commit
    if missing := [where for where in partitions if where not in found]:
        raise Transient(f"Kafka did not say what group {group} has committed of {missing}")
    return found


async def decided_positions(
    client: AIOKafkaClient, group: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, Commit | None]:
    """Ask for `positions`, and for a moment ask again while some of them are undecided."""
    found: dict[TopicPartition, Commit | None] = dict.fromkeys(partitions, UNDECIDED)
    for _ in range(TRIES):
        asked = [where for where, at in found.items() if at == UNDECIDED]
        found |= await positions(client, group, asked, decided=True)
        if UNDECIDED not in found.values():
            break
        await asyncio.sleep(TRY_AGAIN_S)
    return found


def lines_group(group: str) -> str:
    """The name of the group whose commits hold what people said about stopped lines. This group has
    no members.
    """
    return f"{group}.lines"


async def words(
    client: AIOKafkaClient, group: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, str]:
    """What people have said about stopped lines; partitions about which they said nothing are left
    out.
    """
    found = await positions(client, lines_group(group), partitions)
    return {where: commit.metadata for where, commit in found.items() if commit is not None}


class GroupPositions:
    """A group's positions by a client of aiokafka, for a source whose own library cannot send the
    request. `decided`: True if a position that an open transaction may still move is reported as
    `UNDECIDED`.
    """

    def __init__(self, settings: config.Kafka, *, decided: bool = False) -> None:
        self._settings = settings
        self._abandoned = Abandoned(settings.group) if decided else None
        self._admin = AIOKafkaAdminClient(**connection(settings))

    async def start(self) -> None:
        await start(self._admin, self._settings, "the start of the consumer")

    async def ask(self) -> None:
        """Raises `Transient` unless the broker answers and has the input topics."""
        await ask_for_inputs(client_of(self._admin), self._settings)

    async def terms(self) -> ConsumerTerms | None:
        """Session and heartbeat under the protocol `consumer`. None: the broker does not tell them
        to us.
        """
        async with answered_within("a question about the group's terms", TERMS_S):
            return await consumer_terms(client_of(self._admin), self._settings.group)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        ask = positions if self._abandoned is None else decided_positions
        return await ask(client_of(self._admin), self._settings.group, partitions)

    async def look_for_abandoned(self) -> None:
        """Call this while a position waits for the end of a transaction."""
        if self._abandoned is not None:
            await self._abandoned.look(client_of(self._admin))

    async def words(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        return await words(client_of(self._admin), self._settings.group, partitions)

    async def partitions(self, topics: Collection[str]) -> int:
        """How many partitions the topics have together."""
        client = client_of(self._admin)
        return sum([await count_partitions(client, topic) for topic in topics])

    async def stop(self) -> None:
        await close(self._admin, LEAVE_S, "the end of the consumer")
