"""Reads the positions of consumer groups, and sets some, without being a member.

Rule: a position is written here only where the group has no members, or no position yet; all others
are committed by the group's own members. Every request has a deadline and raises `Transient` past
it, and the caller asks again. Owner: the replay, the job, or the rekeyer.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import answered_within, connection, opened
from penstock.adapters.kafka.committed_positions import positions
from penstock.adapters.kafka.inside.handles import client_of
from penstock.errors import usage
from penstock.ports import Commit, Where

# The same as `kafka_source.QUESTION_S`.
QUESTION_S = 10.0


class Groups:
    """Get one from `open_groups`."""

    def __init__(self, settings: config.Kafka, consumer: AIOKafkaConsumer) -> None:
        self._settings = settings
        self._consumer = consumer

    async def positions(self, group: str, parts: Collection[Where]) -> Mapping[Where, Commit]:
        """What the group has committed. Partitions without a commit are left out."""
        asked = [TopicPartition(*part) for part in parts]
        async with answered_within(f"a question about group {group}", QUESTION_S):
            found = await positions(client_of(self._consumer), group, asked)
        return {Where(*part): commit for part, commit in found.items() if commit is not None}

    async def ends(
        self, parts: Iterable[Where], within_s: float = QUESTION_S
    ) -> Mapping[Where, int]:
        """The offset after the last record of each."""
        asked = [TopicPartition(*part) for part in parts]
        async with answered_within("a question about the ends of the input", within_s):
            found = await self._consumer.end_offsets(asked)
        return {Where(*part): end for part, end in found.items()}

    async def begin(self, group: str, commits: Mapping[Where, Commit]) -> None:
        """Commit positions. Kafka refuses this once the group has members: they have begun at
        positions of their own.
        """
        if not commits:
            return
        settings = self._settings
        consumer = AIOKafkaConsumer(
            **connection(settings), group_id=group, enable_auto_commit=False
        )
        said = {TopicPartition(*part): OffsetAndMetadata(*one) for part, one in commits.items()}
        async with opened(consumer, settings, f"the beginning of group {group}"):
            consumer.assign(list(said))
            async with answered_within(f"the beginning of group {group}", QUESTION_S):
                try:
                    await consumer.commit(said)
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
