"""From configuration to a running worker: the only place that names concrete adapters.

Rule: it decides nothing about rows; it picks adapters, checks that topics and services fit the
configuration, and turns signals into a drain. Owner: the command `run`.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from penstock import config
from penstock.adapters.inputs.choice import open_source
from penstock.adapters.inputs.groups import KafkaRegions
from penstock.adapters.kafka.exactly_once.producers import KafkaProducers
from penstock.adapters.kafka.group.member import MemberSource
from penstock.adapters.kafka.sink import KafkaSink
from penstock.adapters.model_servers.choice import fitted_to_server, open_model
from penstock.adapters.otel import open_spans
from penstock.adapters.stores.choice import open_objects
from penstock.calls.wait_for_services import ask_store, until_answered, until_one_answered
from penstock.decoders.pool import Pool
from penstock.errors import Fatal, PenstockError
from penstock.ops.health import serve_health
from penstock.ops.page.actions import Actions
from penstock.ops.topics import check_topics, mind_topics
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import Settings
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Clock, Guest, Source, Transactions
from penstock.process.clock import SystemClock
from penstock.process.signals import StopSignal
from penstock.process.stopping import stopped_after
from penstock.settings.routes import routes_of, shadow_of
from penstock.settings.worker import for_worker
from penstock.stages.consume import Intake
from penstock.stages.shadow.topic import LAST_S
from penstock.telemetry.worker import Telemetry
from penstock.worker.part import WHOLE, Part, Until
from penstock.worker.rekey import open_rekeyer

log = logging.getLogger(__name__)

# On top of the drain: 30 s for a producer that does not end, 10 s to commit and leave, and a
# margin.
LAST_RESORT_S = 60.0


async def run_worker(
    cfg: config.Config,
    path: Path | None,
    read_again: Callable[[], config.Config],
    *,
    leaves: bool = False,
    part: Part = WHOLE,
) -> None:
    """Run one worker until SIGTERM or SIGINT, or until its part is done, then drain it. On SIGHUP
    it reads the configuration again, for its routes. `path`: the file that this came from.
    `leaves`: with an instance id it gives up its place in the group when it stops. With
    `kafka.rekey` it also is one of the rekeyers, of which one works and the others stand by. Raises
    the first failure.
    """
    written, cfg = cfg, cfg.after_rekey()
    stop = StopSignal(cfg.delivery.drain_ms / 1000 + LAST_RESORT_S)
    try:
        async with open_worker(cfg, part, leaves=leaves) as pipeline:
            wiring = pipeline.wiring
            async with serve_health(
                cfg.http,
                pipeline,
                wiring.adapters.model,
                wiring.telemetry,
                cfg.kafka,
                Actions(path),
            ) as url:
                log.info("healthz, readyz and metrics at %s", url)
                await until_services_answered(cfg, pipeline)
                stop.then(pipeline.stop)
                asyncio.get_running_loop().add_signal_handler(
                    signal.SIGHUP, take_routes, wiring.intake, read_again
                )
                async with _rekeying(written, pipeline):
                    await _run_while_topics_are_there(cfg, pipeline, part.until)
                await pipeline.end()
    except asyncio.CancelledError:
        if not stop.asked:
            raise


async def _run_while_topics_are_there(
    cfg: config.Config, pipeline: Pipeline, until: Until | None
) -> None:
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(mind_topics(cfg, pipeline.wiring.adapters.sink))]
        if until is not None:
            beside.append(tasks.create_task(_stop_after(until, pipeline)))
        await pipeline.run()
        for task in beside:
            task.cancel()


async def _stop_after(until: Until, pipeline: Pipeline) -> None:
    await until(pipeline)
    pipeline.stop()


@asynccontextmanager
async def _rekeying(cfg: config.Config, pipeline: Pipeline) -> AsyncIterator[None]:
    """While the body runs, if `kafka.rekey` is set: the pipeline reads what is rekeyed."""
    if cfg.kafka.rekey is None:
        yield
        return
    stop = asyncio.Event()
    telemetry = pipeline.wiring.telemetry.of_rekeying()
    async with open_rekeyer(cfg, telemetry) as rekeyer, asyncio.TaskGroup() as tasks:
        tasks.create_task(rekeyer.run(stop))
        yield
        stop.set()


@asynccontextmanager
async def open_worker(
    cfg: config.Config, part: Part, *, leaves: bool = False
) -> AsyncIterator[Pipeline]:
    """The worker's pipeline, which does not run yet; Kafka has answered. Leaving the block closes
    all it uses.
    """
    clock, telemetry = SystemClock(), Telemetry(cfg.window.target_p99_ms / 1000 or None)
    objects = open_objects(cfg, watcher=telemetry.replicas)
    model, results = open_model(cfg, telemetry.replicas), part.results(cfg)
    models = {
        name: open_model(one, telemetry.replicas)
        for name, one in cfg.with_each_live_model().items()
    }
    sink = KafkaSink(cfg.kafka, clock, compression=cfg.output.compression)
    limits = cfg.limits
    decoders = Pool(limits.decoders, limits.decode_ms_per_mib, telemetry.decoder_died)
    regions: KafkaRegions | None = None
    _say_where(cfg, telemetry)
    guest = _guest(cfg, clock)
    spans = open_spans(cfg.traces)
    try:
        async with stopped_after(sink.stop):
            await until_answered("Kafka broker", sink.start, clock, cfg.limits.start_ms / 1000)
            cfg = await fitted_to_server(cfg)
            regions = KafkaRegions(cfg, leaves=leaves) if cfg.helped and part is WHOLE else None
            opened = regions or open_source(
                cfg.kafka,
                drain_ms=cfg.delivery.drain_ms,
                leaves=leaves,
                decided=cfg.delivery.guarantee == "exactly_once",
            )
            source = part.source(opened)
            groups = regions.groups if regions is not None else {}
            transactions = _transactions(cfg, source, opened, sink, clock, groups)
            adapters = Adapters(
                source,
                objects,
                model,
                part.sink(sink),
                clock,
                transactions,
                results,
                models,
                regions,
                guest,
                spans,
            )
            settings = part.settings(await _settings(cfg, adapters))
            kept_s = [await sink.retention_s(topic) for topic in cfg.kafka.inputs]
            telemetry.figures.input_retention.set(min(filter(None, kept_s), default=None))
            _calm_garbage_collector()
            yield Pipeline(Wiring(settings, adapters, telemetry, decoders=decoders))
    finally:
        for one in (model, *models.values()):
            await one.aclose()
        if guest is not None:
            await _dismiss(guest)
        await decoders.aclose()
        await objects.aclose()
        if results is not None:
            await results.aclose()
        if regions is not None:
            await regions.aclose()
        if spans is not None:
            await spans.aclose()


def _say_where(cfg: config.Config, telemetry: Telemetry) -> None:
    if cfg.region is not None:
        owners = {
            store: name for name, region in cfg.regions.items() for store in region.stores or ()
        }
        telemetry.in_region(cfg.region, owners)


def _guest(cfg: config.Config, clock: Clock) -> Guest | None:
    """The shadow's client. It has its own connections, even to a server of live models, and makes
    them only when they are needed, so that no start waits for the shadow.
    """
    found = shadow_of(cfg)
    if found is None:
        return None
    sink = KafkaSink(cfg.kafka, clock, compression=cfg.output.compression)
    return Guest(open_model(found[1]), sink)


async def _dismiss(guest: Guest) -> None:
    """Close the shadow's producer, which is still open after a failed start."""
    with suppress(PenstockError, TimeoutError):
        async with asyncio.timeout(LAST_S):
            await guest.sink.stop()
    await guest.model.aclose()


async def _settings(cfg: config.Config, adapters: Adapters) -> Settings:
    partitions = await check_topics(cfg, adapters.sink)
    return for_worker(
        cfg,
        adapters.model.version,
        {name: model.version for name, model in adapters.models.items()},
        input_partitions=sum(partitions[topic] for topic in cfg.kafka.inputs),
        output_partitions=partitions[cfg.output.topic],
        dead_letter_partitions=partitions[cfg.output.dead_letter_topic],
    )


async def until_services_answered(cfg: config.Config, pipeline: Pipeline) -> None:
    """Wait for the store and the model to answer. Of several models one answer is enough, so that a
    model that is away holds up no other.
    """
    wiring, start_s = pipeline.wiring, cfg.limits.start_ms / 1000
    clock = wiring.adapters.clock
    ask = partial(ask_store, wiring.adapters.objects, cfg.objects.endpoint_url)
    await until_answered("object store", ask, clock, start_s)
    if not wiring.settings.models:
        await until_answered("model server", wiring.main.calls.check, clock, start_s)
        return
    asks = {f"model server of {one.name}": one.calls.check for one in wiring.tracks.values()}
    await until_one_answered(asks, clock, start_s)


def take_routes(intake: Intake, read_again: Callable[[], config.Config]) -> None:
    """Read the routes again. Wrong ones are refused and the old ones stay: a mistyped file must not
    end a worker.
    """
    try:
        routes = routes_of(read_again())
        if routes.models != intake.routes.models:
            raise Fatal("models are added and removed by a start, not by SIGHUP")
    except PenstockError as error:
        log.error("the routes stay as they are: %s", error)
        return
    intake.routes = routes
    log.info("routes: %s", routes)


def _transactions(
    cfg: config.Config,
    source: Source,
    member: MemberSource,
    sink: KafkaSink,
    clock: Clock,
    groups: Mapping[str, str],
) -> Transactions | None:
    """`groups`: by topic, for topics of other regions."""
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
    """Exempt all objects that exist now from garbage collection. Without this every full collection
    walks some 300,000 objects of the libraries, and stops the worker for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
