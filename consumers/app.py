"""From configuration to a running worker: the only place that names concrete adapters.

Rule: nothing here decides anything about rows; it picks adapters, checks that the world fits the
configuration, and turns signals into a drain.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from consumers import config, requests
from consumers.adapters.kafka_partitioner import hashed
from consumers.adapters.kafka_sink import KafkaSink
from consumers.adapters.kafka_source import KafkaSource
from consumers.adapters.kafka_transactions import KafkaOutlets
from consumers.adapters.models import open_model
from consumers.adapters.objects_common import folder_of
from consumers.adapters.objects_direct import DirectObjects
from consumers.adapters.objects_folder import FolderObjects
from consumers.adapters.objects_obstore import ObstoreObjects
from consumers.adapters.objects_s3fs import S3fsObjects
from consumers.adapters.torchserve_management import server_batching
from consumers.clock import SystemClock
from consumers.core import double_batching
from consumers.core.blocks import Ticket
from consumers.core.line import LineLimits
from consumers.core.records import Labels
from consumers.core.window import WindowLimits
from consumers.errors import EXIT_USAGE, Fatal
from consumers.formats.base import RowOptions
from consumers.formats.registry import check_options
from consumers.ops.health import serve_health
from consumers.pipeline import Pipeline
from consumers.ports import Adapters, Clock, Objects, Sink, Transactions
from consumers.process.deadline import end_within
from consumers.process.stopping import stopped_after
from consumers.services.canary import canary_of
from consumers.services.startup import ask_store, until_answered
from consumers.stages.consume import Intake
from consumers.stages.download import GIVE_UP_S
from consumers.telemetry import Telemetry
from consumers.wiring import Settings

log = logging.getLogger(__name__)

# An error that says as little as it can: a stream's name of 4,096 characters twice, as JSON and as
# the Kafka key, and 1,000 characters of a message.
LEAST_RECORD_BYTES = 50_000
# Beyond the drain: a producer that does not let go is asked for 30 s, then commit and leave 10 s.
LAST_RESORT_S = 60.0


def open_objects(settings: config.Objects) -> Objects:
    folder = folder_of(settings.endpoint_url)
    if folder is not None:
        return FolderObjects(folder)
    if settings.client == "s3fs":
        return S3fsObjects(settings)
    objects = ObstoreObjects(settings)
    return DirectObjects(objects, settings) if DirectObjects.is_for(settings) else objects


def row_options(cfg: config.Config) -> RowOptions:
    header, missing = cfg.rows.header, cfg.rows.missing
    if cfg.rows.decimal == "," and cfg.rows.delimiter == "comma":
        raise Fatal(
            'rows.decimal = "," and rows.delimiter = "comma": one sign cannot be both; with a '
            "decimal comma cells are separated by semicolon, tab or pipe",
            exit_code=EXIT_USAGE,
        )
    options = RowOptions(
        form=requests.find(cfg.model.request).takes,
        format=cfg.rows.format,
        text=cfg.rows.text,
        header=header if isinstance(header, str) else "yes" if header else "no",
        columns=cfg.rows.columns,
        delimiter=cfg.rows.delimiter,
        decimal=cfg.rows.decimal,
        comment=cfg.rows.comment,
        missing=None if missing == "reject" else float(missing),
        member=cfg.rows.member,
        fail_on_bad_row=cfg.rows.on_bad_row == "fail_object",
        row_bytes=cfg.limits.row_bytes,
        max_columns=cfg.limits.columns,
        expansion_ratio=cfg.limits.expansion_ratio,
        expanded_bytes=cfg.limits.expanded_bytes,
        members=cfg.limits.members,
        member_bytes=cfg.limits.member_bytes,
        pixels=cfg.limits.pixels,
    )
    check_options(options, cfg.model.request)
    return options


def window_limits(settings: config.Window, form: requests.RequestForm) -> WindowLimits:
    return WindowLimits(
        max_rows=1 if form.single else settings.max_rows,
        max_bytes=settings.max_bytes,
        max_wait_s=settings.max_wait_ms / 1000,
        eager=settings.eager,
        fair=settings.fair,
    )


def pipeline_settings(
    cfg: config.Config,
    labels: Labels,
    *,
    dead_letter_partitions: int,
    commit_interval_s: float,
    line: LineLimits,
    input_partitions: int,
    output_partitions: int | None = None,
    patience_s: float | None = None,
) -> Settings:
    return Settings(
        labels=labels,
        dead_letter_topic=cfg.output.dead_letter_topic,
        dead_letter_partitions=dead_letter_partitions,
        rows=row_options(cfg),
        window=window_limits(cfg.window, requests.find(cfg.model.request)),
        target_p99_s=cfg.window.target_p99_ms / 1000 if cfg.window.target_p99_ms else None,
        fetchers=cfg.objects.concurrency,
        callers=cfg.model.max_in_flight,
        buffer_bytes=cfg.limits.buffer_bytes,
        in_flight_objects=cfg.limits.in_flight_objects,
        object_bytes=cfg.limits.object_bytes,
        pin=cfg.objects.pin,
        wait_for_object_s=cfg.objects.wait_for_object_ms / 1000,
        commit_interval_s=commit_interval_s,
        drain_s=cfg.delivery.drain_ms / 1000,
        patience_s=patience_s,
        line=line,
        input_partitions=input_partitions,
        output_partitions=output_partitions,
        order_by_stream=cfg.output.order == "stream",
        canary=canary_of(cfg.model),
        dedupe=cfg.kafka.dedupe,
        broker_patience_s=cfg.kafka.timeout_ms / 1000,
        stall_s=_stall_s(cfg) if patience_s is None else None,
    )


def _stall_s(cfg: config.Config) -> float:
    """The longest waits that are meant come first."""
    meant_ms = max(cfg.model.timeout_ms, cfg.objects.wait_for_object_ms)
    return cfg.limits.stall_ms / 1000 + max(meant_ms / 1000, GIVE_UP_S)


async def run_worker(cfg: config.Config) -> None:
    """One worker until SIGTERM or SIGINT, then a drain. Raises the first failure."""
    stop = StopSignal(cfg.delivery.drain_ms / 1000 + LAST_RESORT_S)
    clock, telemetry = SystemClock(), Telemetry()
    objects, model = open_objects(cfg.objects), open_model(cfg)
    sink = KafkaSink(cfg.kafka, clock, compression=cfg.output.compression)
    start_s = cfg.limits.start_ms / 1000
    try:
        async with stopped_after(sink.stop):
            await until_answered("Kafka broker", sink.start, clock, start_s)
            cfg = await fitted_to_server(cfg)
            source = _source(cfg)
            transactions = _transactions(cfg, source, sink, clock)
            pipeline = await _pipeline(
                cfg, Adapters(source, objects, model, sink, clock, transactions), telemetry
            )
            _calm_garbage_collector()
            async with serve_health(cfg.http, pipeline, model, telemetry) as url:
                log.info("healthz, readyz and metrics at %s", url)
                await until_answered(
                    "object store", partial(ask_store, objects, cfg.objects), clock, start_s
                )
                await until_answered("model server", pipeline.calls.check, clock, start_s)
                stop.then(pipeline.stop)
                await pipeline.run()
    except asyncio.CancelledError:
        if not stop.asked:
            raise
    finally:
        await model.aclose()
        await objects.aclose()


async def fitted_to_server(cfg: config.Config) -> config.Config:
    """Where the server gathers requests: warn if they are batches already; if each carries one row,
    keep as many in flight as fill its batches.
    """
    model = cfg.model
    server = await server_batching(model) if model.protocol == "torchserve" else None
    if server is None:
        return cfg
    if requests.find(model.request).single:
        calls = max(model.max_in_flight, double_batching.calls_to_fill(server))
        return replace(cfg, model=replace(model, max_in_flight=calls))
    if advice := double_batching.warning(server, max_in_flight=model.max_in_flight):
        log.warning("%s", advice)
    return cfg


async def _pipeline(cfg: config.Config, adapters: Adapters, telemetry: Telemetry) -> Pipeline:
    partitions = await _check_topics(cfg, adapters.sink)
    labels = Labels(
        cfg.kafka.input_topic,
        cfg.output.topic,
        cfg.model.name,
        adapters.model.version,
        cfg.output.markers,
    )
    settings = pipeline_settings(
        cfg,
        labels,
        dead_letter_partitions=partitions[cfg.output.dead_letter_topic],
        commit_interval_s=cfg.delivery.commit_interval_ms / 1000,
        line=LineLimits(cfg.limits.dlq_ratio, cfg.limits.dlq_consecutive),
        input_partitions=partitions[cfg.kafka.input_topic],
        output_partitions=(
            partitions[cfg.output.topic] if cfg.output.partitioning == "same" else None
        ),
    )
    return Pipeline(
        settings,
        adapters,
        Intake(
            stream_from=cfg.kafka.stream_from,
            allow=cfg.objects.allow,
            clock=adapters.clock,
            telemetry=telemetry,
        ),
        _partition_rule(cfg, partitions[cfg.output.topic]),
        telemetry,
    )


def _source(cfg: config.Config) -> KafkaSource:
    return KafkaSource(cfg.kafka, drain_ms=cfg.delivery.drain_ms)


def _transactions(
    cfg: config.Config, source: KafkaSource, sink: KafkaSink, clock: Clock
) -> Transactions | None:
    if cfg.delivery.guarantee != "exactly_once":
        return None
    outlets = KafkaOutlets(cfg.kafka, clock, sink.batch_bytes, compression=cfg.output.compression)
    return Transactions(outlets, source)


def _calm_garbage_collector() -> None:
    """What is loaded by now stays: without this every full collection walks some 300,000 objects of
    the libraries, tens of milliseconds in which nothing else happens.
    """
    gc.collect()
    gc.freeze()


class StopSignal:
    """SIGTERM and SIGINT, from the first moment on: end the start, or drain what runs."""

    def __init__(self, within_s: float) -> None:
        self.asked = False
        self._within_s = within_s
        self._task = asyncio.current_task()
        self._stop: Callable[[], None] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    def then(self, stop: Callable[[], None]) -> None:
        """From now on a signal calls this instead of cancelling the task."""
        self._stop = stop

    def _ask(self) -> None:
        if not self.asked:
            end_within(self._within_s)
        self.asked = True
        if self._stop is not None:
            self._stop()
        elif self._task is not None:
            self._task.cancel()


async def _check_topics(cfg: config.Config, sink: Sink) -> dict[str, int]:
    """Partitions of each topic; raises `Fatal` where answers would have no place to go."""
    counts = {topic: await sink.partitions(topic) for topic in cfg.topics}
    for topic, count in counts.items():
        if not count:
            raise Fatal(
                f"there is no topic {topic} on {cfg.kafka.bootstrap_servers}; "
                "create it: penstock topics create",
                exit_code=EXIT_USAGE,
            )
    for topic in (cfg.output.topic, cfg.output.dead_letter_topic):
        if not sink.fits(topic, None, LEAST_RECORD_BYTES):
            raise Fatal(
                f"max.message.bytes of {topic} is too small for the longest names that a message "
                f"may have: set it to {2 * LEAST_RECORD_BYTES:,} or more",
                exit_code=EXIT_USAGE,
            )
    wanted, found = counts[cfg.kafka.input_topic], counts[cfg.output.topic]
    if cfg.output.partitioning == "same" and found < wanted:
        raise Fatal(
            f"{cfg.output.topic} has {found} partitions, {cfg.kafka.input_topic} has {wanted}; "
            "add partitions, or set output.partitioning = 'stream'",
            exit_code=EXIT_USAGE,
        )
    return counts


def _partition_rule(cfg: config.Config, output_partitions: int) -> Callable[[Ticket], int]:
    if cfg.output.partitioning == "same":
        return lambda ticket: ticket.owner.partition

    of_stream = hashed(output_partitions)

    def of_ticket(ticket: Ticket) -> int:
        return of_stream(ticket.stream)

    return of_ticket
