"""Keeps every batch of a producer until the producer is given up; then unsent batches are dropped.

Rule: the caller, never aiokafka, decides how long a batch waits. aiokafka's `stop` first sends all
waiting batches, however long that takes, and its task retries for ever. Giving up waits neither for
these batches nor for the task. This file uses private parts of aiokafka 0.14, because there is no
public way.
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaProducer

from penstock.adapters.kafka.inside.handles import transaction_end_of


def keep_batches(producer: AIOKafkaProducer) -> None:
    """Let no batch expire. Otherwise aiokafka fails a batch whose partition has had no leader for
    one request timeout (40 s), although `kafka.timeout_ms` may allow longer.
    """
    producer._message_accumulator._batch_ttl = math.inf


async def give_up(producer: AIOKafkaProducer) -> None:
    """End the producer. Batches that it has not sent are lost. This may be called after `stop`,
    even if `stop` has failed.
    """
    producer._closed = True
    for future in _left_behind(producer):
        future.add_done_callback(seen)
    if producer._sender is not None and producer._sender.sender_task is not None:
        # Otherwise the task retries for ever, although another producer has taken over.
        producer._sender.sender_task.cancel()
    await producer.client.close()


def _left_behind(producer: AIOKafkaProducer) -> Iterator[asyncio.Future[Any]]:
    """The futures that fail when aiokafka's task ends. Nobody awaits them any more, so asyncio
    would report each failure as never retrieved.
    """
    ended = transaction_end_of(producer)
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
    """Retrieve the failure, so that asyncio does not report it as never retrieved."""
    if not future.cancelled():
        future.exception()
