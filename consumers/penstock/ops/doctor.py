"""`penstock doctor`: checks everything that a worker needs, and says how to correct it.

Rule: it changes nothing, and asks what a worker asks at its start, by the same code. Each check has
a deadline of its own, and one that fails does not keep the others from running. Owner: the command.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from penstock import config, requests
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.model_servers.choice import advice, each_endpoint, open_model, wanted
from penstock.adapters.stores.choice import open_objects, open_store, places_of_caller
from penstock.adapters.stores.names import folder_of
from penstock.calls.canary import canary_of
from penstock.calls.wait_for_services import ask_model, ask_store
from penstock.core.routing.places import Places
from penstock.errors import EXIT_USAGE, Fatal, PenstockError
from penstock.messages.errors import SchemaError
from penstock.messages.urls import split_url
from penstock.ops.topics import check_topics
from penstock.ports import Location
from penstock.process.clock import SystemClock

# A person waits for the answer, so a service that takes longer is reported as failed.
LOOK_S = 15.0


class Finding(NamedTuple):
    """`said`: what was found, or what is wrong and how to correct it."""

    what: str
    is_well: bool
    said: str


async def examine(cfg: config.Config, urls: Sequence[str]) -> AsyncIterator[Finding]:
    """Run the checks one after the other; `urls`: objects that a worker should be able to read."""
    yield await _found("topics", partial(_topics, cfg))
    store = await _found("store", partial(_store, cfg))
    yield store
    for url in urls if store.is_well else ():
        yield await _found(url, partial(_object, cfg, url))
    for name in cfg.stores:
        yield await _found(f"stores.{name}", partial(_named_store, name, cfg.stores[name]))
    for name, each in {"": cfg, **cfg.with_each_model()}.items():
        suffix = f" {name}" if name else ""
        for one in each_endpoint(each).values():
            model = await _found(f"model{suffix}", partial(_model, one))
            yield model
            if model.is_well:
                yield await _found(f"limits{suffix}", partial(_limits, one))


async def _found(what: str, look: Callable[[], Awaitable[str]]) -> Finding:
    try:
        async with asyncio.timeout(LOOK_S):
            return Finding(what, True, await look())
    except PenstockError as error:
        return Finding(what, False, str(error))
    except TimeoutError:
        return Finding(what, False, f"no answer within {LOOK_S:g} s")


async def _topics(cfg: config.Config) -> str:
    kafka = replace(cfg.kafka, timeout_ms=min(cfg.kafka.timeout_ms, int(LOOK_S * 1000) - 1_000))
    sink = KafkaSink(kafka, SystemClock())
    try:
        await sink.start()
        counts = await check_topics(cfg, sink)
    finally:
        await sink.stop()
    topics = ", ".join(f"{topic} ({count} partitions)" for topic, count in counts.items())
    return f"{topics} on {kafka.bootstrap_servers}"


async def _store(cfg: config.Config) -> str:
    url = cfg.objects.endpoint_url
    objects = open_objects(cfg)
    try:
        await ask_store(objects, url)
    finally:
        await objects.aclose()
    place = config.shown_url(url) if url else "the place that its client takes by itself"
    return f"{place}; to see if an object is readable: penstock doctor s3://BUCKET/KEY"


async def _named_store(name: str, store: config.Store) -> str:
    objects = open_store(name, store)
    try:
        folder = folder_of(store.url)
        if folder is not None and not await asyncio.to_thread(Path(folder).is_dir):
            raise Fatal(
                f"{folder} is not a folder; correct stores.{name}.url", exit_code=EXIT_USAGE
            )
        await ask_store(objects, store.endpoint_url)
    finally:
        await objects.aclose()
    return config.shown_url(store.url)


async def _object(cfg: config.Config, url: str) -> str:
    try:
        named, bucket, key = split_url(url)
    except SchemaError as error:
        raise Fatal(str(error), exit_code=EXIT_USAGE) from None
    store = Places(places_of_caller(cfg)).of(named, bucket, key)
    objects = open_objects(cfg, lazily=True)
    try:
        part = await objects.part(Location(bucket, key, store=store), 0, 1)
    finally:
        await objects.aclose()
    return f"readable, {part.size:,} bytes"


async def _model(cfg: config.Config) -> str:
    form = requests.find(cfg.model.request).takes
    canary = canary_of(cfg.model.canary, form)
    model = open_model(cfg)
    try:
        await ask_model(model.predict, [canary] if canary is not None else [])
    finally:
        await model.aclose()
    took = "takes the row of model.canary" if canary is not None else "is there"
    return f"{cfg.model.name} at {config.shown_url(cfg.model.url)} {took}"


async def _limits(cfg: config.Config) -> str:
    """What the model takes and how many rows a request, as far as its server tells."""
    if warning := await advice(cfg):
        raise Fatal(warning)
    signature = await wanted(cfg)
    if signature is None:
        return "the model's server does not tell what it takes"
    wants = f"the model wants {signature}"
    if signature.most_rows is None:
        return wants
    asked = cfg.window.max_rows
    lowered = f"; window.max_rows = {asked} is cut to that" if asked > signature.most_rows else ""
    return f"{wants}, at most {signature.most_rows} rows a request{lowered}"
