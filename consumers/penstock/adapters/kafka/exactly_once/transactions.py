"""The transactional producers of a worker: records and positions become visible together, or never.

Rule: the brokers have every record before the transaction is committed. After a failure a producer
is never used again. Another process uses a worker's transactional id only to abort what it left
open; with `kafka.instance_id` a restarted worker has the same ids, so its start does that. A
producer is fenced by another with its id, or when the group goes on without the member that the
transaction names.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import uuid4

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import OffsetAndMetadata

from penstock import config
from penstock.adapters.kafka.client import connection, opened, reason, translated
from penstock.adapters.kafka.error_codes import TRANSACTION_ABORTABLE
from penstock.adapters.kafka.exactly_once.abandoned_transactions import id_of, take_back_left
from penstock.adapters.kafka.exactly_once.transactional_producer import (
    NotMemberError,
    TransactionalProducer,
)
from penstock.adapters.kafka.group.membership import GroupMember, instance_of
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.adapters.kafka.inside.producers import BATCH_BYTES, filled
from penstock.adapters.kafka.source import parts
from penstock.errors import Expired, Fenced, PenstockError, Transient, Unreachable, first_cause
from penstock.ports import Clock, Commit, Outgoing, Where

log = logging.getLogger(__name__)

# This deadline is long, because a broker that has just come back loads its transaction log before
# it answers.
START_TIMEOUT_S = 30.0
# The broker aborts a transaction that is not committed within this time. If a worker dies and no
# worker gets its partitions, readers of committed records wait this long.
TRANSACTION_TIMEOUT_S = 30.0
# These two deadlines are 5 s together: as long as the last commit may take without transactions
# (`client.COMMIT_S`).
ABORT_TIMEOUT_S = 3.0
STOP_TIMEOUT_S = 2.0

# Errors that go away with a new producer, because it starts with the same id and gets a new epoch.
_STALE = (
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.DuplicateSequenceNumber,
    kafka_errors.InvalidProducerIdMapping,
    kafka_errors.InvalidTxnState,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.UnknownProducerId,
    kafka_errors.UnknownError,
    kafka_errors.for_code(TRANSACTION_ABORTABLE),
)


class KafkaTransactions:
    """Makes one transaction after the other. Each transaction has records, and positions of one
    group.

    `member_of`: a function that tells for a topic which member of which group we are. If it is
    given, each transaction carries this membership. If it is not given, all positions are those of
    `group`. `codec`: the number of the batches' compression.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        group: str,
        clock: Clock,
        batch_bytes: Mapping[str, int],
        member_of: Callable[[str], GroupMember] | None = None,
        codec: int = 0,
    ) -> None:
        self._producer = producer
        self._group = group
        self._member_of = member_of
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._unfinished = False
        self._closed = False

    async def start(self) -> None:
        """Fence the producer that had this id before. Kafka answers when the last transaction of
        that producer is committed or aborted.
        """
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._producer.start()
        except TimeoutError:
            raise _silent("the start of a transactional producer", START_TIMEOUT_S) from None
        except kafka_errors.KafkaError as error:
            self._raise(error)

    async def publish(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        # A rest under a quota is no part of the transaction, which would be aborted meanwhile.
        rest_s = self._producer.rests_until_s - asyncio.get_running_loop().time()
        await asyncio.sleep(min(TRANSACTION_TIMEOUT_S, rest_s))
        try:
            async with asyncio.timeout(TRANSACTION_TIMEOUT_S):
                await self._transaction(outgoing, positions)
        except TimeoutError:
            raise _silent("a transaction", TRANSACTION_TIMEOUT_S) from None
        except kafka_errors.KafkaError as error:
            self._raise(error)

    async def _transaction(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        topic = next(iter(positions)).topic
        group = self._member(topic).group
        offsets = {
            TopicPartition(*where): OffsetAndMetadata(*position)
            for where, position in positions.items()
        }
        self._unfinished = True
        try:
            async with asyncio.TaskGroup() as both:
                writing = both.create_task(self._write(outgoing))
                await asyncio.wait([writing], timeout=self._producer.head_start_s)
                for part in parts(offsets, group):
                    await self._producer.move(group, part, lambda: self._member(topic))
        except BaseExceptionGroup as failures:
            raise first_cause(failures) from None
        self._unfinished = False  # from here on the broker decides the outcome
        await self._producer.end(commits=True)

    async def _write(self, outgoing: Sequence[Outgoing]) -> None:
        now_ms, waiting = self._clock.wall_ms(), list(outgoing)
        while waiting:
            await self._producer.write(self._batches(waiting, now_ms))
            waiting = [more for out in waiting for more in out.then]

    def _member(self, topic: str) -> GroupMember:
        if self._member_of is None:
            return GroupMember(self._group, -1, "", None)
        member = self._member_of(topic)
        member.check()
        return member

    def _batches(
        self, outgoing: Sequence[Outgoing], now_ms: int
    ) -> Iterator[tuple[TopicPartition, BatchBuilder]]:
        for out in outgoing:
            most = self._batch_bytes.get(out.topic, BATCH_BYTES)
            for batch in filled(out, now_ms, most, self._codec, is_transactional=True):
                yield TopicPartition(out.topic, out.partition), batch

    def _raise(self, error: kafka_errors.KafkaError) -> None:
        why = reason(error)
        if isinstance(why, NotMemberError):
            raise Fenced(
                f"the group has gone on without this worker (error {why.code}); its open "
                "transaction is dropped"
            ) from error
        if isinstance(why, kafka_errors.ProducerFenced):
            self._unfinished = False
            if self._member_of is not None:
                raise Transient(
                    "a transaction lasted too long, and the broker aborted it; it is repeated"
                ) from error
            raise Fenced(
                "another worker took over the transactional id, or a transaction lasted too long; "
                "the open transaction is dropped"
            ) from error
        if self._unfinished and isinstance(why, kafka_errors.InvalidProducerIdMapping):
            raise Expired(
                "the broker has forgotten a transactional id that was not used for its "
                "transactional.id.expiration.ms"
            ) from error
        if isinstance(why, _STALE):
            raise Transient(f"a transaction failed and is repeated: {why!r}") from error
        with translated("a transaction"):
            raise why

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._unfinished:
                await self._take_back()
        finally:
            await self._stop()

    async def _take_back(self) -> None:
        """Abort the open transaction now, so that readers of committed records need not wait. If
        the abort fails, the start of the next owner or the broker's time limit aborts the
        transaction.
        """
        try:
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                await self._producer.take_back()
        except (kafka_errors.KafkaError, TimeoutError) as error:
            log.debug("%s: a transaction was not taken back: %r", self._group, error)

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._producer.client.close()
        except TimeoutError:
            log.debug("%s: a producer did not close", self._group)


def _silent(what: str, after_s: float) -> Unreachable:
    message = f"Kafka did not answer {what} within {after_s:.0f} s"
    return Unreachable(message, mend="check that the brokers run")


# How long we look for open transactions. After this time the broker itself has aborted every
# transaction that was left open.
LOOKS_S = 30.0


class KafkaProducers:
    """`batch_bytes`: a mapping from a topic to the most bytes of a batch; the sink fills this
    mapping. `member_of`: the source's method of this name. `groups`: a mapping from a topic of
    another region to the group that reads the topic.
    """

    def __init__(
        self,
        settings: config.Kafka,
        clock: Clock,
        batch_bytes: Mapping[str, int],
        member_of: Callable[[str], GroupMember],
        *,
        groups: Mapping[str, str] | None = None,
        compression: str = "none",
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._member_of = member_of
        self._groups = groups or {}
        self._compression = compression
        self._worker = instance_of(settings) or uuid4().hex

    def group(self, where: Where) -> str:
        return self._groups.get(where.topic, self._settings.group)

    def id_of(self, number: int) -> str:
        return id_of(self._settings.group, self._worker) + str(number)

    async def take_back_left(self) -> None:
        """Abort the transactions that dead workers left open, over a connection made for this
        purpose. If that fails, the broker aborts them later.
        """
        group, what = self._settings.group, "a look at open transactions"
        try:
            admin = AIOKafkaAdminClient(**connection(self._settings))
            async with asyncio.timeout(LOOKS_S), opened(admin, self._settings, what):
                ours = id_of(group, self._worker)
                await take_back_left(client_of(admin), group, ours, self._clock.wall_ms)
        except (NotImplementedError, TimeoutError, PenstockError) as error:
            log.info("transactions of dead workers end by the broker's time limit: %r", error)

    async def open(self, number: int) -> KafkaTransactions:
        return await open_transactions(
            self._settings,
            self.id_of(number),
            self._clock,
            self._batch_bytes,
            self._member_of,
            self._compression,
        )


async def open_transactions(
    settings: config.Kafka,
    id_: str,
    clock: Clock,
    batch_bytes: Mapping[str, int],
    member_of: Callable[[str], GroupMember] | None = None,
    compression: str = "none",
) -> KafkaTransactions:
    """Start a producer, and return its `KafkaTransactions`. The start fences all former producers
    with this id: they cannot write any more. If the start fails, the producer is closed.
    """
    client = AIOKafkaClient(**connection(settings))
    producer = TransactionalProducer(client, id_, int(TRANSACTION_TIMEOUT_S * 1000))
    codec = getattr(DefaultRecordBatch, f"CODEC_{compression.upper()}")
    transactions = KafkaTransactions(producer, settings.group, clock, batch_bytes, member_of, codec)
    try:
        await transactions.start()
    except BaseException:
        await transactions.close()
        raise
    return transactions
