"""Reads and writes positions of consumer groups for commands, which are no members.

Rule: while the group has members, Kafka refuses the commit of a command. One process at a time may
write a position, because a later write replaces an earlier one.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import answered_within, connection, opened, within
from penstock.adapters.kafka.group.observed import members_of
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.positions import lines_group, parts_of, positions, words
from penstock.core.progress.line_stop import MOST_WORDS, Word, decode_words, encode_words, obeyed
from penstock.errors import usage
from penstock.ports import Commit, Where

# The deadline of one question, the same as that of a source (`positions.QUESTION_S`).
QUESTION_S = 10.0


class Groups:
    """Reads and writes the positions of any group. Get one from `open_groups`. A call that is not
    answered in time raises `Transient`, and the caller repeats the call.
    """

    def __init__(self, settings: config.Kafka, consumer: AIOKafkaConsumer) -> None:
        self._settings = settings
        self._consumer = consumer

    async def positions(self, group: str, parts: Collection[Where]) -> Mapping[Where, Commit]:
        """The group's commit for each partition. Partitions without a commit are left out."""
        async with answered_within(f"a question about group {group}", QUESTION_S):
            commits = await positions(client_of(self._consumer), group, parts)
        return {part: commit for part, commit in commits.items() if commit is not None}

    async def ends(
        self, parts: Iterable[Where], within_s: float = QUESTION_S
    ) -> Mapping[Where, int]:
        """The offset after the last record of each partition."""
        async with answered_within("a question about the ends of the input", within_s):
            ends = await self._consumer.end_offsets(parts_of(parts))
        return {Where(*part): end for part, end in ends.items()}

    async def workers(self) -> int | None:
        """How many members the group has. None: the broker does not tell, as of each group by the
        newer protocol.
        """
        if self._settings.group_protocol == "consumer":
            return None
        group = self._settings.group
        async with answered_within(f"a question about group {group}", QUESTION_S):
            try:
                return len(await members_of(self._consumer, group))
            except (kafka_errors.IncompatibleBrokerVersion, NotImplementedError):
                return None

    async def begin(self, group: str, commits: Mapping[Where, Commit]) -> None:
        """Commit positions for a group that has none yet: the group will begin there. If the group
        has members, they have already begun at other positions, so this raises `Fatal`.
        """
        if not commits:
            return
        offsets = {
            TopicPartition(*part): OffsetAndMetadata(*commit) for part, commit in commits.items()
        }
        what = f"the beginning of group {group}"
        async with opened(member_of_none(self._settings, group), self._settings, what) as consumer:
            consumer.assign(list(offsets))
            async with answered_within(what, QUESTION_S):
                try:
                    await consumer.commit(offsets)
                except kafka_errors.CommitFailedError as error:
                    raise usage(
                        f"group {group} has members already, and no positions yet: another start "
                        "is under way. Start again in a few seconds."
                    ) from error


@asynccontextmanager
async def open_groups(
    settings: config.Kafka, isolation: str = "read_uncommitted"
) -> AsyncIterator[Groups]:
    """`isolation`: with "read_committed" a partition ends before the first open transaction."""
    consumer = AIOKafkaConsumer(
        **connection(settings), enable_auto_commit=False, isolation_level=isolation
    )
    async with opened(consumer, settings, "the questions about groups"):
        yield Groups(settings, consumer)


class KeptPositions:
    """A command's own positions in one topic, which the command keeps in Kafka for its next start.
    They are the commits of a group without members. Get one from `open_positions`.
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, group: str, parts: list[TopicPartition], timeout_s: float
    ) -> None:
        self._consumer = consumer
        self._group = group
        self._parts = parts
        self._timeout_s = timeout_s

    async def read(self) -> dict[int, Commit]:
        """The position in each partition. Partitions without a position are left out."""
        async with within(f"a question about group {self._group}", self._timeout_s):
            commits = await positions(client_of(self._consumer), self._group, self._parts)
        return {part.partition: commit for part, commit in commits.items() if commit is not None}

    async def write(self, commits: Mapping[int, Commit]) -> None:
        """Write all of these positions with one request."""
        topic = self._parts[0].topic
        offsets = {
            TopicPartition(topic, n): OffsetAndMetadata(*commit) for n, commit in commits.items()
        }
        async with within(f"the position in group {self._group}", self._timeout_s):
            try:
                await self._consumer.commit(offsets)
            except kafka_errors.CommitFailedError as error:
                raise usage(
                    f"group {self._group} keeps a position of penstock produce, but has members; "
                    "end them"
                ) from error

    async def spans(self) -> dict[int, tuple[int, int]]:
        """For each partition: its first offset, and the offset after its last record."""
        async with within(f"a question about topic {self._parts[0].topic}", self._timeout_s):
            begins = await self._consumer.beginning_offsets(self._parts)
            ends = await self._consumer.end_offsets(self._parts)
        return {part.partition: (begins[part], ends[part]) for part in self._parts}


@asynccontextmanager
async def open_positions(
    settings: config.Kafka, group: str, topic: str, partitions: Collection[int]
) -> AsyncIterator[KeptPositions]:
    consumer = member_of_none(settings, group)
    parts = [TopicPartition(topic, number) for number in partitions]
    async with opened(consumer, settings, "the position of a listing"):
        consumer.assign(parts)
        consumer.pause(*parts)  # else it would fetch the records of the topic
        yield KeptPositions(consumer, group, parts, settings.timeout_ms / 1000)


def member_of_none(settings: config.Kafka, group: str) -> AIOKafkaConsumer:
    """A consumer that may commit for the group without joining it, because the consumer assigns
    itself partitions.
    """
    return AIOKafkaConsumer(**connection(settings), group_id=group, enable_auto_commit=False)


Change = Callable[[list[Word]], list[Word]]

# Between a write and the look whether it has held: longer than another process takes from its read
# to its write. The pauses differ, so that of several processes one is the last to write.
READ_BACK_S = (0.3, 0.9)
# Between two looks whether a worker has obeyed.
LOOK_S = 0.5


async def tell_stopped_lines(settings: config.Kafka, new_words: Mapping[Where, Word]) -> None:
    """Tell the group's workers what to do with partitions, or single streams, that have stopped.
    Returns when the words have held. Raises `Fatal` if too many words about a partition wait.
    """

    def adds(word: Word) -> Change:
        def change(known: list[Word]) -> list[Word]:
            if any(other[:4] == word[:4] for other in known):
                return known  # a worker may have obeyed it already
            if sum(not other.is_done for other in known) >= MOST_WORDS:
                raise usage(
                    f"{MOST_WORDS} words about a partition wait for its worker, and no more are "
                    "kept: is a worker running? Say this again when they are obeyed"
                )
            return [*known, word]

        return change

    await _change(settings, {where: adds(word) for where, word in new_words.items()})


async def mark_obeyed(settings: config.Kafka, where: Where, done: Collection[Word]) -> None:
    await _change(settings, {where: lambda known: obeyed(known, done)})


async def obeyed_words(
    settings: config.Kafka, new_words: Mapping[Where, Word], within_s: float
) -> Collection[Where]:
    """Wait until workers have obeyed the words, or the time has passed. Returns the partitions
    whose words were obeyed.
    """
    group = lines_group(settings.group)
    consumer = member_of_none(settings, group)
    left = dict(new_words)
    done: list[Where] = []
    async with opened(consumer, settings, "a question about stopped lines"):
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while left:
                    texts = await words(client_of(consumer), group, left)
                    for where, word in list(left.items()):
                        known = decode_words(texts.get(where, ""))
                        if any(other.is_done and other[:4] == word[:4] for other in known):
                            del left[where]
                            done.append(where)
                    await asyncio.sleep(LOOK_S if left else 0.0)
    return done


async def _change(settings: config.Kafka, changes: Mapping[Where, Change]) -> None:
    group = lines_group(settings.group)
    consumer = member_of_none(settings, group)
    left = dict(changes)
    what = "a word about stopped lines"
    async with (
        opened(consumer, settings, what),
        within(what, settings.timeout_ms / 1000),
    ):
        consumer.assign(parts_of(left))
        consumer.pause(*parts_of(left))  # else it would fetch the records of the topic
        while left:
            texts = await words(client_of(consumer), group, left)
            new = {where: _changed(texts.get(where, ""), change) for where, change in left.items()}
            left = {where: change for where, change in left.items() if new[where] is not None}
            if left:
                # The offset means nothing. Kafka only keeps metadata together with an offset.
                words_of = {part: OffsetAndMetadata(0, new[part]) for part in parts_of(left)}
                await consumer.commit(words_of)
                await asyncio.sleep(random.uniform(*READ_BACK_S))


def _changed(text: str, change: Change) -> str | None:
    """The text after the change; None if it is as it must be."""
    known = decode_words(text)
    changed = change(known)
    return None if changed == known else encode_words(changed)
