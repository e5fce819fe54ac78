"""Checks each model (is it there, which inputs does it take, how does it answer an object's first
row?), and whether each route matches announced objects.

Rule: the row is sent in one request, without the pipeline's batches and retries, so that the
finding shows what the server did. The object is decoded in this process, because a person chose it.
No group is joined. A route that matches none of many objects is most likely misspelt, and another
model answers them.
"""

import asyncio
from collections import Counter
from contextlib import aclosing, suppress
from typing import Final

from penstock import config
from penstock.adapters.kafka.reader import open_reader
from penstock.adapters.model_servers import request_forms
from penstock.adapters.model_servers.http_calls import Request
from penstock.adapters.model_servers.protocols import (
    batching_advice,
    open_model,
    ready_made,
    signature_of,
)
from penstock.adapters.model_servers.refusals import excerpt
from penstock.asking.model_calls import ask_model, canary_of
from penstock.core.routing.model_routes import Routes
from penstock.core.routing.stream_keys import StreamNames, streams_of
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal, HungUp, NoAnswer, PenstockError, Poison, Rejected, usage
from penstock.formats.reading import decoded
from penstock.formats.registry import claim_of
from penstock.messages.codec import Ignored, Inline, References, SchemaError, decode
from penstock.messages.reference import Reference
from penstock.ports import Location
from penstock.settings.inputs import row_options, stream_from
from penstock.settings.routes import routes_of
from penstock.tools.doctor.finding import Finding, hurried
from penstock.tools.doctor.stores import open_any, place_of

# At most this much of an object is read. It is enough for the first row of a table that is read
# from its beginning, and for a whole picture.
HEAD_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_SHOWN_BYTES: Final = 200


async def look_at_model(cfg: config.Config) -> str:
    form = request_forms.find(cfg.model.request).takes
    canary = canary_of(cfg.model.canary, form)
    async with aclosing(open_model(cfg)) as model:
        await ask_model(model.predict, [canary] if canary is not None else [])
    took = "takes the row of model.canary" if canary is not None else "is there"
    return f"{cfg.model.name} at {config.shown_url(cfg.model.url)} {took}"


async def look_at_limits(cfg: config.Config) -> str:
    """A text with the model's inputs, and with the most rows of a request, as far as the model's
    server tells them.
    """
    if warning := await batching_advice(cfg):
        raise Fatal(warning)
    signature = await signature_of(cfg)
    if signature is None:
        return "the model's server does not tell what it takes"
    wants = f"the model wants {signature}"
    if signature.most_rows is None:
        return wants
    asked = cfg.window.max_rows
    lowered = f"; window.max_rows = {asked} is cut to that" if asked > signature.most_rows else ""
    return f"{wants}, at most {signature.most_rows} rows a request{lowered}"


async def try_first_row(cfg: config.Config, url: str) -> str:
    """Send the first row of an object. Returns a text with what was sent and what was answered.
    Raises `Fatal` that says what to correct.
    """
    location = place_of(cfg, url)
    name, chosen = model_of(cfg, location)
    row = await first_row(chosen, location)
    sent = await _shown(chosen, row)
    async with aclosing(open_model(chosen)) as model:
        try:
            answers = await model.predict([row])
        except PenstockError as error:
            raise usage(f"{name} was sent {sent}; {_came(error)}") from None
    if message := answers.errors.get(0):
        raise usage(
            f"{name} was sent {sent}; it refuses the row: {message}; correct the row, or [rows] "
            "and model.request, which say how a row is sent"
        )
    return f"{name} was sent {sent}; it answered {excerpt(bytes(answers.values[0])[:_SHOWN_BYTES])}"


def model_of(cfg: config.Config, location: Location) -> tuple[str, config.Config]:
    """Returns two things: the name of the first model that the routes choose for this object; and
    the configuration with that model. The routes are applied as if the object were announced
    without a Kafka key.
    """
    stream = StreamNames(cfg.kafka.stream_from).of(
        Reference(bucket=location.bucket, key=location.key), ""
    )
    [name, *_] = routes_of(cfg).of(stream, location.bucket, location.key)
    return name, {**cfg.with_each_model(), cfg.model.name: cfg}[name]


async def first_row(cfg: config.Config, location: Location) -> Payload:
    async with aclosing(open_any(cfg)) as objects:
        part = await objects.part(location, 0, HEAD_BYTES)
    return await asyncio.to_thread(_read, cfg, location.key, part.data, part.size)


def _read(cfg: config.Config, key: str, data: bytes, size: int) -> Payload:
    bad: str | None = None
    try:
        for runs in decoded(row_options(cfg), data, _CHUNK_BYTES, claim_of(key)):
            for run in runs:
                if run.payload is not None:
                    return run.payload.cut(0, 1).owned()
                bad = bad or run.error
    except Poison as error:
        cut = f" (only its first {HEAD_BYTES:,} bytes were read)" if size > len(data) else ""
        bad = bad or f"{error}{cut}"
    raise usage(
        f"no row can be read: {bad or 'it has none'}; see [rows]: format, header, columns, missing"
    )


async def _shown(cfg: config.Config, row: Payload) -> str:
    if cfg.model.protocol == "openai-embeddings":
        return "1 row as a text"
    try:
        made = await ready_made(cfg.model, [row])
    except PenstockError as error:
        return f"1 row ({error})"
    return Request(made.bodies[0], made.headers).shown(1)


def _came(error: PenstockError) -> str:
    if isinstance(error, HungUp):
        return (
            f"it closed the connection: {error}. If the line for the model is ok, the server is "
            "well and its own code fails at this row: see its log; or set model.request (or "
            "model.preset) to the form that it reads"
        )
    if isinstance(error, NoAnswer):
        return f"no answer came: {error}; see the server's log, or raise model.timeout_ms"
    if isinstance(error, Rejected):
        return f"it refused: {error}; set model.request and [rows] to what the model reads"
    if isinstance(error, Poison):
        return (
            f"it answered something else: {error}; the answer is one element for each row (in an "
            "array, or where model.answers says)"
        )
    return f"what came: {error}"


# The share of streams that a split moves is to be minded if it is further from its percentage.
FAR_OFF: Final = 0.2
# At most this many of a topic's newest messages are read.
MOST_MESSAGES: Final = 4_000


async def look_at_routes(cfg: config.Config) -> list[Finding]:
    seen = RouteMatches(routes_of(cfg), StreamNames(stream_from(cfg.kafka.stream_from)))
    kafka = hurried(cfg.kafka)
    async with open_reader(kafka, kafka.isolation) as reader:
        for topic in await reader.inputs():
            spans = await reader.spans(topic)
            each = MOST_MESSAGES // max(1, len(spans))
            newest = {n: (max(begin, end - each), end) for n, (begin, end) in spans.items()}
            await reader.read(topic, newest, seen.take, lambda _: None)
    return [seen.verdict(), *seen.shares()]


class RouteMatches:
    """Applies the routes to the objects of some messages. `verdict` says which routes match none of
    them, and `shares` how many streams each split gives away.
    """

    def __init__(self, routes: Routes, naming: StreamNames) -> None:
        self._routes = routes
        self._naming = naming
        self._last = ""
        # For each route with a split: the streams that it matched.
        self._split = {n: set[str]() for n, route in enumerate(routes.routes) if route.split}

    def take(self, partition: int, _: int, key: bytes | None, value: bytes | None) -> None:
        with suppress(SchemaError):  # a worker rejects such a message
            message = decode(value)
            if not isinstance(message, Ignored):
                self._ask(message, streams_of(message, self._naming, key, partition))

    def _ask(self, message: References | Inline, streams: list[str]) -> None:
        self._last = streams[-1]
        if isinstance(message, Inline):
            self._note(self._last, None, None)
            return
        for reference, stream in zip(message.items, streams, strict=True):
            self._note(stream, reference.bucket, reference.key)

    def _note(self, stream: str, bucket: str | None, key: str | None) -> None:
        number = self._routes.route_of(stream, bucket, key)
        if number in self._split:
            self._split[number].add(stream)

    def shares(self) -> list[Finding]:
        """Whole streams go by a hash of their names, so of few streams a share can be far off."""
        findings: list[Finding] = []
        for number, streams in self._split.items():
            route = self._routes.routes[number]
            given = Counter(map(route.model_of, streams))
            for model, percent in route.split.items() if streams else ():
                message = (
                    f"{model} answers {given[model]:,} of {len(streams):,} streams seen, by a "
                    f"split of {percent:g} %: whole streams go, by a hash of names, so of few the "
                    "share may be far off; penstock route STREAM... shows which go, and a route "
                    "of its own before this one moves a stream"
                )
                is_far_off = abs(given[model] / len(streams) - percent / 100) > FAR_OFF
                findings.append(Finding("split", "mind" if is_far_off else "ok", message))
        return findings

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
            message = f"none of {count} objects so far match {few}; that may be chance"
            return Finding("routes", "ok", message)
        return Finding("routes", "ok", f"each matches some of the newest {count} objects")
