"""Checks that each route matches some of the announced objects.

Rule: the newest messages of the input topics are read as a worker reads them, but no group is
joined. If a route matches none of many objects, its glob is most likely misspelt, and another model
answers the objects that the route is meant for. Owner: `examine`.
"""

from contextlib import suppress
from typing import Final

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.core.routing.model_routes import Routes
from penstock.core.routing.stream_names import StreamNames, streams_of
from penstock.doctor.finding import Finding, hurried
from penstock.messages.codec import Ignored, Inline, References, SchemaError, decode
from penstock.settings.inputs import stream_from
from penstock.settings.routes import routes_of

# At most this many of a topic's newest messages are read.
MOST: Final = 4_000


async def look_at_routes(cfg: config.Config) -> list[Finding]:
    seen = Seen(routes_of(cfg), StreamNames(stream_from(cfg.kafka.stream_from)))
    kafka = hurried(cfg.kafka)
    async with open_reader(kafka, kafka.isolation) as reader:
        for topic in await reader.inputs():
            spans = await reader.spans(topic)
            each = MOST // max(1, len(spans))
            newest = {n: (max(begin, end - each), end) for n, (begin, end) in spans.items()}
            await reader.read(topic, newest, seen.take, lambda _: None)
    return [seen.verdict()]


class Seen:
    """The objects of some messages, and which routes they match."""

    def __init__(self, routes: Routes, naming: StreamNames) -> None:
        self._routes = routes
        self._naming = naming
        self._last = ""

    def take(self, partition: int, _: int, key: bytes | None, value: bytes | None) -> None:
        with suppress(SchemaError):  # a worker rejects such a message
            message = decode(value)
            if not isinstance(message, Ignored):
                self._ask(message, streams_of(message, self._naming, key, partition))

    def _ask(self, message: References | Inline, streams: list[str]) -> None:
        self._last = streams[-1]
        if isinstance(message, Inline):
            self._routes.of(self._last, None, None)
            return
        for reference, stream in zip(message.items, streams, strict=True):
            self._routes.of(stream, reference.bucket, reference.key)

    def verdict(self) -> Finding:
        routes = self._routes
        count, never = f"{routes.asked:,}", routes.never_matched
        if never:
            return Finding(
                "routes",
                "mind",
                f"none of the newest {count} objects match the route of "
                f"{' or '.join(map(str, never))}; streams are called like {self._last!r}: correct "
                "the route, or name the streams by kafka.stream_from",
            )
        if routes.unmatched:
            few = " or ".join(map(str, routes.unmatched.values()))
            said = f"none of {count} objects so far match {few}; that may be chance"
            return Finding("routes", "ok", said)
        return Finding("routes", "ok", f"each matches some of the newest {count} objects")
