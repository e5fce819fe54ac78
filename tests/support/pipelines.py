"""A whole pipeline on memory adapters and virtual time, and short ways to feed it and to look at
it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from random import Random
from typing import Any, Protocol

import orjson

from penstock.adapters.inputs.bounded_sources import BoundedSource
from penstock.adapters.memory import MemoryObjects, MemoryResults, MemorySink
from penstock.core.comparing.comparison import Agreement
from penstock.core.progress.line_stop import LineLimits
from penstock.core.records.output_records import Labels, same_partition
from penstock.core.routing.model_routes import ModelRoute, Routes
from penstock.core.rows.blocks import Ticket
from penstock.core.window.window import WindowLimits
from penstock.decoders.protocol import Decoders
from penstock.decoders.simulated import DecodersAtHand
from penstock.formats.runs import RowOptions
from penstock.messages.shadow import ModelId
from penstock.pipeline.life import Pipeline
from penstock.pipeline.settings import LaneLimits, ModelTerms, Settings, TimeLimits
from penstock.pipeline.wiring import Wiring
from penstock.ports import Adapters, Guest, Transactions, Where
from penstock.stages.consume import IntakeTerms
from penstock.stages.encode import PublishTerms
from penstock.stages.read_object import ObjectTerms
from penstock.stages.reject import LetterTerms
from penstock.stages.result_objects import Offload
from penstock.stages.shadow import ShadowTerms, ShadowTopicTerms
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.region_workers import MemoryModel
from penstock.tools.simulation.virtual_time import VirtualClock, inline
from penstock.tracing import TraceNames, TraceTerms
from tests.support.memory import MemoryProducers, MemorySource, MemorySpans

BUCKET = "b"
LABELS = Labels("refs", "predictions", "rows", None, markers=True)
DEAD_LETTERS = "predictions.dlq"
SHADOW = ShadowTerms(
    ShadowTopicTerms("predictions.shadow", ModelId("rows"), "v2", 1e-6, ()),
    percent=100.0,
    agreement=Agreement(1e-6),
    rows=10_000,
    nbytes=1 << 20,
    call_rows=64,
    callers=2,
)


SETTINGS = Settings(
    labels=LABELS,
    main=ModelTerms(
        RowOptions(),
        WindowLimits(max_rows=64, max_bytes=1 << 20, max_wait_s=0.010),
        target_p99_s=None,
        callers=4,
    ),
    intake=IntakeTerms(),
    lane=LaneLimits(64, LineLimits(0.5, 100)),
    objects=ObjectTerms(
        fetchers=16, object_bytes=None, inline_bytes=500, pin=True, wait_for_object_s=0.0
    ),
    publish=PublishTerms(same_partition),
    letters=LetterTerms(DEAD_LETTERS, 4),
    times=TimeLimits(
        commit_interval_s=0.5, drain_s=15.0, broker_patience_s=120.0, patience_s=None, stall_s=300.0
    ),
    buffer_bytes=1 << 20,
    input_partitions=1,
)


def changed(settings: Settings, **changes: Any) -> Settings:
    """With other values, by the name that they have in the settings or in those of a stage."""
    names = [field.name for field in fields(settings)]
    for name in names:
        of_stage: Any = getattr(settings, name)
        if name in changes or not is_dataclass(of_stage) or isinstance(of_stage, type):
            continue
        known = {field.name for field in fields(of_stage)}
        mine = {key: changes.pop(key) for key in known & changes.keys() - set(names)}
        if mine:
            changes[name] = replace(of_stage, **mine)
    return replace(settings, **changes)


def csv(rows: int, start: int = 0) -> bytes:
    """Rows of two equal numbers; row i sums to 2 * (start + i)."""
    return b"".join(b"%d,%d\n" % (start + row, start + row) for row in range(rows))


@dataclass
class World:
    """The four services in memory. Partition counts of source and sink are equal. With `ends` the
    source is read up to these offsets, by partition.
    """

    partitions: int = 1
    allow: Sequence[str] | None = None
    stream_from: str | None = None
    time_from: str | None = None
    exactly_once: bool = False
    forgives: bool = False  # what nobody foresaw is answered, not raised
    offload: Offload = inline
    decoders: Decoders = field(default_factory=DecodersAtHand)
    partition_of: Callable[[Ticket], int] = same_partition
    settings: Settings = SETTINGS
    ends: dict[int, int] | None = None
    bounded: BoundedSource | None = None
    source: MemorySource = field(init=False)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    model: MemoryModel = field(default_factory=MemoryModel)
    models: dict[str, MemoryModel] = field(default_factory=dict)
    shadow: MemoryModel = field(default_factory=MemoryModel)
    shadow_sink: MemorySink = field(default_factory=MemorySink)
    sink: MemorySink = field(init=False)
    producers: MemoryProducers = field(init=False)
    results: MemoryResults = field(default_factory=MemoryResults)
    spans: MemorySpans = field(default_factory=MemorySpans)
    clock: VirtualClock = field(default_factory=VirtualClock)
    telemetry: Telemetry = field(default_factory=Telemetry)
    # A test is the same each time: what chance does to the worker is the simulation's to find.
    random: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.source = MemorySource(self.partitions)
        self.sink = MemorySink(partitions=self.partitions)
        self.producers = MemoryProducers(self.source, self.sink)
        self.settings = replace(self.settings, input_partitions=self.partitions)

    def with_settings(self, **changes: Any) -> "World":
        self.settings = changed(self.settings, **changes)
        return self

    def with_models(self, names: Sequence[str], *routes: ModelRoute, **changes: Any) -> "World":
        """Beside `rows`, each with what the settings say now."""
        self.models = {name: MemoryModel() for name in names}
        settings = changed(self.settings, **changes)
        self.settings = replace(
            settings,
            models=dict.fromkeys(names, settings.main),
            routes=Routes([settings.labels.model, *names], routes),
        )
        return self

    def with_shadow(self, **changes: Any) -> "World":
        """Of `rows`, asked for each batch."""
        return self.with_settings(shadow=replace(SHADOW, **changes))

    def with_traces(self, *, sample: float, slowest: float = 0.0) -> "World":
        names = TraceNames("penstock", "predictions", "rows")
        return self.with_settings(traces=TraceTerms(sample, slowest, names))

    def pipeline(self) -> Pipeline:
        transactions = Transactions(self.producers, self.source) if self.exactly_once else None
        if self.ends is not None:
            ends = {Where("refs", number): end for number, end in self.ends.items()}
            self.bounded = BoundedSource(self.source, ends)
        adapters = Adapters(
            self.bounded or self.source,
            self.objects,
            self.model,
            self.sink,
            self.clock,
            transactions,
            self.results,
            dict(self.models),
            shadow=Guest(self.shadow, self.shadow_sink),
            spans=self.spans,
        )
        settings = changed(
            self.settings,
            stream_from=self.stream_from,
            time_from=self.time_from,
            allow=self.allow,
            partition_of=self.partition_of,
        )
        wiring = Wiring(
            settings,
            adapters,
            self.telemetry,
            decoders=self.decoders,
            offload=self.offload,
            jitter=self.random.random,
            draw=self.random.random,
            raises=not self.forgives,
        )
        return Pipeline(wiring)

    def announce(
        self,
        key: str,
        data: bytes | None = None,
        *,
        partition: int = 0,
        stream: str | None = None,
        timestamp_ms: int = 0,
        traceparent: str | None = None,
        **more: Any,
    ) -> int:
        """Store the object (unless `data` is None) and write its reference; the record's offset."""
        if data is not None:
            self.objects.put(BUCKET, key, data)
        value = {"bucket": BUCKET, "key": key, "stream": stream or key, **more}
        record = self.source.append(
            orjson.dumps(value),
            partition=partition,
            timestamp_ms=timestamp_ms,
            traceparent=None if traceparent is None else traceparent.encode(),
        )
        return record.offset

    def records(self, partition: int = 0) -> list[dict[str, Any]]:
        return [orjson.loads(value) for _, value in self.sink.topics["predictions"][partition]]

    def published(self, partition: int = 0) -> int:
        """How many records there are. To wait for them is to ask many times: none is parsed."""
        return len(self.sink.topics["predictions"][partition])

    def dead_letters(self) -> list[dict[str, Any]]:
        topic = self.sink.topics[DEAD_LETTERS]
        return [orjson.loads(value) for number in sorted(topic) for _, value in topic[number]]

    def next_offset(self, partition: int = 0) -> int:
        return (
            self.source.committed[partition].next_offset
            if partition in self.source.committed
            else 0
        )


def rows_and_sums(world: World) -> list[tuple[int, int, float]]:
    """(offset, row, predicted sum) of every record, in order."""
    return [
        (record["source"]["offset"], record["row"], record["prediction"]["sum"])
        for record in world.records(0)
    ]


class HasPipeline(Protocol):
    def pipeline(self) -> Pipeline: ...


@asynccontextmanager
async def running(world: HasPipeline) -> AsyncIterator[Pipeline]:
    """The pipeline runs while the body does; then it drains. Its failure is raised at the end."""
    pipeline = world.pipeline()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_run(pipeline))
        await asyncio.sleep(0)
        yield pipeline
        pipeline.stop()


async def _run(pipeline: Pipeline) -> None:
    await pipeline.run()
    await pipeline.end()


async def until(condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Let virtual time pass until the condition holds; looks every ms at first, then ever less
    often.
    """
    began_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(max(0.001, (asyncio.get_running_loop().time() - began_s) / 100))


async def run_to_end(world: World, records: int, partition: int = 0) -> None:
    """Run until so many records are committed, then drain."""
    async with running(world):
        await until(lambda: world.next_offset(partition) >= records, within_s=600.0)
