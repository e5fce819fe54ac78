"""Makes the commits, and asks for the group's positions and the ends of partitions.

Rule: each call has a deadline. Calls of librdkafka run on the thread of the reads, so they wait for
the end of the current read. A partition begins at its earliest record only if the broker says that
nothing is committed.

aiokafka, not librdkafka, asks two of the questions. It asks for the group's positions, because
confluent-kafka 2.16 reads a commit's metadata beyond its end, and a cursor with stray bytes after
it cannot be decoded. It also asks for the number of partitions, because confluent-kafka's
`list_topics`, if it were called in a rebalance, would overwrite the state of the read that is under
way, and the next callback would abort the process. Owner: the source.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.adapters.confluent.consumer_thread import Handle
from penstock.adapters.confluent.errors import NO_MEMBER, of_ours, translated
from penstock.adapters.confluent.partitions import AssignedPartitions, PartitionNames
from penstock.adapters.kafka.client import COMMIT_S, answered_within
from penstock.adapters.kafka.commit_parts import CommitParts
from penstock.adapters.kafka.incarnations import Incarnations
from penstock.adapters.kafka.positions import END_OFFSETS_S, QUESTION_S, GroupPositions
from penstock.ports import Commit

T = TypeVar("T")

# In a ListOffsets request these numbers stand for the earliest offset and for the next offset, the
# one after the last record.
EARLIEST, NEXT = -2, -1
# The pause before we try a commit again. Meanwhile the member may get a new epoch.
EPOCH_S = 0.1
ENDS = "a question about the ends of partitions"


class BrokerCalls:
    def __init__(
        self,
        handle: Handle,
        ours: AssignedPartitions,
        group: GroupPositions,
        names: PartitionNames,
        group_name: str,
        timeout_s: float,
    ) -> None:
        self._handle = handle
        self._ours = ours
        self._group = group
        self._names = names
        self._incarnations = Incarnations()
        self._limit_s = min(QUESTION_S, timeout_s)
        self._commit_s = min(COMMIT_S, timeout_s)
        self._commits = CommitParts(group_name, _code_of)

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        try:
            async with answered_within("the commit", self._commit_s):
                await self._committed(commits)
        except KafkaException as error:
            # If this member has lost its partitions, the failure does no harm: their new owner
            # starts at the last commit.
            if error.args[0].code() not in NO_MEMBER:
                raise of_ours("the commit", error.args[0]) from error

    async def _committed(self, commits: Mapping[int, Commit]) -> None:
        """Commit, and repeat the commit while the broker refuses our epoch. A member learns its new
        epoch by its next heartbeat; before that heartbeat, the broker refuses its commits
        (KIP-848). Under the new epoch the broker would accept a commit even for a partition that
        another member has now. So partitions that were revoked meanwhile are not committed again.
        """
        held = self._ours.held(commits)
        while ours := self._ours.still(held):
            positions = {self._names.named(one): commits[one] for one in ours}
            try:
                await self._commits.each(positions, self._commit_part)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH:
                    raise
                await asyncio.sleep(EPOCH_S)
            else:
                return

    async def _commit_part(self, positions: Mapping[Any, Commit]) -> None:
        offsets = [
            TopicPartition(topic, number, *position)
            for (topic, number), position in positions.items()
        ]
        work = partial(self._handle.consumer.commit, offsets=offsets, asynchronous=False)
        _check_each(await self._handle.call(work))

    async def committed(self, partitions: Collection[int]) -> dict[int, Commit]:
        """For each partition: the position that the group has committed, or the position of the
        earliest record if the group has committed nothing. With exactly once, the value is
        `UNDECIDED` if an open transaction may still move the position.
        """
        what = "a question about the committed offsets"
        named = {self._names.named(number): number for number in partitions}
        async with answered_within(what, self._limit_s):
            found = await self._group.committed(named)
        starts = {named[where]: commit for where, commit in found.items() if commit is not None}
        fresh = [number for number in partitions if number not in starts]
        begins = await self._offsets(fresh, EARLIEST, self._limit_s) if fresh else {}
        return starts | {number: Commit(offset) for number, offset in begins.items()}

    async def words(self, partitions: Collection[int]) -> dict[int, str]:
        named = {self._names.named(number): number for number in partitions}
        async with answered_within("a question about stopped lines", QUESTION_S):
            said = await self._group.words(named)
        return {named[where]: text for where, text in said.items()}

    async def span(self, partition: int) -> tuple[int, int]:
        begins = await self._offsets([partition], EARLIEST, self._limit_s)
        ends = await self._offsets([partition], NEXT, self._limit_s)
        return begins[partition], ends[partition]

    async def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """For each partition: the offset after its last record. The deadline is short, because the
        worker asks this question every two seconds.
        """
        async with answered_within(ENDS, END_OFFSETS_S):
            ids = await self._group.topic_ids(map(self._names.named, partitions))
        self._incarnations.learn(ids)
        return await self._offsets(partitions, NEXT, END_OFFSETS_S)

    async def made_again(self, partitions: Collection[int]) -> Collection[int]:
        """Those of the partitions whose topic was made again since this member had them."""
        async with answered_within("a question about the input topic", self._limit_s):
            ids = await self._group.topic_ids(map(self._names.named, partitions))
        self._incarnations.learn(ids)
        return self._begun_anew([self._names.named(number) for number in partitions])

    def topic_id(self, partition: int) -> str | None:
        return self._incarnations.of(self._names.named(partition).topic)

    def noticed_again(self) -> Collection[int]:
        """As `made_again` of all partitions, by the last question about their ends."""
        stale = list(self._incarnations.stale)
        return self._begun_anew(stale) if stale else ()

    def _begun_anew(self, places: list[Any]) -> list[int]:
        held = [self._names.named(number) for number in self._ours.all()]
        return [self._names.number(each) for each in self._incarnations.begin(places, held)]

    async def partitions(self) -> int:
        """How many partitions the topics have together."""
        async with answered_within("a question about the input topic", self._limit_s):
            return await self._group.partitions(self._handle.topics)

    async def _offsets(self, partitions: Collection[int], which: int, s: float) -> dict[int, int]:
        wanted = [self._names.place(number, which) for number in partitions]
        with translated(ENDS):
            work = partial(self._handle.consumer.offsets_for_times, wanted, timeout=s)
            found = await self._ask(ENDS, work, s)
            _check_each(found)
        return {self._names.number(one): one.offset for one in found}

    async def _ask(self, what: str, work: Callable[[], T], limit_s: float) -> T:
        async with answered_within(what, limit_s):
            return await self._handle.call(work)


def _check_each(places: Any) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _code_of(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None
