"""The input topic by aiokafka: one member of the consumer group.

Rule: nothing is read before `assigned` returned, nothing is committed after `revoked` returned; a
listener that fails ends the worker, because aiokafka itself would log it and go on. A rebalance may
take `kafka.timeout_ms`; no call outlasts its own deadline. Owner: the consume task polls; commits
come from settle.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from consumers import config
from consumers.adapters.kafka_client import (
    COMMIT_S,
    LEAVE_S,
    REQUEST_TIMEOUT_MS,
    answered_within,
    close,
    connection,
    start,
    translated,
)
from consumers.adapters.kafka_positions import positions
from consumers.errors import EXIT_UNREACHABLE, Fatal, Transient
from consumers.ports import Commit, Rebalance, Record

log = logging.getLogger(__name__)

# A killed worker's partitions move after this; 6 s is the broker's minimum
# (group.min.session.timeout.ms).
SESSION_TIMEOUT_MS = 8_000
HEARTBEAT_INTERVAL_MS = 2_000
# aiokafka's default of 500 is a latency floor for quiet partitions.
FETCH_MAX_WAIT_MS = 20
# References are about 300 bytes: 500 are a few ms of decoding.
MAX_RECORDS = 500
# The watchdog of the pipeline judges progress, not the time between polls.
MAX_POLL_INTERVAL_MS = 86_400_000
# aiokafka waits for a rebalance however long it takes; looked after that often.
REBALANCE_LOOK_S = 1.0
NO_PARTITION = -1
# A broker that is well answers where the group is within milliseconds; one that loads its log says
# so at once.
QUESTION_S = 10.0
ASK_AGAIN_S = 0.2
# For the metrics page, which must not keep its reader waiting.
END_OFFSETS_S = 5.0


class KafkaSource:
    """`drain_ms` is the time a revoke may take; the group waits a little longer than that."""

    def __init__(self, settings: config.Kafka, *, drain_ms: int) -> None:
        self._settings = settings
        self._topic = settings.input_topic
        self._timeout_s = settings.timeout_ms / 1000
        rebalance_timeout_ms = min(drain_ms + 10_000, REQUEST_TIMEOUT_MS - 5_000)
        self._consumer = AIOKafkaConsumer(
            **connection(settings),
            group_id=settings.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            rebalance_timeout_ms=rebalance_timeout_ms,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
            client_rack=settings.client_rack,
        )
        self._failure: BaseException | None = None
        self._ours: set[int] = set()
        self._joining_since_s: float | None = None
        self._stopped = False

    async def start(self, rebalance: Rebalance) -> None:
        await start(self._consumer, self._settings, "the start of the consumer")
        self.now_joining()
        self._consumer.subscribe([self._topic], listener=_Listener(self, rebalance))

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self._check()
        wanted = [
            TopicPartition(self._topic, number) for number in partitions if number in self._ours
        ]
        if not wanted and self._joining_since_s is None:
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        try:
            async with asyncio.timeout(wait_ms / 1000 + REBALANCE_LOOK_S):
                found = await self._getmany(wanted, wait_ms)
        except TimeoutError:
            found = {}
        self._check()
        return [
            Record(message.partition, message.offset, message.key, message.value, message.timestamp)
            for messages in found.values()
            for message in messages
        ]

    async def rewind(self, partitions: Collection[int]) -> Mapping[int, Commit]:
        starts = await self.committed(partitions)
        ours = {number: start for number, start in starts.items() if number in self._ours}
        self.seek(ours)
        return ours

    async def _getmany(self, wanted: list[TopicPartition], wait_ms: int) -> dict[Any, Any]:
        """Without a wish, nothing is read: aiokafka only tells what its coordinator met with."""
        try:
            with translated("a read of the input topic"):
                found: dict[Any, Any] = await self._consumer.getmany(
                    *wanted or (TopicPartition(self._topic, NO_PARTITION),),
                    timeout_ms=wait_ms,
                    max_records=MAX_RECORDS,
                )
        except Transient as error:
            # aiokafka tries again by itself where it can. What it raises here has ended one of its
            # tasks, and the group would go on without us.
            raise Fatal(
                f"{error}\nNothing is lost: start the worker again, it goes on at the last commit.",
                exit_code=EXIT_UNREACHABLE,
            ) from error
        return found

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        offsets = {
            TopicPartition(self._topic, number): OffsetAndMetadata(*commit)
            for number, commit in commits.items()
            if number in self._ours
        }
        if not offsets:
            return
        async with answered_within("the commit", min(COMMIT_S, self._timeout_s)):
            try:
                await self._consumer.commit(offsets)
            except (kafka_errors.CommitFailedError, kafka_errors.IllegalStateError):
                return  # the group went on without us: the new owner starts at the last commit

    def pause(self, partition: int) -> None:
        # A partition that is about to be handed back needs no pause.
        with suppress(kafka_errors.IllegalStateError):
            self._consumer.pause(TopicPartition(self._topic, partition))

    async def end_offsets(self) -> Mapping[int, int]:
        wanted = [TopicPartition(self._topic, number) for number in self._ours]
        async with answered_within("a question about the end of the input topic", END_OFFSETS_S):
            ends = await self._consumer.end_offsets(wanted)
        return {where.partition: offset for where, offset in ends.items()}

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            try:
                await close(self._consumer, LEAVE_S, "the end of the consumer")
            except Fatal:
                if self._joining_since_s is None:
                    raise
                log.warning("left in the middle of a rebalance: the group notices by the session")

    async def starts(self, partitions: Collection[int]) -> dict[int, Commit]:
        """As `committed`, asked until it is answered: `kafka.timeout_ms` may pass over it."""
        began_s = _now_s()
        told = False
        while not self._stopped:
            try:
                return await self.committed(partitions)
            except Transient as error:
                if _now_s() - began_s > self._timeout_s:
                    raise Fatal(
                        f"Kafka did not say for {self._timeout_s:g} s where the group is: {error}",
                        exit_code=EXIT_UNREACHABLE,
                    ) from error
                if not told:
                    log.warning("asked again, for up to %g s: %s", self._timeout_s, error)
                    told = True
                await asyncio.sleep(ASK_AGAIN_S)
        return {}

    async def committed(self, partitions: Iterable[int]) -> dict[int, Commit]:
        """Offset and metadata of the group; partitions without a commit start at the earliest
        record. Raises `Transient`.
        """
        wanted = [TopicPartition(self._topic, number) for number in partitions]
        what = "a question about the committed offsets"
        async with answered_within(what, min(QUESTION_S, self._timeout_s)):
            found = await positions(self._consumer._client, self._settings.group, wanted)
            fresh = [where for where, commit in found.items() if commit is None]
            begins = await self._consumer.beginning_offsets(fresh) if fresh else {}
        return {where.partition: commit or Commit(begins[where]) for where, commit in found.items()}

    def keep_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def now_ours(self, partitions: Collection[int]) -> None:
        self._ours = set(partitions)
        self._joining_since_s = None

    def now_joining(self) -> None:
        self._ours = set()
        self._joining_since_s = _now_s()

    def seek(self, starts: Mapping[int, Commit]) -> None:
        for number, commit in starts.items():
            self._consumer.seek(TopicPartition(self._topic, number), commit.next_offset)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        since_s = self._joining_since_s
        if since_s is not None and _now_s() - since_s > self._timeout_s:
            raise Fatal(
                f"Kafka did not let us join group {self._settings.group} within "
                f"{self._timeout_s:g} s.\nIs the coordinator up? Do the group's other members hand "
                "back their partitions in time?",
                exit_code=EXIT_UNREACHABLE,
            )


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka's callbacks; every failure is kept for the polling task to raise."""

    def __init__(self, source: KafkaSource, rebalance: Rebalance) -> None:
        self._source = source
        self._rebalance = rebalance

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        try:
            await self._rebalance.revoked([where.partition for where in revoked])
        except BaseException as error:
            self._source.keep_failure(error)
            raise
        finally:
            self._source.now_joining()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        numbers = [where.partition for where in assigned]
        try:
            starts = await self._source.starts(numbers) if numbers else {}
            self._source.seek(starts)
            await self._rebalance.assigned(starts)
            self._source.now_ours(numbers)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
