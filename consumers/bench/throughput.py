"""Rows per second and CPU per row of a worker, beside a client that only posts and beside the
seed's method.

Rule: the three take turns in every round, on the same services, and the medians of their ratios are
the result. Rates are steady-state: all references are on the topic before the worker starts, and
the first fifth of the rows is not counted.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from consumers import config
from consumers.bench import load
from consumers.bench.http_load import HttpAnswer, HttpTask, post
from consumers.bench.place import (
    PARTITIONS,
    Bucket,
    check_local,
    count_records,
    end_watcher,
    fresh_bucket,
    fresh_topics,
    publish,
)
from consumers.bench.reader import ReadAnswer, read
from consumers.bench.worker import Worker, running_worker
from consumers.errors import Fatal

SIZES = (5_000, 500, 8)
# 5 s of a worker at 150,000 rows a second; and of one at 1,500 objects a second.
ROUND_ROWS = 750_000
ROUND_OBJECTS = 8_000
# Objects in the bucket; references name them in turn. 30 MB of the largest size.
DISTINCT_OBJECTS = 40
STREAMS = 16
WARM_UP_SHARE = 0.2
ROUND_LIMIT_S = 120.0
SAMPLE_S = 0.1
# TorchServe's Java code is compiled while it serves: after about 10,000 requests its rate is level.
WARM_UP_REQUESTS = 10_000
WARM_UP_LIMIT_S = 20.0


class Round(Struct, kw_only=True):
    """One turn of each, for one object size."""

    rows_per_object: int
    objects: int
    rows: int
    rows_per_s: float
    cpu_us_per_row: float
    cpu_ms_per_object: float
    peak_rss_mb: float
    direct_rows_per_s: float
    direct_cpu_us_per_row: float
    seed_rows_per_s: float

    @property
    def ratio_to_direct(self) -> float:
        return self.rows_per_s / self.direct_rows_per_s

    @property
    def ratio_to_seed(self) -> float:
        return self.rows_per_s / self.seed_rows_per_s


class Summary(Struct, kw_only=True):
    """Medians over the rounds of one object size."""

    rows_per_object: int
    ratio_to_direct: float
    ratio_to_seed: float
    cpu_us_per_row: float
    cpu_ms_per_object: float
    peak_rss_mb: float
    rows_per_s: float
    direct_rows_per_s: float
    direct_cpu_us_per_row: float
    seed_rows_per_s: float


class ThroughputReport(Struct, kw_only=True):
    columns: int
    batch_rows: int
    in_flight: int
    partitions: int
    summaries: list[Summary]
    rounds: list[Round]


class ThroughputPlan(Struct, frozen=True, kw_only=True):
    """How much is measured."""

    sizes: Sequence[int] = SIZES
    rounds: int = 3
    rows: int = ROUND_ROWS
    direct_s: float = 4.0
    seed_s: float = 1.5
    warm_up_requests: int = WARM_UP_REQUESTS

    def objects(self, size: int) -> int:
        return max(1, min(self.rows // size, ROUND_OBJECTS))


class _Sample(NamedTuple):
    rows: int
    cpu_s: float


async def measure(
    cfg: config.Config, config_path: Path | None, plan: ThroughputPlan, tell: Callable[[str], None]
) -> ThroughputReport:
    check_local(cfg)
    url = f"{cfg.model.url.rstrip('/')}/predictions/{cfg.model.name}"
    tell("warming up the model server")
    await post(HttpTask(url, "direct", WARM_UP_LIMIT_S, rows=8, requests=plan.warm_up_requests))
    rounds: list[Round] = []
    async with fresh_bucket(cfg.objects) as bucket:
        for size in plan.sizes:
            count = min(plan.objects(size), DISTINCT_OBJECTS)
            await bucket.put(
                {f"{size}/{number}.csv": load.csv_body(size, number) for number in range(count)}
            )
        for number in range(plan.rounds):
            for size in plan.sizes:
                tell(f"round {number + 1} of {plan.rounds}: objects of {size} rows")
                direct = await post(HttpTask(url, "direct", plan.direct_s, warm_up_s=0.5))
                ours = await _pipeline(cfg, config_path, bucket, size, plan.objects(size))
                seed = await post(HttpTask(url, "seed", plan.seed_s))
                rounds.append(_round(size, plan.objects(size), ours, direct, seed))
    return ThroughputReport(
        columns=load.COLUMNS,
        batch_rows=load.BATCH_ROWS,
        in_flight=cfg.model.max_in_flight,
        partitions=PARTITIONS,
        summaries=[
            summarise([entry for entry in rounds if entry.rows_per_object == size])
            for size in plan.sizes
        ],
        rounds=rounds,
    )


class _Ours(NamedTuple):
    rows_per_s: float
    cpu_s_per_row: float
    peak_rss_bytes: int


async def _pipeline(
    cfg: config.Config, config_path: Path | None, bucket: Bucket, size: int, objects: int
) -> _Ours:
    rows = size * objects
    async with fresh_topics(cfg.kafka) as topics, end_watcher(cfg.kafka) as watcher:
        distinct = min(objects, DISTINCT_OBJECTS)
        references = (
            load.reference(
                bucket.name, f"{size}/{number % distinct}.csv", f"stream-{number % STREAMS:02}"
            )
            for number in range(objects)
        )
        await publish(
            cfg.kafka,
            topics.input,
            ((number % PARTITIONS, key, value) for number, (key, value) in enumerate(references)),
        )
        async with running_worker(config_path, topics, {}) as worker:
            samples = [
                _Sample(count, worker.usage().cpu_s)
                async for count in _progress(
                    worker, lambda: count_records(watcher, topics.output), rows
                )
            ]
            peak_rss = worker.usage().peak_rss_bytes
            await worker.stop()
        answer = await read(cfg.kafka, topics)
    check_answered(answer, rows)
    return _Ours(steady_rate(answer.rows_by_ms), cpu_s_per_row(samples), peak_rss)


async def _progress(worker: Worker, count: Callable[[], object], rows: int):  # type: ignore[no-untyped-def]
    raise NotImplementedError
