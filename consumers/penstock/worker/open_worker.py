"""Opens a worker from its configuration: clients, decoders, settings, and the pipeline that uses
them.

Rule: adapters are picked, topics and services checked; nothing about rows is decided. A replay, a
dry run and a job change source, sink or settings of the same pipeline, never a stage.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

from penstock import config
from penstock.adapters.http.server_time import server_time
from penstock.adapters.inputs.kafka_sources import KafkaRegions, open_source
from penstock.adapters.kafka.exactly_once.transactions import KafkaProducers
from penstock.adapters.kafka.group.membership import MemberSource
from penstock.adapters.kafka.inside.producers import times_mended
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.model_servers.protocols import fitted_to_server, open_model
from penstock.adapters.otel import open_spans
from penstock.adapters.result_stores.results import open_results
from penstock.adapters.stores.choice import open_objects
from penstock.decoders.pool import Pool
from penstock.errors import PenstockError
from penstock.failures.outage import (
    MODEL,
    STORE,
    ask_store,
    until_answered,
    until_one_answered,
)
from penstock.ops.topic_checks import check_topics
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import Settings
from penstock.pipeline.wiring import Wiring
from penstock.ports import (
    Adapters,
    Clock,
    Guest,
    InputSource,
    Model,
    Objects,
    ResultStore,
    Sink,
    Spans,
    Transactions,
)
from penstock.process.asyncio_additions import SystemClock, stopped_after
from penstock.process.memory import move_to_large_pages
from penstock.process.signals import StopSignal
from penstock.settings.routes import shadow_of
from penstock.settings.worker import settings_for_worker, weights_of
from penstock.stages.shadow import LAST_S
from penstock.telemetry.worker import Telemetry

Until = Callable[[Pipeline], Awaitable[None]]


def _open_results(cfg: config.Config) -> ResultStore | None:
    return None if cfg.output.objects is None else open_results(cfg, cfg.output.objects)


class Variant(NamedTuple):
    """What a replay, a dry run or a job changes in a worker. Each of the functions `source`,
    `settings`, `sink` and `results` gets what the configuration says and returns what the worker
    uses instead. `until` runs beside the pipeline; when it returns, the worker drains.
    """

    source: Callable[[InputSource], InputSource] = lambda source: source
    settings: Callable[[Settings], Settings] = lambda settings: settings
    sink: Callable[[Sink], Sink] = lambda sink: sink
    results: Callable[[config.Config], ResultStore | None] = _open_results
    until: Until | None = None


AS_CONFIGURED = Variant()

# How much longer than the drain a stop may take: 30 s for a producer that does not end, 10 s to
# commit and to leave the group, and a margin.
LAST_RESORT_S = 60.0


def stop_signal(cfg: config.Config) -> StopSignal:
    """Handles SIGTERM and SIGINT from now on. If a stop takes far too long, the process exits."""
    return StopSignal(cfg.delivery.drain_ms / 1000 + LAST_RESORT_S)


@asynccontextmanager
async def open_worker(
    cfg: config.Config, variant: Variant, *, leaves: bool = False
) -> AsyncIterator[Pipeline]:
    """Opens the pipeline of a worker. Kafka has answered by then, but the pipeline does not run
    yet. The end of the block closes all that the pipeline uses.
    """
    clock, telemetry = SystemClock(), Telemetry(cfg.window.target_p99_ms / 1000 or None)
    telemetry.times_mended = times_mended
    sink = KafkaSink(cfg.kafka, clock, compression=cfg.output.compression)
    _tell_region(cfg, telemetry)
    async with (
        _open_clients(cfg, variant, clock, telemetry) as clients,
        AsyncExitStack() as after_sink,
        stopped_after(sink.stop),
    ):
        await until_answered("Kafka broker", sink.start, clock, cfg.limits.start_ms / 1000)
        cfg = await fitted_to_server(cfg)
        regions: KafkaRegions | None = None
        if cfg.helped and variant is AS_CONFIGURED:
            regions = KafkaRegions(cfg, leaves=leaves)
            after_sink.push_async_callback(regions.aclose)
        opened = regions or open_source(
            cfg.kafka,
            drain_ms=cfg.delivery.drain_ms,
            leaves=leaves,
            decided=cfg.delivery.guarantee == "exactly_once",
        )
        source = variant.source(opened)
        groups = regions.groups if regions is not None else {}
        adapters = Adapters(
            source,
            clients.objects,
            clients.model,
            variant.sink(sink),
            clock,
            _transactions(cfg, source, opened, sink, clock, groups),
            clients.results,
            clients.models,
            regions,
            clients.guest,
            clients.spans,
            _store_time(cfg),
        )
        settings = variant.settings(await _settings(cfg, adapters))
        kept_s = [await sink.retention_s(topic) for topic in cfg.kafka.inputs]
        telemetry.status_gauges.input_retention.set(min(filter(None, kept_s), default=None))
        _calm_garbage_collector()
        move_to_large_pages()
        yield Pipeline(Wiring(settings, adapters, telemetry, decoders=clients.decoders))


class _Clients(NamedTuple):
    """What a pipeline uses besides Kafka."""

    objects: Objects
    model: Model
    models: Mapping[str, Model]
    results: ResultStore | None
    guest: Guest | None
    spans: Spans | None
    decoders: Pool


@asynccontextmanager
async def _open_clients(
    cfg: config.Config, variant: Variant, clock: Clock, telemetry: Telemetry
) -> AsyncIterator[_Clients]:
    """None of these is asked before it is used, so nothing here waits for a service."""
    objects = open_objects(cfg, watcher=telemetry.replicas)
    model, results = open_model(cfg, telemetry.replicas), variant.results(cfg)
    models = {
        name: open_model(model_cfg, telemetry.replicas)
        for name, model_cfg in cfg.with_each_live_model().items()
    }
    decoders = Pool(
        cfg.limits.decoders,
        cfg.limits.decode_ms_per_mib,
        telemetry.decoder_died,
        reuse=cfg.limits.decoder_reuse,
        weight=weights_of(cfg),
    )
    guest, spans = _guest(cfg, clock), open_spans(cfg.traces)
    try:
        yield _Clients(objects, model, models, results, guest, spans, decoders)
    finally:
        for each in (model, *models.values()):
            await each.aclose()
        if guest is not None:
            await _close_guest(guest)
        await decoders.aclose()
        await objects.aclose()
        if results is not None:
            await results.aclose()
        if spans is not None:
            await spans.aclose()


def _store_time(cfg: config.Config) -> Callable[[], Awaitable[datetime | None]] | None:
    url = cfg.objects.endpoint_url
    return partial(server_time, url) if url is not None and url.startswith("http") else None


def _tell_region(cfg: config.Config, telemetry: Telemetry) -> None:
    if cfg.region is not None:
        owners = {
            store: name for name, region in cfg.regions.items() for store in region.stores or ()
        }
        telemetry.in_region(cfg.region, owners)


def _guest(cfg: config.Config, clock: Clock) -> Guest | None:
    """The shadow's clients. They have their own connections, even to a server that live models use
    too. They connect when they are first used, so that no start waits for the shadow.
    """
    shadowing = shadow_of(cfg)
    if shadowing is None:
        return None
    sink = KafkaSink(cfg.kafka, clock, compression=cfg.output.compression)
    return Guest(open_model(shadowing[1]), sink)


async def _close_guest(guest: Guest) -> None:
    """Close the shadow's clients. The shadow's producer is still open only if the start failed."""
    with suppress(PenstockError, TimeoutError):
        async with asyncio.timeout(LAST_S):
            await guest.sink.stop()
    await guest.model.aclose()


async def _settings(cfg: config.Config, adapters: Adapters) -> Settings:
    partitions = await check_topics(cfg, adapters.sink)
    return settings_for_worker(
        cfg,
        adapters.model.version,
        {name: model.version for name, model in adapters.models.items()},
        input_partitions=sum(partitions[topic] for topic in cfg.kafka.inputs),
        output_partitions=partitions[cfg.output.topic],
        dead_letter_partitions=partitions[cfg.output.dead_letter_topic],
    )


async def until_services_answered(cfg: config.Config, pipeline: Pipeline) -> None:
    """Wait until the store and the model answer. With several models the wait ends when the first
    of them answers, so that a model that is away does not hold up the others.
    """
    wiring, start_s = pipeline.wiring, cfg.limits.start_ms / 1000
    clock = wiring.adapters.clock
    ask = partial(ask_store, wiring.adapters.objects, cfg.objects.endpoint_url)
    shown = wiring.outages
    await until_answered(STORE, ask, clock, start_s, shown)
    if not wiring.settings.models:
        await until_answered(MODEL, wiring.main.calls.check, clock, start_s, shown)
        return
    asks = {f"{MODEL} of {track.name}": track.calls.check for track in wiring.tracks.values()}
    await until_one_answered(asks, clock, start_s, shown)


def _transactions(
    cfg: config.Config,
    source: InputSource,
    member: MemberSource,
    sink: KafkaSink,
    clock: Clock,
    groups: Mapping[str, str],
) -> Transactions | None:
    """`groups`: for each topic that belongs to another region, the consumer group of that
    region.
    """
    if cfg.delivery.guarantee != "exactly_once":
        return None
    producers = KafkaProducers(
        cfg.kafka,
        clock,
        sink.batch_bytes,
        member.member_of,
        groups=groups,
        compression=cfg.output.compression,
    )
    return Transactions(producers, source)


def _calm_garbage_collector() -> None:
    """Exempt all objects that exist now from garbage collection. Otherwise every full collection
    would walk some 300,000 objects of the libraries, and stop the worker for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
