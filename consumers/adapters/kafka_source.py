"""The input topic by aiokafka: one member of the consumer group.

Rule: nothing is read before `assigned` returned, nothing is committed after `revoked` returned; a
listener that fails ends the worker, because aiokafka itself would log it and go on. Owner: the
consume task polls; commits come from settle.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from consumers import config
from consumers.adapters.kafka_client import REQUEST_TIMEOUT_MS, connection, translated
from consumers.ports import Commit, Rebalance, Record

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


class KafkaSource:
    """`drain_ms` is the time a revoke may take; the group waits a little longer than that."""

    def __init__(self, settings: config.Kafka, *, drain_ms: int) -> None:
        self._settings = settings
        self._topic = settings.input_topic
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
        self._stopped = False

    async def start(self, rebalance: Rebalance) -> None:
        self._consumer.subscribe([self._topic], listener=_Listener(self, rebalance))
        with translated("joining the consumer group"):
            await self._consumer.start()
        self._check()

    async def poll(self, partitions: Collection[int], wait_ms: int) -> Sequence[Record]:
        self._check()
        wanted = [
            TopicPartition(self._topic, number) for number in partitions if number in self._ours
        ]
        if not wanted:
            await asyncio.sleep(wait_ms / 1000)
            self._check()
            return ()
        with translated("reading the input topic"):
            try:
                found = await self._consumer.getmany(
                    *wanted, timeout_ms=wait_ms, max_records=MAX_RECORDS
                )
            except kafka_errors.IllegalStateError:
                return ()  # a partition left between the look and the call
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

    async def commit(self, commits: Mapping[int, Commit]) -> None:
        offsets = {
            TopicPartition(self._topic, number): OffsetAndMetadata(*commit)
            for number, commit in commits.items()
            if number in self._ours
        }
        if not offsets:
            return
        with translated("the commit"):
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
        with translated("asking for the end of the input topic"):
            ends = await self._consumer.end_offsets(wanted)
        return {where.partition: offset for where, offset in ends.items()}

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            with translated("leaving the consumer group"):
                await self._consumer.stop()

    async def committed(self, partitions: Iterable[int]) -> dict[int, Commit]:
        """Offset and metadata of the group; partitions without a commit start at the earliest
        record.
        """
        wanted = [TopicPartition(self._topic, number) for number in partitions]
        admin = AIOKafkaAdminClient(**connection(self._settings))
        with translated("reading the committed offsets"):
            await admin.start()
            try:
                found = await admin.list_consumer_group_offsets(
                    self._settings.group, partitions=wanted
                )
                starts = {
                    where.partition: Commit(entry.offset, entry.metadata or "")
                    for where, entry in found.items()
                    if entry.offset >= 0
                }
                fresh = [where for where in wanted if where.partition not in starts]
                begins = await self._consumer.beginning_offsets(fresh) if fresh else {}
            finally:
                await admin.close()
        return starts | {where.partition: Commit(offset) for where, offset in begins.items()}

    def keep_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error

    def now_ours(self, partitions: Collection[int]) -> None:
        self._ours = set(partitions)

    def seek(self, starts: Mapping[int, Commit]) -> None:
        for number, commit in starts.items():
            self._consumer.seek(TopicPartition(self._topic, number), commit.next_offset)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


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
            self._source.now_ours(())

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        numbers = [where.partition for where in assigned]
        try:
            starts = await self._source.committed(numbers) if numbers else {}
            self._source.seek(starts)
            await self._rebalance.assigned(starts)
            self._source.now_ours(numbers)
        except BaseException as error:
            self._source.keep_failure(error)
            raise
