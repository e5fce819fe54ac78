"""Makes the transactional producers of a worker, and chooses their transactional ids. A producer
fences former producers that have its id.

Rule: no other worker writes under a worker's transactional ids. Another process uses such an id
only to abort the transactions that a dead worker left open. With `kafka.instance_id` a restarted
worker has the same ids, so its start aborts at once the transactions that the former process had
begun. Owner: the worker's pool of producers, and the rekeyer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import uuid4

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.record.default_records import DefaultRecordBatch

from penstock import config
from penstock.adapters.kafka.client import connection, opened
from penstock.adapters.kafka.exactly_once.abandoned_transactions import id_of, take_back_left
from penstock.adapters.kafka.exactly_once.producer import TransactionalProducer
from penstock.adapters.kafka.exactly_once.transactions import (
    TRANSACTION_TIMEOUT_S,
    KafkaTransactions,
)
from penstock.adapters.kafka.group.membership import GroupMember, instance_of
from penstock.adapters.kafka.inside.consumers import client_of
from penstock.errors import PenstockError
from penstock.ports import Clock, Where

log = logging.getLogger(__name__)

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
