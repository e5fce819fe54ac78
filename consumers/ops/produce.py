"""`penstock produce`: announce objects that are already in the store, one reference each.

Rule: the Kafka key is the stream, so that a stream's objects stay in one partition and in the order
of their keys.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from consumers import config
from consumers.adapters.kafka_client import connection, translated
from consumers.adapters.urls import references
from consumers.ports import Objects
from schemas.codec import encode_reference
from schemas.reference import Reference

# Bounds what a slow broker makes us hold: about 10 MB of references.
MAX_PENDING = 10_000


async def produce(
    cfg: config.Config,
    objects: Objects,
    urls: Sequence[str],
    *,
    stream: str | None,
    on_sent: Callable[[int], None],
) -> int:
    """Publish a reference per object; `on_sent` gets the count so far. Returns how many were
    acknowledged.
    """
    producer = AIOKafkaProducer(**connection(cfg.kafka), enable_idempotence=True, linger_ms=5)
    with translated("connecting to announce objects"):
        await producer.start()
    try:
        with translated("announcing objects"):
            return await _send_all(
                producer, cfg.kafka.input_topic, references(objects, urls), stream, on_sent
            )
    finally:
        await producer.stop()


async def _send_all(
    producer: AIOKafkaProducer,
    topic: str,
    found: AsyncIterator[Reference],
    stream: str | None,
    on_sent: Callable[[int], None],
) -> int:
    pending: deque[Awaitable[Any]] = deque()
    count = 0
    async for reference in found:
        folder, slash, _ = reference.key.rpartition("/")
        key = stream or f"{reference.bucket}/{folder}{slash}"
        pending.append(await producer.send(topic, encode_reference(reference), key=key.encode()))
        count += 1
        on_sent(count)
        if len(pending) > MAX_PENDING:
            await pending.popleft()
    for delivery in pending:
        await delivery
    return count
