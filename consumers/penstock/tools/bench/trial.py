"""One trial of `bench streams`: N streams on a new worker, observed and then judged.

Rule: a tick's latency runs from its due time to the broker's stamp of its last row. Late or not
answered before the end is a miss. A trial leaves nothing behind.
"""

import asyncio
import math
import signal
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from penstock import config
from penstock.errors import Fatal
from penstock.tools.bench.child_processes import BenchWorker, child, line, running_worker
from penstock.tools.bench.counted_worker import Calls
from penstock.tools.bench.reader import ReadAnswer, Tick, check_order, read
from penstock.tools.bench.resource_use import cpu_by_name, others_s, wakeups_by_name
from penstock.tools.bench.tick_generator import Began, GeneratorTask, Ticks
from penstock.tools.bench.topics_and_bucket import Topics, count_records, end_watcher, fresh_topics
from penstock.tools.bench.verdict import Sent, Verdict, judge, misses_by_s, stage_means_ms

# After the last tick, an overloaded worker may go on for this long. Answers that come later are
# misses. Late answers that come within this time are misses, too.
GRACE_S = 3.0
COUNTED = "penstock.tools.bench.counted_worker"
POLL_S = 0.1
DRAIN_MS = 2_000


class TrialTask(Struct, frozen=True, kw_only=True):
    """What is tried. `pids`: for each service's name, its process id. `settings`: for each setting
    of the worker, written as `SECTION__KEY`, its value. `counts`: True if the worker's calls are
    counted; its times then mean nothing.
    """

    load: Ticks
    bound_ms: float
    pids: Mapping[str, int]
    settings: Mapping[str, str]
    counts: bool = False


class _Observed(NamedTuple):
    """What was observed during the trial. `cpu`: one entry for each second, with the CPU time that
    each process had used until then.
    """

    begin_ms: int
    cpu: list[dict[str, float]]
    wakeups: dict[str, int]
    sent: Sent
    stages_ms: dict[str, float]
    calls: Calls | None


async def run_trial(cfg: config.Config, config_path: Path | None, task: TrialTask) -> Verdict:
    async with fresh_topics(cfg.kafka) as topics:
        seen = await _observe(cfg, config_path, task, topics)
        answer = await read(cfg.kafka, topics, ticks=True)
    check_order(answer)
    load = task.load
    wanted = load.streams * round(load.seconds * load.hz)
    measured = due_since(seen.begin_ms, answer.ticks, wanted)
    used = _used(seen.cpu[0], seen.cpu[-1], seen.sent.cpu_s)
    if not task.pids:
        del used["others"]  # this entry would include the services, whose CPU time is not known
    trial = judge(
        load.streams, task.bound_ms, measured, seen.sent, used, load.seconds, seen.stages_ms
    )
    if task.pids:
        generator_s = seen.sent.cpu_s / (len(seen.cpu) - 1)
        trial.others_by_s = [_used(*pair, generator_s)["others"] for pair in pairwise(seen.cpu)]
    trial.wakeups_per_tick = {name: count / len(measured) for name, count in seen.wakeups.items()}
    if seen.calls is not None:
        trial.calls_per_tick = asdict(seen.calls.for_each_of(len(measured)))
    if load.beside_rows:
        trial.beside_rows_per_s = _beside_rows_per_s(seen.begin_ms, load, answer)
    trial.misses_by_s = misses_by_s(measured, task.bound_ms, seen.begin_ms)
    return trial


def _beside_rows_per_s(begin_ms: float, load: Ticks, answer: ReadAnswer) -> float:
    end_ms = begin_ms + 1000 * load.seconds
    rows = sum(rows for at_ms, rows in answer.rows_by_ms if begin_ms <= at_ms < end_ms)
    ticks = sum(begin_ms <= (tick.answered_ms or 0.0) < end_ms for tick in answer.ticks)
    return (rows - ticks * load.rows) / load.seconds


def due_since(begin_ms: float, ticks: Sequence[Tick], wanted: int) -> list[Tick]:
    """The ticks that were due after the warm-up. Raises `Fatal` if there are fewer than `wanted`,
    because the generator then did not send all ticks.
    """
    measured = [tick for tick in ticks if tick.due_ms >= begin_ms]
    if len(measured) != wanted:
        raise Fatal(f"the generator sent {len(measured)} ticks, not all: this is no measurement")
    return measured


async def _observe(
    cfg: config.Config, config_path: Path | None, task: TrialTask, topics: Topics
) -> _Observed:
    """Start the worker and the ticks, sample, wait for the last answers, stop the worker."""
    module = COUNTED if task.counts else "penstock"
    settings = {"DELIVERY__DRAIN_MS": DRAIN_MS, **task.settings}
    load, stdin = task.load, msgspec.json.encode(GeneratorTask(cfg.kafka, topics.input, task.load))
    async with (
        end_watcher(cfg.kafka) as watcher,
        running_worker(config_path, topics, module, **settings) as worker,
    ):
        await worker.ready()
        async with child("penstock.tools.bench.tick_generator", stdin=stdin) as generator:
            begin_ms = (await line(generator, Began)).begin_ms
            await sleep_until(begin_ms)
            if task.counts:
                worker.ask_by(signal.SIGUSR1)
            before, wakeups = await worker.metrics(), _wakeups(worker, task.pids)
            cpu = await _watch(worker, task.pids, begin_ms, load.seconds)
            if task.counts:
                worker.ask_by(signal.SIGUSR2)
            woken = {
                name: count - wakeups[name] for name, count in _wakeups(worker, task.pids).items()
            }
            sent = await line(generator, Sent)
        rows = load.streams * load.count * load.rows
        await _answered(watcher, worker, topics.output, load.partitions, rows)
        stages_ms = stage_means_ms(before, await worker.metrics())
        calls = await worker.line(Calls) if task.counts else None
        await worker.stop()
    return _Observed(begin_ms, cpu, woken, sent, stages_ms, calls)


async def _watch(
    worker: BenchWorker, pids: Mapping[str, int], begin_ms: float, seconds: float
) -> list[dict[str, float]]:
    """Sample the CPU time of each process: at the beginning, after each second, and at the end."""
    samples = [_cpu(worker, pids)]
    for second in range(1, math.ceil(seconds) + 1):
        await sleep_until(begin_ms + 1000 * min(second, seconds))
        samples.append(_cpu(worker, pids))
    return samples


def _used(
    before: Mapping[str, float], after: Mapping[str, float], generator_s: float
) -> dict[str, float]:
    used = {name: after[name] - before[name] for name in after} | {"generator": generator_s}
    return used | {"others": others_s(used)}


def _cpu(worker: BenchWorker, pids: Mapping[str, int]) -> dict[str, float]:
    return {"worker": worker.usage().cpu_s, **cpu_by_name(pids)}


def _wakeups(worker: BenchWorker, pids: Mapping[str, int]) -> dict[str, int]:
    return wakeups_by_name({"worker": worker.pid, **pids})


async def sleep_until(epoch_ms: float) -> None:
    await asyncio.sleep(max(0.0, epoch_ms / 1000 - time.time()))


async def _answered(
    watcher: Any, worker: BenchWorker, topic: str, partitions: int, rows: int
) -> None:
    """Wait until all rows are answered, but at most for `GRACE_S`."""
    deadline_s = time.monotonic() + GRACE_S
    while time.monotonic() < deadline_s and await count_records(watcher, topic, partitions) < rows:
        worker.check()
        await asyncio.sleep(POLL_S)
