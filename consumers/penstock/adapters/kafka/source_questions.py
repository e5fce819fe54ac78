"""The questions of a source: where the group is, how far this member has read, where the input
ends.

Rule: nothing here joins, reads or commits. A question to the broker has a deadline and raises
`Transient` past it. Owner: the source.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from penstock import config
from penstock.adapters.kafka.client import answered_within
from penstock.adapters.kafka.committed_positions import decided_positions, positions, words
from penstock.adapters.kafka.inside.handles import client_of, state_of
from penstock.adapters.kafka.partition_numbers import Numbers
from penstock.ports import Commit, Where

# A healthy broker answers where the group is within milliseconds; one that is loading its log says
# at once that it is loading.
QUESTION_S = 10.0
# Shorter than `QUESTION_S`, because the ends are asked for every two seconds.
END_OFFSETS_S = 5.0


class SourceQuestions:
    """The base of `KafkaSource`, which keeps `_ours` up to date. `decided`: True if a position that
    an open transaction may still move is reported as `UNDECIDED`.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        settings: config.Kafka,
        numbers: Numbers,
        *,
        isolation: str,
        decided: bool,
    ) -> None:
        self._consumer = consumer
        self._settings = settings
        self._numbers = numbers
        self._timeout_s = settings.timeout_ms / 1000
        self._decided = decided
        # aiokafka's field for the end of what can be read: the log's end or, with "read_committed",
        # the beginning of the first open transaction.
        self._end = "lso" if isolation == "read_committed" else "highwater"
        # The numbers of the partitions that this member has now.
        self._ours: set[int] = set()

    def where(self, partition: int) -> Where:
        return Where(*self._numbers.of(partition))

    def partitions(self) -> int:
        topics = self._settings.inputs or self._consumer.subscription()
        return sum(len(self._consumer.partitions_for_topic(topic) or ()) for topic in topics)

    async def committed(self, partitions: Iterable[int]) -> dict[int, Commit]:
        """The group's commits; for a partition without a commit, its earliest record. Raises
        `Transient`.
        """
        wanted = [self._numbers.of(number) for number in partitions]
        what = "a question about the committed offsets"
        async with answered_within(what, min(QUESTION_S, self._timeout_s)):
            found = await self.group_positions(wanted)
            fresh = [where for where, commit in found.items() if commit is None]
            begins = await self._consumer.beginning_offsets(fresh) if fresh else {}
        return {
            self._numbers.number(where): commit or Commit(begins[where])
            for where, commit in found.items()
        }

    async def group_positions(
        self, wanted: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        ask = decided_positions if self._decided else positions
        return await ask(client_of(self._consumer), self._settings.group, wanted)

    async def words(self, partitions: Collection[int]) -> Mapping[int, str]:
        wanted = [self._numbers.of(number) for number in partitions if number in self._ours]
        client = client_of(self._consumer)
        async with answered_within("a question about stopped lines", QUESTION_S):
            said = await words(client, self._settings.group, wanted)
        return {self._numbers.number(where): text for where, text in said.items()}

    async def span(self, partition: int) -> tuple[int, int]:
        where = self._numbers.of(partition)
        async with answered_within("a question about the ends of a partition", QUESTION_S):
            begins = await self._consumer.beginning_offsets([where])
            ends = await self._consumer.end_offsets([where])
        return begins[where], ends[where]

    async def end_offsets(self) -> Mapping[int, int]:
        wanted = [self._numbers.of(number) for number in self._ours]
        async with answered_within("a question about the end of the input topic", END_OFFSETS_S):
            ends = await self._consumer.end_offsets(wanted)
        return {self._numbers.number(where): offset for where, offset in ends.items()}

    def reached(self) -> Mapping[int, int]:
        states = self._states()
        return {each: state.position for each, state in states if state.has_valid_position}

    def known_ends(self) -> Mapping[int, int]:
        """The ends of our partitions, as the last answers to fetch requests gave them. The broker
        is not asked, unlike in `end_offsets`.
        """
        ends = ((each, getattr(state, self._end)) for each, state in self._states())
        return {each: end for each, end in ends if end}

    def _states(self) -> list[tuple[int, Any]]:
        found = [(each, state_of(self._consumer, self._numbers.of(each))) for each in self._ours]
        return [(each, state) for each, state in found if state is not None]
