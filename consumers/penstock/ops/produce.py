"""`penstock produce`: announces objects that are already in the store, one reference each.

Rule: the Kafka key is the stream, so that a stream's objects stay in one partition and in the order
of their keys. An object named without a glob must exist, so that a typing error is not announced.
Owner: the command.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock import config
from penstock.adapters.inputs.urls import references
from penstock.adapters.kafka.announcer import announcing
from penstock.adapters.stores.choice import places_of_caller
from penstock.adapters.stores.files_and_stdin import local_path
from penstock.core.routing.places import Places
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.messages.codec import encode_reference
from penstock.ports import Location, Objects


class Produced(NamedTuple):
    """How many references were acknowledged, and of how many streams."""

    references: int
    streams: int

    @property
    def hint(self) -> str | None:
        """A warning if all objects are one stream: then only one worker has work."""
        if self.streams != 1 or self.references < FEW:
            return None
        return (
            "all of them are one stream, so one partition and one worker: for more, give each "
            "stream a folder of its own, or announce them with a --stream each"
        )


# With fewer objects one partition is as good as several.
FEW = 10
# Streams are counted up to here.
MANY = 1_000


async def produce(
    cfg: config.Config,
    objects: Objects,
    urls: Sequence[str],
    *,
    stream: str | None,
    on_sent: Callable[[int], None],
) -> Produced:
    """Publish a reference per object; `on_sent` gets the count so far."""
    for url in urls:
        if local_path(url) is not None:
            raise Fatal(
                f"{url} is not an object of a store; write s3://bucket/key. A local folder "
                'is a store by objects.endpoint_url = "file:///FOLDER", or by a [stores.NAME] with '
                "a route, and each folder in it a bucket (penstock predict reads local files "
                "without)",
                exit_code=EXIT_USAGE,
            )
    streams: set[str] = set()
    places = Places(places_of_caller(cfg))
    async with announcing(cfg.kafka) as announcer:
        count = 0
        async for reference in references(objects, urls, places):
            if reference.size is None:
                store = places.of(reference.store, reference.bucket, reference.key)
                await _look_for(objects, Location(reference.bucket, reference.key, store=store))
            folder, slash, _ = reference.key.rpartition("/")
            key = stream or f"{reference.bucket}/{folder}{slash}"
            await announcer.send(encode_reference(reference), key.encode())
            if len(streams) < MANY:
                streams.add(key)
            count += 1
            on_sent(count)
    return Produced(announcer.acknowledged, len(streams))


async def _look_for(objects: Objects, location: Location) -> None:
    """Raises `Fatal` if an object that was named without a glob does not exist."""
    try:
        body = await objects.open(location)
    except Poison as error:
        inside = f"{location.key.rstrip('/')}/**"
        is_missing = error.code == "not_found"
        hint = f"; if it is a folder, name what is in it: '.../{inside}'" if is_missing else ""
        raise Fatal(f"not announced: {error}{hint}", exit_code=EXIT_USAGE) from None
    await body.aclose()
