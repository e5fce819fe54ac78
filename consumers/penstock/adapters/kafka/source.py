"""Reads the input topics by aiokafka, as one member of the consumer group.

Rule: nothing is read before `assigned` has returned, and nothing is committed after `suspended` or
`revoked` has returned. A failure in the rebalance listener ends the worker, because aiokafka would
only log it. A rebalance may take `kafka.timeout_ms`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.assigned_partitions import (
    Listener,
    StartingPlaces,
)
from penstock.adapters.kafka.client import (
    COMMIT_S,
    LEAVE_S,
    REQUEST_TIMEOUT_MS,
    answered_within,
    close,
    connection,
    start,
    translated,
)
from penstock.adapters.kafka.error_codes import INVALID_COMMIT_OFFSET_SIZE, UNKNOWN_ERROR
from penstock.adapters.kafka.exactly_once.abandoned_transactions import Abandoned
from penstock.adapters.kafka.group.assignors import sticky
from penstock.adapters.kafka.group.leaving import leave_at_last
from penstock.adapters.kafka.group.membership import (
    FENCED_INSTANCE_ID,
    GO_ON,
    GroupMember,
    JoinDeadline,
    instance_of,
    refusal,
)
from penstock.adapters.kafka.inside.consumers import (
    WHOLE_MS,
    ask_patiently,
    ask_with_pauses,
    client_of,
    generation_of,
    member_of,
    name_each_request,
    watch_topics,
)
from penstock.adapters.kafka.positions import SourceQuestions, parts_of
from penstock.adapters.kafka.positions_from_outside import mark_obeyed
from penstock.adapters.kafka.topics import ask_for_inputs
from penstock.core.progress.line_stop import Word
from penstock.core.window.gathering import LEAST_MS, Gather
from penstock.errors import EXIT_UNREACHABLE, Fatal, Transient, Undecided
from penstock.messages.cloud_events import structured
from penstock.messages.traceparent import in_headers
from penstock.ports import UNDECIDED, Commit, Rebalance, Record, Where

log = logging.getLogger(__name__)

# The most records of one poll. References have about 300 bytes, so 500 take a few ms to decode.
MAX_RECORDS = 500
# If we do not poll for this long, aiokafka leaves the group. The time is a day, so that this never
# happens: not aiokafka but the watchdog judges whether the worker makes progress.
MAX_POLL_INTERVAL_MS = 86_400_000
# How often aiokafka asks which topics and partitions exist; its own default is five minutes. We ask
# more often for two reasons: the answer shows added partitions; and if a broker leaves the topic
# out of one answer, the group has no partitions until the next one.
METADATA_MAX_AGE_MS = 10_000
# During a rebalance aiokafka's `getmany` waits without a limit. So `poll` gives up the call when it
# has lasted this much longer than asked. Then `poll` checks for failures, and how long the
# rebalance has taken.
REBALANCE_LOOK_S = 1.0
NO_PARTITION = -1


class Gone(Exception):
    """The broker has no records at the positions `offsets`, and will never have any there."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = offsets


class KafkaSource(SourceQuestions):
    """`drain_ms`: the time that a revoke may take; the group waits 10 s longer, but never more than
    35 s. `client_id`: this member's name in the group. `isolation`: with "read_committed", records
    of open and of aborted transactions are left out. `leaves`: True if a member with an instance id
    leaves the group when it stops. `decided`: True if a position that an open transaction may still
    move is reported as `UNDECIDED`. `gather`: decides how long records may wait for others; None:
    they never do.
    """

    # How the group divides the partitions; None: by `sticky`.
    assignor: type[AbstractPartitionAssignor] | None = None

    def __init__(
        self,
        settings: config.Kafka,
        *,
        drain_ms: int,
        client_id: str | None = None,
        isolation: str | None = None,
        leaves: bool = False,
        decided: bool = False,
        gather: Gather | None = None,
    ) -> None:
        isolation = isolation or settings.isolation
        self._instance_id, self._leaves = instance_of(settings), leaves
        self._abandoned = Abandoned(settings.group) if decided else None
        rebalance_timeout_ms = min(drain_ms + 10_000, REQUEST_TIMEOUT_MS - 5_000)
        self._sticky = sticky()
        assignor = self.assignor or self._sticky
        consumer = AIOKafkaConsumer(
            **connection(settings) | ({"client_id": client_id} if client_id else {}),
            group_id=settings.group,
            group_instance_id=self._instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",  # `StartingPlaces` chooses the new position, and logs it
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            fetch_max_wait_ms=settings.fetch_wait_ms or WHOLE_MS,
            partition_assignment_strategy=(assignor,),
            client_rack=settings.client_rack,
            isolation_level=isolation,
        )
        super().__init__(consumer, settings, isolation=isolation, decided=decided)
        self._gather = gather
        self._places = StartingPlaces(self, self._timeout_s)
        self._commits = CommitParts(settings.group, _code_of)
        self._join_deadline = JoinDeadline(
            settings.group,
            partial(ask_for_inputs, client_of(consumer), settings),
            timeout_s=self._timeout_s,
            rebalance_s=rebalance_timeout_ms / 1000,
            session_s=settings.session_ms / 1000,
        )
        self._failure: BaseException | None = None
        self._rebalance: Rebalance | None = None
        self.assignments = 0
        self._joining_since_s: float | None = None
        self.has_stopped = False

    async def start(self, rebalance: Rebalance) -> None:
        await start(self._consumer, self._settings, "the start of the consumer")
        if self._settings.fetch_wait_ms is None:
            ask_patiently(self._consumer, self._gather)
        await ask_with_pauses(self._consumer, self.keep_failure)
        if self._instance_id is not None:
            fenced = partial(self.keep_failure, refusal(FENCED_INSTANCE_ID))
            name_each_request(self._consumer, fenced)
        self._rebalance = rebalance
        self.now_joining()
        # Either topics or a pattern is configured.
        topics, pattern = self._settings.inputs, self._settings.input_pattern
        listener = Listener(self, self._places, rebalance)
        self._consumer.subscribe(topics, pattern=pattern, listener=listener)

    async def poll(self, partitions: Collection[Where], wait_ms: int) -> Sequence[Record]:
        if self._gather is not None and (pause_s := self._gather.pause_s):
            # aiokafka asks for more only after the pause, so its first records wait twice.
            await asyncio.sleep(min(pause_s, LEAST_MS / 1000))
        self._check()
        if self._joining_since_s is not None:
            await self._join_deadline.check(self._joining_since_s)
        if (stale := self._incarnations.stale) and self._rebalance is not None:
            await self._places.leave_former(self.begun_anew(list(stale)), self._rebalance)
        wanted = [TopicPartition(*where) for where in partitions if where in self._ours]
        # If no partition is wanted, nothing is read. But during a rebalance we call aiokafka's
        # `getmany` in any case, because it raises the coordinator's errors.
        if not wanted and self._joining_since_s is None:
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        try:
            async with asyncio.timeout(wait_ms / 1000 + REBALANCE_LOOK_S):
                batches = await self._getmany(wanted, wait_ms)
        except TimeoutError:
            batches = {}
        except Gone as gone:
            for part, offset in gone.offsets.items():
                where = Where(*part)
                if where in self._ours and self._rebalance is not None:
                    await self._places.find(where, offset, self._rebalance)
            batches = {}
        self._check()
        records = [
            self.record(where, message)
            for part, messages in batches.items()
            for where in (Where(*part),)
            # aiokafka gives out records of a new assignment before its listener has returned.
            if where in self._ours
            for message in messages
        ]
        if self._gather is not None:
            self._gather.note(len(records), time.monotonic())
        return records

    @staticmethod
    def record(where: Where, message: Any) -> Record:
        """Make the pipeline's record from Kafka's message. Parts of the content that came in
        headers are put into the value.
        """
        return Record(
            where,
            message.offset,
            message.key,
            structured(message.value, message.headers) if message.headers else message.value,
            message.timestamp,
            in_headers(message.headers) if message.headers else None,
        )

    def member_of(self, topic: str) -> GroupMember:
        return member_of(self._consumer, self._settings.group, self._instance_id)

    async def rewind(self, partitions: Collection[Where]) -> Mapping[Where, Commit]:
        starts = await self.committed(partitions)
        ours = {where: start for where, start in starts.items() if where in self._ours}
        if self._abandoned is not None and UNDECIDED in ours.values():
            await self._abandoned.look(client_of(self._consumer))
            raise Undecided("a transaction of another worker is open")
        await self.seek(ours)
        with suppress(kafka_errors.IllegalStateError):
            self._consumer.resume(*parts_of(ours))
        return ours

    async def _getmany(self, wanted: list[TopicPartition], wait_ms: int) -> dict[Any, Any]:
        """Read the wanted partitions. `getmany` without partitions would read all of them. So if
        none is wanted, ask for a partition that does not exist.
        """
        try:
            with translated("a read of the input topic"):
                try:
                    records: dict[Any, Any] = await self._consumer.getmany(
                        *wanted or (TopicPartition(self._settings.input_topic, NO_PARTITION),),
                        timeout_ms=wait_ms,
                        max_records=MAX_RECORDS,
                    )
                    return records
                except kafka_errors.OffsetOutOfRangeError as error:
                    raise lost_records(error) from None
                except (kafka_errors.NoOffsetForPartitionError, kafka_errors.IllegalStateError):
                    # Before our `seek` had set a position, or the partition was just revoked.
                    return {}
        except Transient as error:
            self._check()
            # aiokafka retries by itself wherever a retry can help. An error that it raises here has
            # ended one of its tasks, and this member would never read again. So the worker stops.
            raise Fatal(f"{error}\n{GO_ON}", exit_code=EXIT_UNREACHABLE) from error

    async def commit(self, commits: Mapping[Where, Commit]) -> None:
        ours = {where: commit for where, commit in commits.items() if where in self._ours}
        if not ours or generation_of(self._consumer) is None:
            return  # a commit without a generation would seem to come from outside the group
        async with answered_within("the commit", min(COMMIT_S, self._timeout_s)):
            try:
                await self._commits.each(ours, self._commit_part)
            except (kafka_errors.CommitFailedError, kafka_errors.IllegalStateError):
                return  # the partitions have a new owner, which starts at the last commit

    async def _commit_part(self, commits: Mapping[Where, Commit]) -> None:
        await self._consumer.commit(
            {
                TopicPartition(*where): OffsetAndMetadata(*commit)
                for where, commit in commits.items()
            }
        )

    def pause(self, where: Where) -> None:
        # aiokafka raises this error if it has just handed the partition back. Then no pause is
        # needed.
        with suppress(kafka_errors.IllegalStateError):
            self._consumer.pause(TopicPartition(*where))

    async def mark_obeyed(self, where: Where, words: Collection[Word]) -> None:
        await mark_obeyed(self._settings, where, words)

    async def stop(self) -> None:
        if not self.has_stopped:
            self.has_stopped = True
            try:
                await close(self._consumer, LEAVE_S, "the end of the consumer")
            except Fatal:
                if self._joining_since_s is None:
                    raise
                log.warning("left in the middle of a rebalance: the group waits for the session")
            if self._leaves and self._instance_id is not None:
                await leave_at_last(self._settings, self._instance_id)

    def keep_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def now_ours(self, partitions: Collection[Where]) -> None:
        self._ours = set(partitions)
        self.assignments += 1
        # aiokafka tells an assignor which partitions a member got, but not in which generation. So
        # we tell our assignor the generation.
        if (generation := generation_of(self._consumer)) is not None:
            self._sticky.on_generation_assignment(generation)
        self._joining_since_s = None
        if self._instance_id is not None:
            watch_topics(self._consumer)

    def now_joining(self) -> None:
        self._ours = set()
        self.assignments += 1
        self._joining_since_s = asyncio.get_running_loop().time()

    async def seek(self, starts: Mapping[Where, Commit]) -> None:
        with suppress(kafka_errors.IllegalStateError):  # a partition was revoked meanwhile
            for where, commit in starts.items():
                if commit != UNDECIDED:
                    self._consumer.seek(TopicPartition(*where), commit.next_offset)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def lost_records(error: kafka_errors.OffsetOutOfRangeError) -> Exception:
    """The error itself, if it names no positions: then it is not about records."""
    return Gone(error.args[0]) if error.args else error


def _code_of(error: Exception) -> int | None:
    return error.errno if isinstance(error, kafka_errors.BrokerResponseError) else None


# Below the broker's default message.max.bytes of 1,048,588, as is every batch of ours.
COMMIT_BYTES: Final = 900_000
# What a position takes in the broker's batch besides the names and the metadata: numbers, the time
# and the id of the topic, and the frame of a record.
POSITION_BYTES: Final = 100
# The broker says one of these if a commit is too large as a whole. Brokers from 4.0 on say that
# they do not know the error.
_TOO_LARGE: Final = (UNKNOWN_ERROR, INVALID_COMMIT_OFFSET_SIZE)


class CommitParts:
    """Cuts the positions of many partitions into several commits. The broker keeps the positions of
    one commit as one batch of `__consumer_offsets`, about 250 partitions with the most metadata by
    its defaults. A commit refused as a whole is tried in halves, down to one partition, and later
    ones are no larger than what was taken. `code_of`: a function that gives the broker's code in a
    client's exception, or None.
    """

    def __init__(self, group: str, code_of: Callable[[Exception], int | None]) -> None:
        self._group = group
        self._code_of = code_of
        self._most_bytes = COMMIT_BYTES

    async def each(
        self,
        positions: Mapping[Where, Commit],
        commit: Callable[[dict[Where, Commit]], Awaitable[Any]],
    ) -> None:
        """Commit all positions, in as many commits as they need. If one fails, those behind it are
        not tried: the next commit has them all again.
        """
        waiting = list(parts(positions, self._group, self._most_bytes))[::-1]
        while waiting:
            part = waiting.pop()
            try:
                await commit(part)
            except Exception as error:
                if len(part) == 1 or self._code_of(error) not in _TOO_LARGE:
                    raise
                self._most_bytes = _bytes_of(part, self._group) // 2
                waiting += list(parts(part, self._group, self._most_bytes))[::-1]


def parts(
    positions: Mapping[Where, Commit], group: str, most_bytes: int = COMMIT_BYTES
) -> Iterator[dict[Where, Commit]]:
    """The positions in order, in parts of at most `most_bytes`, and at least one position each."""
    part: dict[Where, Commit] = {}
    room = most_bytes
    for where, position in positions.items():
        nbytes = _bytes_of({where: position}, group)
        if part and nbytes > room:
            yield part
            part, room = {}, most_bytes
        part[where] = position
        room -= nbytes
    if part:
        yield part


def _bytes_of(part: Mapping[Where, Commit], group: str) -> int:
    return sum(
        POSITION_BYTES + len(group) + len(where.topic) + len(position.metadata.encode())
        for where, position in part.items()
    )
