"""Asks brokers for a group's committed positions and for the ends of its input, and knows how far
the member has read. What operators say of stopped lines are commits of a second group.

Rule: only the broker's own -1 says that nothing is committed. A coordinator that is loading, or has
moved, sets the error code of the whole answer, which aiokafka does not check: it would return no
offsets, and every partition would begin again at its earliest record. So the request is made here.

An offset belongs to one incarnation of a topic, which its id tells. In the next one records before
the offset would never be read; so ids are asked for at each assignment and with each question about
the ends.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
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
from penstock.adapters.kafka.group.leaving import ConsumerTerms, consumer_terms
from penstock.adapters.kafka.inside.consumers import client_of, state_of
from penstock.adapters.kafka.requests import DecidedOffsets
from penstock.adapters.kafka.topics import ask_for_inputs, count_partitions, topic_ids
from penstock.errors import Transient
from penstock.ports import UNDECIDED, Commit, Where


class Incarnations:
    """`stale`: partitions that this member reads by a position of a former incarnation."""

    def __init__(self) -> None:
        self.stale: set[Where] = set()
        self._ids: dict[str, bytes] = {}
        # For each partition of this member: the incarnation that its position belongs to.
        self._begun: dict[Where, bytes | None] = {}

    def learn(self, ids: Mapping[str, bytes]) -> None:
        """Take the ids that topics have now."""
        self._ids |= ids
        self.stale = {
            where
            for where, former in self._begun.items()
            if former is not None and former != self._ids[where.topic]
        }

    def of(self, topic: str) -> str | None:
        """The topic's present id, as Kafka's own tools write it."""
        return text_of(self._ids.get(topic))

    def begin(self, partitions: Collection[Where], held: Collection[Where]) -> list[Where]:
        """Positions in `partitions` are of the present incarnation from now on. Returns those whose
        former position was not. `held`: the other partitions that this member has.
        """
        former = [where for where in partitions if where in self.stale]
        ids = {where: self._ids.get(where.topic) for where in partitions}
        self._begun = {where: self._begun.get(where) for where in held} | ids
        self.stale.intersection_update(held)
        self.stale.difference_update(partitions)
        return former


def text_of(id: bytes | None) -> str | None:
    """A topic's id as Kafka's own tools write it."""
    return None if id is None else urlsafe_b64encode(id).rstrip(b"=").decode()


NO_OFFSET = -1
UNSTABLE_OFFSET_COMMIT = 88
# When a transaction has ended, the broker writes the markers of the transaction within
# milliseconds. From then on the positions of the transaction are decided.
TRIES, TRY_AGAIN_S = 10, 0.03
# The deadline of the question for the group's session and heartbeat. This deadline is long, because
# the worker asks when it starts, and a broker may be busy then.
TERMS_S = 10.0


async def positions(
    client: AIOKafkaClient,
    group: str,
    partitions: Collection[Where],
    *,
    decided: bool = False,
) -> Mapping[Where, Commit | None]:
    """For each partition: the group's commit, or None if the broker says that nothing is committed.
    With `decided`, the value is `UNDECIDED` if an open transaction may still move the position.
    Raises aiokafka's errors, and `Transient` if the answer leaves out a partition.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    node = await client.coordinator_lookup(CoordinationType.GROUP, group)
    request = DecidedOffsets if decided else OffsetFetchRequest
    answer = await client.send(node, request(group, list(by_topic.items())))
    check_code(getattr(answer, "error_code", 0))  # answers before version 2 lack this code
    commits: dict[Where, Commit | None] = {}
    for topic, entries in DecidedOffsets.plain(answer) if decided else answer.topics:
        for number, offset, metadata, code in entries:
            if code == UNSTABLE_OFFSET_COMMIT:
                commits[Where(topic, number)] = UNDECIDED
                continue
            check_code(code)
            # confluent-kafka also writes into the metadata the zero byte that ends a C string.
            text = (metadata or "").rstrip("\0")
            commit = Commit(offset, text) if offset != NO_OFFSET else None
            commits[Where(topic, number)] = commit
    if missing := [where for where in partitions if where not in commits]:
        names = ", ".join(map(str, missing))
        raise Transient(f"Kafka did not say what group {group} has committed of {names}")
    return commits


async def decided_positions(
    client: AIOKafkaClient, group: str, partitions: Collection[Where]
) -> Mapping[Where, Commit | None]:
    """Ask for the group's positions. While any of them is undecided, ask again, for some 0.3 s."""
    commits: dict[Where, Commit | None] = dict.fromkeys(partitions, UNDECIDED)
    for _ in range(TRIES):
        asked = [where for where, commit in commits.items() if commit == UNDECIDED]
        commits |= await positions(client, group, asked, decided=True)
        if UNDECIDED not in commits.values():
            break
        await asyncio.sleep(TRY_AGAIN_S)
    return commits


def lines_group(group: str) -> str:
    """The name of a second group, which has no members. The commits of this second group hold the
    operator's words: they tell the workers of `group` what to do with partitions, or single
    streams, that have stopped.
    """
    return f"{group}.lines"


async def words(
    client: AIOKafkaClient, group: str, partitions: Collection[Where]
) -> Mapping[Where, str]:
    """The operator's words about each partition, undecoded. Partitions without such words are left
    out. `group`: the second group, whose commits hold the words.
    """
    commits = await positions(client, group, partitions)
    return {where: commit.metadata for where, commit in commits.items() if commit is not None}


class GroupPositions:
    """Asks for a group's positions. It uses a client of aiokafka, but serves the source by
    confluent-kafka, because confluent-kafka cannot send the request. `decided`: True if a position
    that an open transaction may still move is reported as `UNDECIDED`.
    """

    def __init__(self, settings: config.Kafka, *, decided: bool = False) -> None:
        self._settings = settings
        self._abandoned = Abandoned(settings.group) if decided else None
        self._admin = AIOKafkaAdminClient(**connection(settings))

    async def start(self) -> None:
        await start(self._admin, self._settings, "the start of the consumer")

    async def ask(self) -> None:
        """Raise `Transient` if the broker does not answer, or does not have the input topics."""
        await ask_for_inputs(client_of(self._admin), self._settings)

    async def terms(self) -> ConsumerTerms | None:
        """The group's session and heartbeat under the protocol `consumer`. None: the broker does
        not tell them to us.
        """
        async with answered_within("a question about the group's terms", TERMS_S):
            return await consumer_terms(client_of(self._admin), self._settings.group)

    async def committed(self, partitions: Collection[Where]) -> Mapping[Where, Commit | None]:
        ask = positions if self._abandoned is None else decided_positions
        return await ask(client_of(self._admin), self._settings.group, partitions)

    async def topic_ids(self, partitions: Iterable[Where]) -> Mapping[str, bytes]:
        return await topic_ids(client_of(self._admin), partitions)

    async def look_for_abandoned(self) -> None:
        """Abort transactions that a dead member left open. Call this again and again while a
        position waits for the end of a transaction.
        """
        if self._abandoned is not None:
            await self._abandoned.look(client_of(self._admin))

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        return await words(client_of(self._admin), lines_group(self._settings.group), partitions)

    async def partitions(self, topics: Collection[str]) -> int:
        """How many partitions the topics have together."""
        client = client_of(self._admin)
        return sum([await count_partitions(client, topic) for topic in topics])

    async def stop(self) -> None:
        await close(self._admin, LEAVE_S, "the end of the consumer")


def parts_of(partitions: Iterable[Where]) -> list[TopicPartition]:
    """The partitions as aiokafka names them."""
    return [TopicPartition(*where) for where in partitions]


# The deadline of a question about positions. A healthy broker answers within milliseconds. A broker
# that is loading its log answers at once that it is loading.
QUESTION_S = 10.0
# The deadline of a question for ends. It is shorter than `QUESTION_S`, because the worker asks for
# the ends every two seconds.
END_OFFSETS_S = 5.0


class SourceQuestions:
    """The base class of `KafkaSource`. `KafkaSource` keeps `_ours` up to date. A question to the
    broker that is not answered by its deadline raises `Transient`. `decided`: if True, only decided
    positions are reported; if an open transaction may still move a position, `UNDECIDED` is
    reported instead.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        settings: config.Kafka,
        *,
        isolation: str,
        decided: bool,
    ) -> None:
        self._consumer = consumer
        self._settings = settings
        self._timeout_s = settings.timeout_ms / 1000
        self._decided = decided
        # aiokafka's field for the end of what can be read: the log's end or, with "read_committed",
        # the beginning of the first open transaction.
        self._end = "lso" if isolation == "read_committed" else "highwater"
        # The partitions that this member has now.
        self._ours: set[Where] = set()
        self._incarnations = Incarnations()

    def topic_id(self, where: Where) -> str | None:
        return self._incarnations.of(where.topic)

    def partitions(self) -> int:
        topics = self._settings.inputs or self._consumer.subscription()
        return sum(len(self._consumer.partitions_for_topic(topic) or ()) for topic in topics)

    async def committed(self, partitions: Collection[Where]) -> dict[Where, Commit]:
        """For each partition: the position that the group has committed, or the position of the
        earliest record if the group has committed nothing. Raises `Transient`.
        """
        what = "a question about the committed offsets"
        async with answered_within(what, min(QUESTION_S, self._timeout_s)):
            commits = await self.group_positions(partitions)
            fresh = [where for where, commit in commits.items() if commit is None]
            begins = await self._consumer.beginning_offsets(parts_of(fresh)) if fresh else {}
        return {where: commit or Commit(begins[where]) for where, commit in commits.items()}

    async def group_positions(self, wanted: Collection[Where]) -> Mapping[Where, Commit | None]:
        ask = decided_positions if self._decided else positions
        return await ask(client_of(self._consumer), self._settings.group, wanted)

    async def made_again(self, partitions: Collection[Where]) -> Collection[Where]:
        what = "a question about the input topic"
        async with answered_within(what, min(QUESTION_S, self._timeout_s)):
            self._incarnations.learn(await topic_ids(client_of(self._consumer), partitions))
        return self.begun_anew(partitions)

    def begun_anew(self, partitions: Collection[Where]) -> list[Where]:
        return self._incarnations.begin(partitions, self._ours)

    async def words(self, partitions: Collection[Where]) -> Mapping[Where, str]:
        wanted = [where for where in partitions if where in self._ours]
        client = client_of(self._consumer)
        async with answered_within("a question about stopped lines", QUESTION_S):
            return await words(client, lines_group(self._settings.group), wanted)

    async def span(self, where: Where) -> tuple[int, int]:
        part = TopicPartition(*where)
        async with answered_within("a question about the ends of a partition", QUESTION_S):
            begins = await self._consumer.beginning_offsets([part])
            ends = await self._consumer.end_offsets([part])
        return begins[part], ends[part]

    async def end_offsets(self) -> Mapping[Where, int]:
        ours = self._ours
        async with answered_within("a question about the end of the input topic", END_OFFSETS_S):
            self._incarnations.learn(await topic_ids(client_of(self._consumer), ours))
            ends = await self._consumer.end_offsets(parts_of(ours))
        return {where: ends[where] for where in ours}

    def reached(self) -> Mapping[Where, int]:
        states = self._states()
        return {each: state.position for each, state in states if state.has_valid_position}

    def known_ends(self) -> Mapping[Where, int]:
        """The ends of our partitions, as the last answers to fetch requests told them.
        `end_offsets` asks the broker; this property does not.
        """
        ends = ((each, getattr(state, self._end)) for each, state in self._states())
        return {each: end for each, end in ends if end}

    def _states(self) -> list[tuple[Where, Any]]:
        states = [(each, state_of(self._consumer, each)) for each in self._ours]
        return [(each, state) for each, state in states if state is not None]
