"""Compares a worker's rows per second and CPU per row with a client that only posts, and with the
seed program's method.

Rule: in every round they take turns on the same services; results are medians of their ratios. All
references are on the topic before the worker starts, and the first fifth of the rows is not
counted.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct, convert

from penstock import config
from penstock.adapters.model_servers.protocols import request_of
from penstock.errors import Fatal
from penstock.tools.bench import object_bodies
from penstock.tools.bench.child_processes import BenchWorker, running_worker
from penstock.tools.bench.compared_clients import (
    WARM_UP_REQUESTS,
    HttpAnswer,
    HttpTask,
    post,
    warm_up,
)
from penstock.tools.bench.distance import Distance, Far, at_distance
from penstock.tools.bench.object_bodies import BenchObject, read_body
from penstock.tools.bench.reader import ReadAnswer, check_order, read
from penstock.tools.bench.resource_use import QUIET_WAIT_S, quiet, service_pids
from penstock.tools.bench.topics_and_bucket import (
    PARTITIONS,
    check_local,
    count_records,
    end_watcher,
    fresh_bucket,
    fresh_topics,
    publish,
)

SIZES = (5_000, 500, 8)
# The rows of a round: 5 s of work at 150,000 rows a second, or at 1,500 objects a second.
ROUND_ROWS = 750_000
ROUND_OBJECTS = 8_000
# How many objects the bucket has. The references name the objects in turn. Objects of the largest
# size take 30 MB together.
DISTINCT_OBJECTS = 40
STREAMS = 16
WARM_UP_SHARE = 0.2
ROUND_LIMIT_S = 120.0
SAMPLE_S = 0.1
# If less CPU time than this was used, no figure is given, because CPU time is counted in steps of
# 10 ms, and one step is 5 % of this time.
LEAST_CPU_S = 0.2


class ThroughputSummary(Struct, kw_only=True):
    """The figures of one object size, either of one round or as medians over all rounds. A figure
    is None if the measured part was too short for it.
    """

    rows_per_object: int
    ratio_to_direct: float
    ratio_to_seed: float | None
    cpu_us_per_row: float | None
    cpu_ms_per_object: float | None
    peak_rss_mb: float
    rows_per_s: float
    objects_per_s: float
    direct_rows_per_s: float
    direct_cpu_us_per_row: float
    seed_rows_per_s: float | None


class Round(ThroughputSummary, kw_only=True):
    """The figures of one round, in which worker, direct client and seed's method took turns."""

    objects: int
    rows: int


class ThroughputReport(Struct, kw_only=True):
    body: str | None = None
    request: str = "float32"
    distance: Distance = Distance()
    columns: int | None
    batch_rows: int
    in_flight: int
    partitions: int
    protocol: str
    summaries: list[ThroughputSummary]
    rounds: list[Round]


class ThroughputPlan(Struct, frozen=True, kw_only=True):
    """How much is measured. `body`: the file that replaces the objects of `sizes` rows of numbers.
    If it is given, the seed's method is left out: the seed program takes only numbers. `distance`:
    only the worker takes the long way, so the ratios tell what the distance costs.
    """

    sizes: Sequence[int] = SIZES
    body: Path | None = None
    distance: Distance = Distance()
    rounds: int = 3
    rows: int = ROUND_ROWS
    direct_s: float = 4.0
    seed_s: float = 1.5
    warm_up_requests: int = WARM_UP_REQUESTS
    quiet_wait_s: float = QUIET_WAIT_S

    def objects(self, size: int) -> int:
        return max(1, min(self.rows // size, ROUND_OBJECTS))


class ThroughputSample(NamedTuple):
    """How many rows the output topic has at a moment, and the worker's CPU time until then."""

    rows: int
    cpu_s: float


async def measure(
    cfg: config.Config, config_path: Path | None, plan: ThroughputPlan, tell: Callable[[str], None]
) -> ThroughputReport:
    check_local(cfg)
    body = None if plan.body is None else read_body(cfg, plan.body)
    sizes = plan.sizes if body is None else (body.rows,)
    await warm_up(cfg, plan.warm_up_requests, body.small if body else None, tell)
    rounds: list[Round] = []
    pids = service_pids(cfg)
    async with fresh_bucket(cfg.objects) as bucket, at_distance(cfg, plan.distance) as far:
        for size in sizes:
            await bucket.put(_objects(plan, size, body))
        for number in range(plan.rounds):
            for size in sizes:
                tell(f"round {number + 1} of {plan.rounds}: objects of {size} rows")
                await quiet({**pids, **far.pids}, plan.quiet_wait_s, tell)
                full = body.full if body else None
                task = HttpTask(cfg.model, "direct", plan.direct_s, warm_up_s=0.5, body=full)
                direct = await post(task)
                load_of = _Load(bucket.name, size, plan.objects(size), body)
                ours = await _pipeline(cfg, config_path, load_of, far)
                seed = None if body else await post(HttpTask(cfg.model, "seed", plan.seed_s))
                rounds.append(_round(size, plan.objects(size), ours, direct, seed))
    return ThroughputReport(
        body=plan.body.name if plan.body else None,
        distance=plan.distance,
        columns=None if body else object_bodies.COLUMNS,
        batch_rows=body.full.rows if body else object_bodies.BATCH_ROWS,
        in_flight=cfg.model.begin_calls or cfg.model.most_calls,
        partitions=PARTITIONS,
        protocol=cfg.model.protocol,
        request=cfg.model.request if body else request_of(cfg.model),
        summaries=[
            summarise([entry for entry in rounds if entry.rows_per_object == size])
            for size in sizes
        ],
        rounds=rounds,
    )


class _WorkerFigures(NamedTuple):
    rows_per_s: float
    cpu_s_per_row: float | None
    peak_rss_bytes: int


class _Load(NamedTuple):
    """A backlog of references to `objects` objects with `size` rows each."""

    bucket: str
    size: int
    objects: int
    body: BenchObject | None

    @property
    def rows(self) -> int:
        return self.size * self.objects


async def _pipeline(
    cfg: config.Config, config_path: Path | None, task: _Load, far: Far
) -> _WorkerFigures:
    settings = {**({} if task.body else object_bodies.numbers(cfg.model)), **far.settings}
    async with fresh_topics(cfg.kafka) as topics:
        await publish(cfg.kafka, topics.input, _references(task))
        async with (
            end_watcher(cfg.kafka) as watcher,
            running_worker(config_path, topics, **settings) as worker,
        ):
            samples = await watch(worker, watcher, topics.output, task.rows)
            peak_rss_bytes = worker.usage().peak_rss_bytes
            await worker.stop()
        answer = await read(cfg.kafka, topics)
    check_answered(answer, task.rows)
    return _WorkerFigures(steady_rate(answer.rows_by_ms), cpu_s_per_row(samples), peak_rss_bytes)


def _key(size: int, number: int, body: BenchObject | None) -> str:
    return f"{size}/{number}{body.extension if body else '.csv'}"


def _objects(plan: ThroughputPlan, size: int, body: BenchObject | None) -> dict[str, bytes]:
    count = min(plan.objects(size), DISTINCT_OBJECTS)
    return {
        _key(size, number, body): body.data if body else object_bodies.csv_body(size, number)
        for number in range(count)
    }


def _references(task: _Load) -> Iterator[tuple[int, bytes, bytes]]:
    distinct = min(task.objects, DISTINCT_OBJECTS)
    for number in range(task.objects):
        key = _key(task.size, number % distinct, task.body)
        stream = f"stream-{number % STREAMS:02}"
        yield number % PARTITIONS, *object_bodies.reference(task.bucket, key, stream)


async def watch(worker: BenchWorker, watcher: Any, topic: str, rows: int) -> list[ThroughputSample]:
    """Sample the rows on the topic and the worker's CPU time, until all rows are there."""
    samples = [ThroughputSample(0, 0.0)]
    deadline_s = time.monotonic() + ROUND_LIMIT_S
    while samples[-1].rows < rows:
        if time.monotonic() > deadline_s:
            raise Fatal(f"only {samples[-1].rows} of {rows} rows came within {ROUND_LIMIT_S:g} s")
        worker.check()
        await asyncio.sleep(SAMPLE_S)
        samples.append(ThroughputSample(await count_records(watcher, topic), worker.usage().cpu_s))
    return samples


def check_answered(answer: ReadAnswer, rows: int) -> None:
    """Raises `Fatal` if any row was lost, repeated, rejected or out of order."""
    check_order(answer)
    if answer.rows != rows:
        raise Fatal(f"{answer.rows} of {rows} rows were answered: this is no measurement")


def steady_rate(rows_by_ms: Sequence[tuple[int, int]]) -> float:
    """Rows per second, by the broker's times, without the rows of the warm-up."""
    skipped = WARM_UP_SHARE * sum(rows for _, rows in rows_by_ms)
    seen = counted = 0
    began_ms: int | None = None
    for ms, rows in rows_by_ms:
        if began_ms is not None:
            counted += rows
        seen += rows
        if began_ms is None and seen >= skipped:
            began_ms = ms
    if began_ms is None or rows_by_ms[-1][0] == began_ms:
        raise Fatal("too few rows for a rate: all came at once")
    return counted * 1000 / (rows_by_ms[-1][0] - began_ms)


def cpu_s_per_row(samples: Sequence[ThroughputSample]) -> float | None:
    """The CPU seconds per row, in the part of the run for which the rate is measured. If no sample
    lies inside that part, the whole run counts, with the worker's start. None if the CPU time is
    below `LEAST_CPU_S`.
    """
    total = samples[-1].rows
    begin = next(sample for sample in samples if sample.rows >= WARM_UP_SHARE * total)
    if begin.rows == total:
        begin = samples[0]
    cpu_s = samples[-1].cpu_s - begin.cpu_s
    return cpu_s / (total - begin.rows) if cpu_s >= LEAST_CPU_S else None


def _round(
    size: int, objects: int, ours: _WorkerFigures, direct: HttpAnswer, seed: HttpAnswer | None
) -> Round:
    return Round(
        rows_per_object=size,
        objects=objects,
        rows=size * objects,
        rows_per_s=ours.rows_per_s,
        objects_per_s=ours.rows_per_s / size,
        cpu_us_per_row=_scaled(ours.cpu_s_per_row, 1e6),
        cpu_ms_per_object=_scaled(ours.cpu_s_per_row, size * 1e3),
        peak_rss_mb=ours.peak_rss_bytes / 1e6,
        direct_rows_per_s=direct.rows_per_s,
        direct_cpu_us_per_row=direct.cpu_s / direct.rows * 1e6,
        seed_rows_per_s=seed.rows_per_s if seed else None,
        ratio_to_direct=ours.rows_per_s / direct.rows_per_s,
        ratio_to_seed=ours.rows_per_s / seed.rows_per_s if seed else None,
    )


def summarise(rounds: Sequence[Round]) -> ThroughputSummary:
    """Summarises the rounds of one object size. Each figure is the median over the rounds that have
    it; for memory, the highest peak.
    """
    middle = {
        name: _median([getattr(entry, name) for entry in rounds])
        for name in ThroughputSummary.__struct_fields__
    }
    middle["peak_rss_mb"] = max(entry.peak_rss_mb for entry in rounds)
    return convert(middle | {"rows_per_object": rounds[0].rows_per_object}, ThroughputSummary)


def _median(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None


def _scaled(figure: float | None, factor: float) -> float | None:
    return None if figure is None else figure * factor
