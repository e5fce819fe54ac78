"""Transactions by aiokafka: records and positions become visible together, or never.

Rule: every delivery is awaited before the commit, because if one batch fails, aiokafka nevertheless
commits the others. After a failure the producer is never used again. Two events fence a producer:
another producer starts with the same transactional id; or the group goes on without the member that
the transaction names. Owner: the worker's pool of producers, and the rekeyer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata

from penstock.adapters.kafka.client import reason, translated
from penstock.adapters.kafka.commit_parts import parts
from penstock.adapters.kafka.error_codes import TRANSACTION_ABORTABLE
from penstock.adapters.kafka.group.membership import GroupMember
from penstock.adapters.kafka.inside.naming_the_member import NotMemberError, commit_as
from penstock.adapters.kafka.inside.refusals import rested
from penstock.adapters.kafka.inside.sending import (
    BATCH_BYTES,
    batches,
    give_up,
    seen,
    transaction_end_of,
)
from penstock.adapters.kafka.topics import know
from penstock.errors import Expired, Fenced, Transient, Unreachable
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
    kafka_errors.ProducerClosed,
    kafka_errors.UnknownError,
    kafka_errors.for_code(TRANSACTION_ABORTABLE),
)


class KafkaTransactions:
    """Makes one transaction after the other. Each transaction has records, and positions of one
    group.

    `member_of`: a function that tells for a topic which member of which group we are. If it is
    given, each transaction carries this membership. If it is not given, all positions are those of
    `group`.
    """

    def __init__(
        self,
        producer: Any,
        group: str,
        clock: Clock,
        batch_bytes: Mapping[str, int],
        member_of: Callable[[str], GroupMember] | None = None,
    ) -> None:
        self._producer = producer
        self._group = group
        self._member_of = member_of
        self._topic = ""
        if member_of is not None:
            commit_as(producer, lambda: member_of(self._topic))
        self._clock = clock
        self._batch_bytes = batch_bytes
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
        await rested(self._producer, TRANSACTION_TIMEOUT_S)
        try:
            async with asyncio.timeout(TRANSACTION_TIMEOUT_S):
                await self._transaction(outgoing, positions)
        except TimeoutError:
            raise _silent("a transaction", TRANSACTION_TIMEOUT_S) from None
        except kafka_errors.KafkaError as error:
            self._raise(error)
        except (kafka_errors.IllegalOperation, AssertionError) as error:
            # aiokafka raises these errors if its sender has ended a moment ago.
            self._raise(kafka_errors.InvalidTxnState(repr(error)))

    async def _transaction(
        self, outgoing: Sequence[Outgoing], positions: Mapping[Where, Commit]
    ) -> None:
        producer, now_ms = self._producer, self._clock.wall_ms()
        if self._member_of is not None:
            self._topic = next(iter(positions)).topic
            member = self._member_of(self._topic)
            member.check()
            self._group = member.group
        await producer.begin_transaction()
        self._unfinished = True
        waiting = list(outgoing)
        while waiting:
            await self._sent(waiting, now_ms)
            waiting = [more for out in waiting for more in out.then]
        # Positions are added only after all deliveries. Otherwise a partition's leader may still be
        # verifying the transaction, the coordinator makes that leader retry, and a transaction
        # takes 27 ms in the median instead of 12 ms.
        offsets = {
            TopicPartition(*where): OffsetAndMetadata(*position)
            for where, position in positions.items()
        }
        for part in parts(offsets, self._group):
            await producer.send_offsets_to_transaction(part, self._group)
        self._unfinished = False  # from here on the broker decides the outcome
        await producer.commit_transaction()

    async def _sent(self, outgoing: Sequence[Outgoing], now_ms: int) -> None:
        producer = self._producer
        sent: list[asyncio.Future[Any]] = []
        for out in outgoing:
            # aiokafka itself asks for the partitions of a topic that it does not know yet. If it
            # knows the topic, we must make it ask for added partitions.
            if producer.client.cluster.partitions_for_topic(out.topic):
                await know(producer.client, out.topic, out.partition + 1)
            most = self._batch_bytes.get(out.topic, BATCH_BYTES)
            for batch in batches(producer, out, now_ms, most):
                future = await producer.send_batch(batch, out.topic, partition=out.partition)
                future.add_done_callback(seen)
                sent.append(future)
        await asyncio.gather(*sent)

    def _raise(self, error: kafka_errors.KafkaError) -> None:
        why = self._behind(reason(error))
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

    def _behind(self, error: Exception) -> Exception:
        """The error that caused an `InvalidTxnState`. If Kafka refuses to add a partition to a
        transaction, aiokafka writes to the partition nevertheless, and the write fails with
        `InvalidTxnState`. The refusal itself is in the future of the transaction's end.
        """
        ended = transaction_end_of(self._producer)
        if not isinstance(error, kafka_errors.InvalidTxnState) or ended is None:
            return error
        known = ended.exception() if ended.done() and not ended.cancelled() else None
        return reason(known) if isinstance(known, kafka_errors.KafkaError) else error

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
                await self._producer.abort_transaction()
        except (kafka_errors.KafkaError, TimeoutError, AssertionError) as error:
            # aiokafka raises AssertionError if a failed request has ended the transaction already.
            log.debug("%s: a transaction was not taken back: %r", self._group, error)

    async def _stop(self) -> None:
        producer = self._producer
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await producer.stop()
        except (kafka_errors.KafkaError, TimeoutError) as error:
            log.debug("%s: a producer did not close: %r", self._group, error)
        finally:
            await give_up(producer)


def _silent(what: str, after_s: float) -> Unreachable:
    return Unreachable(f"Kafka did not answer {what} within {after_s:.0f} s. Is the broker up?")
