"""One trial of `bench streams`: N streams on a fresh worker, and what became of every tick.

Rule: latency runs from the instant a tick was due to the broker's time of its last row's record; a
tick that was late, or is not answered when the trial ends, is a miss. Nothing of a trial is left
for the next one.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from consumers import config
from consumers.bench.children import child, line
from consumers.bench.generator import Began, GeneratorTask, Sent
from consumers.bench.place import count_records, end_watcher, fresh_topics
from consumers.bench.reader import Tick, check_order, read
from consumers.bench.services import cpu_by_name
from consumers.bench.tails import is_proven, percentile
from consumers.bench.usage import machine_cpu_s
from consumers.bench.worker import Worker, running_worker
from consumers.errors import Fatal

WARM_UP_S = 3.0
# How long an overloaded worker may go on after the last tick; its late answers are misses anyway.
GRACE_S = 3.0
POLL_S = 0.1
DRAIN_MS = 2_000

Samples = Mapping[tuple[str, str], float]
# Stages by the metric that has their seconds, in the order of the flow.
STAGE_METRICS = {
    "Kafka out": ("penstock_stage_seconds", "consume"),
    "fetch": ("penstock_stage_seconds", "download"),
    "decode": ("penstock_stage_seconds", "expand"),
    "wait": ("penstock_batch_wait_seconds", ""),
    "call": ("penstock_model_call_seconds", ""),
    "hold-back": ("penstock_stage_seconds", "hold"),
    "publish": ("penstock_stage_seconds", "publish"),
}


class TrialTask(Struct, frozen=True, kw_only=True):
    """What is tried. `bucket` has the objects already."""

    streams: int
    hz: float
    rows: int
    bound_ms: float
    seconds: float
    bucket: str
    pids: Mapping[str, int]


class Trial(Struct, kw_only=True):
    """What came out; a percentile is None where it is a tick without an answer."""

    streams: int
    ticks: int
    misses: int
    unanswered: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    worst_stream_p99_ms: float | None
    worst_stream_misses: int
    held: bool
    proven: bool
    append_to_append_p50_ms: float | None
    append_to_append_p99_ms: float | None
    stages_ms: dict[str, float]
    cpu_ms_per_tick: dict[str, float]
    cores: dict[str, float]
    generator_lag_p99_ms: float
    generator_lag_max_ms: float


async def run_trial(cfg: config.Config, config_path: Path | None, task: TrialTask) -> Trial:
    warm_up_ticks = round(WARM_UP_S * task.hz)
    ticks = warm_up_ticks + round(task.seconds * task.hz)
    async with fresh_topics(cfg.kafka) as topics:
        generating = GeneratorTask(
            kafka=cfg.kafka,
            topic=topics.input,
            bucket=task.bucket,
            rows=task.rows,
            streams=task.streams,
            hz=task.hz,
            ticks=ticks,
            warm_up_ticks=warm_up_ticks,
        )
        async with (
            end_watcher(cfg.kafka) as watcher,
            running_worker(config_path, topics, DELIVERY__DRAIN_MS=DRAIN_MS) as worker,
        ):
            await worker.ready()
            async with child(
                "consumers.bench.generator", stdin=msgspec.json.encode(generating)
            ) as generator:
                t0_ms = (await line(generator, Began)).t0_ms
                begin_ms = t0_ms + round(1000 * warm_up_ticks / task.hz)
                await _sleep_until(begin_ms)
                before, stages_before = _cpu(worker, task.pids), await worker.metrics()
                await _sleep_until(begin_ms + 1000 * task.seconds)
                after = _cpu(worker, task.pids)
                sent = await line(generator, Sent)
            await _answered(watcher, worker, topics.output, task.streams * ticks * task.rows)
            stages_after = await worker.metrics()
            await worker.stop()
        answer = await read(cfg.kafka, topics, ticks=True)
    check_order(answer)
    measured = [tick for tick in answer.ticks if tick.due_ms >= begin_ms]
    if len(measured) != task.streams * (ticks - warm_up_ticks):
        raise Fatal(f"the generator sent {len(measured)} ticks, not all: this is no measurement")
    used = {name: after[name] - before[name] for name in after}
    used["generator"] = sent.cpu_s
    used["all else"] = 2 * used["machine"] - sum(used.values())
    return judge(task, measured, sent, used, stage_means_ms(stages_before, stages_after))


def _cpu(worker: Worker, pids: Mapping[str, int]) -> dict[str, float]:
    return {
        "worker": worker.usage().cpu_s,
        **cpu_by_name(pids),
        "machine": machine_cpu_s(),
    }


async def _sleep_until(epoch_ms: float) -> None:
    await asyncio.sleep(max(0.0, epoch_ms / 1000 - time.time()))


async def _answered(watcher: Any, worker: Worker, topic: str, rows: int) -> None:
    """Wait for the last answers, for a bounded time."""
    deadline_s = time.monotonic() + GRACE_S
    while time.monotonic() < deadline_s and await count_records(watcher, topic) < rows:
        worker.check()
        await asyncio.sleep(POLL_S)


def judge(
    task: TrialTask,
    ticks: Sequence[Tick],
    sent: Sent,
    used_s: Mapping[str, float],
    stages_ms: Mapping[str, float],
) -> Trial:
    """The verdict over the measured ticks: pool and worst stream must hold the bound."""
    by_stream: dict[str, list[float]] = defaultdict(list)
    for tick in ticks:
        answered_ms = tick.answered_ms
        by_stream[tick.stream].append(
            float("inf") if answered_ms is None else answered_ms - tick.due_ms
        )
    pool = [latency for latencies in by_stream.values() for latency in latencies]
    misses = {
        stream: sum(latency > task.bound_ms for latency in latencies)
        for stream, latencies in by_stream.items()
    }
    worst_p99_ms = max(percentile(latencies, 0.99) for latencies in by_stream.values())
    inside = [
        float("inf") if tick.answered_ms is None else tick.answered_ms - tick.appended_ms
        for tick in ticks
    ]
    in_ms = sum(tick.appended_ms - tick.due_ms for tick in ticks) / len(ticks)
    known = {"schedule": sent.lag_mean_ms, "Kafka in": in_ms - sent.lag_mean_ms, **stages_ms}
    answered = [latency for latency in pool if latency < float("inf")]
    if answered:
        known["not told apart"] = sum(answered) / len(answered) - sum(known.values())
    return Trial(
        streams=task.streams,
        ticks=len(pool),
        misses=sum(misses.values()),
        unanswered=len(pool) - len(answered),
        p50_ms=_finite(percentile(pool, 0.5)),
        p90_ms=_finite(percentile(pool, 0.9)),
        p99_ms=_finite(percentile(pool, 0.99)),
        max_ms=_finite(max(pool)),
        worst_stream_p99_ms=_finite(worst_p99_ms),
        worst_stream_misses=max(misses.values()),
        held=max(percentile(pool, 0.99), worst_p99_ms) <= task.bound_ms,
        proven=is_proven(len(pool), sum(misses.values()))
        and all(is_proven(len(by_stream[stream]), misses[stream]) for stream in by_stream),
        append_to_append_p50_ms=_finite(percentile(inside, 0.5)),
        append_to_append_p99_ms=_finite(percentile(inside, 0.99)),
        stages_ms=known,
        cpu_ms_per_tick={name: 1000 * cpu_s / len(pool) for name, cpu_s in used_s.items()},
        cores={name: cpu_s / task.seconds for name, cpu_s in used_s.items()},
        generator_lag_p99_ms=sent.lag_p99_ms,
        generator_lag_max_ms=sent.lag_max_ms,
    )


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value


def stage_means_ms(before: Samples, after: Samples) -> dict[str, float]:
    """Mean time in each stage that the worker tells about."""
    means: dict[str, float] = {}
    for stage, (metric, label) in STAGE_METRICS.items():
        keys = ((f"{metric}_sum", label), (f"{metric}_count", label))
        total, count = (after.get(key, 0.0) - before.get(key, 0.0) for key in keys)
        if count:
            means[stage] = 1000 * total / count
    return means
