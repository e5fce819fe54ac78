"""`penstock produce`: announce objects that are already in the store, one reference each.

Rule: the Kafka key is the stream, so that a stream's objects stay in one partition and in the order
of their keys.
"""

from collections.abc import Callable, Sequence

from consumers import config
from consumers.adapters.kafka_announcer import announcing
from consumers.adapters.urls import references
from consumers.ports import Objects
from schemas.codec import encode_reference


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
    async with announcing(cfg.kafka) as announcer:
        count = 0
        async for reference in references(objects, urls):
            folder, slash, _ = reference.key.rpartition("/")
            key = stream or f"{reference.bucket}/{folder}{slash}"
            await announcer.send(encode_reference(reference), key.encode())
            count += 1
            on_sent(count)
    return announcer.acknowledged
