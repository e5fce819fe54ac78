"""How a producer is made, and how it is given up: what it has not sent is not sent any more.

Rule: how long a batch waits is for its caller to say, never for aiokafka. Its own `stop` sends
first what waits, for as long as that takes, and its task tries for ever; nothing here waits for
either. It reaches into aiokafka 0.14 for this, as there is no public way. Owner: the sink,
an outlet or a writer, each of the producer that it made.
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaProducer

from consumers import config
from consumers.adapters.kafka_client import connection
from consumers.adapters.kafka_messages import lean


def producer_of(settings: config.Kafka, **options: Any) -> AIOKafkaProducer:
    """Not started yet."""
    producer = AIOKafkaProducer(**connection(settings), **options)
    lean(producer.client)
    # It would fail a batch whose partition has had no leader for the time of one request, 40 s.
    producer._message_accumulator._batch_ttl = math.inf
    return producer


async def give_up(producer: Any) -> None:
    """Safe to call after `stop`, whether that went well or not."""
    producer._closed = True
    for future in _left_behind(producer):
        future.add_done_callback(seen)
    if producer._sender is not None and producer._sender.sender_task is not None:
        # It would try for ever what the next producer has made void.
        producer._sender.sender_task.cancel()
    await producer.client.close()


def _left_behind(producer: Any) -> Iterator[asyncio.Future[Any]]:
    """Futures that aiokafka fails when its task ends, for nobody; asyncio would report each."""
    if producer._txn_manager is not None:
        ended = producer._txn_manager.wait_for_transaction_end()
        if ended is not None:
            yield ended
    accumulator = producer._message_accumulator
    for queue in accumulator._batches.values():
        for batch in queue:
            yield batch.future
            yield batch._drain_waiter
    for batch in accumulator._pending_batches:
        yield batch.future


def seen(future: asyncio.Future[Any]) -> None:
    """Its failure is known: asyncio need not say that nobody asked for it."""
    if not future.cancelled():
        future.exception()
