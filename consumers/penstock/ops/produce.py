"""`penstock produce`: announces objects that are already in the store, one reference each.

Rule: the Kafka key is the stream, so that a stream's objects stay in one partition and in the order
of their keys. An object named without a glob must exist, so that a typing error is not announced.
Owner: the command.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from penstock import config
from penstock.adapters.inputs.urls import references
from penstock.adapters.kafka.announcer import announcing
from penstock.adapters.stores.choice import places_of_caller
from penstock.adapters.stores.files_and_stdin import local_path
from penstock.core.routing.naming import Naming
from penstock.core.routing.places import Places
from penstock.core.routing.routes import Routes
from penstock.errors import EXIT_USAGE, Fatal, Poison
from penstock.messages.codec import encode_reference
from penstock.messages.reference import Reference
from penstock.ports import Location, Objects


@dataclass(slots=True)
class Stream:
    """How many objects it has, and the models that a worker of these settings asks for them."""

    objects: int = 0
    models: set[str] = field(default_factory=set)


class Produced(NamedTuple):
    """How many references were acknowledged, and the first `MANY` streams by their names."""

    references: int
    streams: Mapping[str, Stream]

    @property
    def hint(self) -> str | None:
        """A warning if all objects are one stream: then only one worker has work."""
        if len(self.streams) != 1 or self.references < FEW:
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
    routes: Routes,
    *,
    stream: str | None,
    on_sent: Callable[[int], None],
) -> Produced:
    """Publish a reference per object; `on_sent` gets the count so far. `stream`: the name of all of
    them, or a regular expression on their keys with a group of that name; None: named as the worker
    names them.
    """
    for url in urls:
        if local_path(url) is not None:
            raise Fatal(
                f"{url} is not an object of a store; write s3://bucket/key. A local folder "
                'is a store by objects.endpoint_url = "file:///FOLDER", or by a [stores.NAME] with '
                "a route, and each folder in it a bucket (penstock predict reads local files "
                "without)",
                exit_code=EXIT_USAGE,
            )
    streams: dict[str, Stream] = {}
    named = _name_of(stream, Naming(cfg.kafka.stream_from))
    places = Places(places_of_caller(cfg))
    async with announcing(cfg.kafka) as announcer:
        count = 0
        async for reference in references(objects, urls, places):
            if reference.size is None:
                store = places.of(reference.store, reference.bucket, reference.key)
                await _look_for(objects, Location(reference.bucket, reference.key, store=store))
            name = named(reference)
            # A worker's kafka.stream_from goes before the Kafka key, but not before this field.
            said = structs.replace(reference, stream=name if stream is not None else None)
            await announcer.send(encode_reference(said), name.encode())
            if name in streams or len(streams) < MANY:
                known = streams.setdefault(name, Stream())
                known.objects += 1
                known.models.update(routes.of(name, reference.bucket, reference.key))
            count += 1
            on_sent(count)
    return Produced(announcer.acknowledged, streams)


def _name_of(stream: str | None, naming: Naming) -> Callable[[Reference], str]:
    """How objects are called. Raises `Fatal` for a wrong regular expression."""
    if stream is not None and "(?P<stream>" not in stream:
        return lambda _: stream
    if stream is not None:
        try:
            naming = Naming(stream)
        except re.error as error:
            said = f"--stream {stream!r} is no regular expression ({error})"
            raise Fatal(said, exit_code=EXIT_USAGE) from None
    return lambda reference: naming.of(reference, "")


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
