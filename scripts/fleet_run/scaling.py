"""Measures whether two workers answer twice as many rows as one. Each worker has a part of one
core, and the services have another core.

Rule: all references are on the topic before a worker starts. The rate is measured over the middle
of the rows, by the broker's stamps. The use of the services' core is printed beside the rate,
because if that core was full, the services were the limit. To keep this core from being full, rows
are wide and the model takes few of their columns, so that a row costs the worker much and the
services little. Owner: `scripts/fleet`.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from chaos_run.plan import PARTITIONS
from chaos_run.services_under_test import producing, stamped
from chaos_run.workers import Crew
from fleet_run.common import WORKERS_CORE, Figure, fresh_place, services_apart, tell
from penstock import config
from penstock.errors import Fatal
from penstock.tools.bench.object_bodies import COLUMNS, csv_body
from penstock.tools.bench.resource_use import cpu_by_name, service_pids
from penstock.tools.bench.topics_and_bucket import count_records, end_watcher

ROWS, OBJECTS = 5_000, 8
# A row has this many times as many columns as the model takes.
WIDTH = 4
PERIOD_US = 20_000
GROUPS = Path("/sys/fs/cgroup/cpu")
GOAL = 1.8
WAIT_S = 150.0
# The rate is measured between these two shares of the rows, so that the workers' starts and ends do
# not count.
MIDDLE = (0.3, 0.8)


async def measured(folder: Path, cores: float, rows: int) -> list[Figure]:
    with _groups(2, cores) as groups:
        rates = [await _rate(folder / str(count), groups[:count], rows) for count in (1, 2)]
    return tell(
        Figure("rows/s of two workers by that of one", rates[1] / rates[0], "x", least=GOAL)
    )


@contextmanager
def _groups(count: int, cores: float) -> Iterator[list[Path]]:
    """Control groups (version 1), each with this part of a core."""
    made = [GROUPS / f"penstock-{os.getpid()}-{number}" for number in range(count)]
    try:
        for one in made:
            one.mkdir()
            (one / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (one / "cpu.cfs_quota_us").write_text(str(round(PERIOD_US * cores)))
    except OSError as error:
        raise Fatal(f"control groups (version 1) cannot be made here: {error}") from error
    try:
        yield made
    finally:
        for one in made:
            one.rmdir()


async def _rate(folder: Path, groups: Sequence[Path], rows: int) -> float:
    folder.mkdir()

    def launcher(worker: str) -> tuple[str, ...]:
        group = groups[int(worker.rpartition("-")[2]) - 1]
        enter = f'echo $$ > {group}/cgroup.procs && exec taskset -c {WORKERS_CORE} "$@"'
        return ("sh", "-c", enter, "sh")

    changes = {"ROWS__COLUMNS": orjson.dumps([*range(COLUMNS)]).decode()}
    async with fresh_place(folder, changes, launcher) as (place, bucket):
        await bucket.put({f"{n}.csv": _wide(csv_body(ROWS, n)) for n in range(OBJECTS)})
        topic = place.config.kafka.input_topic
        async with producing(place.config.kafka) as producer:
            for number in range(rows // ROWS):
                key = f"{number % OBJECTS}.csv"
                reference = {"bucket": place.bucket, "key": key, "stream": f"{number % PARTITIONS}"}
                value = orjson.dumps(reference)
                await producer.send(topic, value, partition=number % PARTITIONS)
        pids = service_pids(place.config)
        with services_apart(place.config):
            used: list[tuple[float, float]] = []
            async with asyncio.TaskGroup() as tasks:
                crew = Crew(place, tasks)
                for _ in groups:
                    crew.join()
                try:
                    await _all_there(place.config, rows // ROWS * ROWS, pids, used)
                finally:
                    crew.end()
        times = sorted(
            one.at_ms for one in await stamped(place.config.kafka, place.config.output.topic)
        )
        first, last = (times[int(share * len(times))] for share in MIDDLE)
        rate = (MIDDLE[1] - MIDDLE[0]) * len(times) / (last - first) * 1000
        middle = [(at_ms, cpu_s) for at_ms, cpu_s in used if first <= at_ms <= last]
        busy = (middle[-1][1] - middle[0][1]) / (middle[-1][0] - middle[0][0]) * 1000
        tell(
            Figure(f"{len(groups)} x: rows/s", rate, ""),
            Figure(f"{len(groups)} x: the services' core was used", busy * 100, "%"),
        )
        return rate


def _wide(body: bytes) -> bytes:
    return b"".join(b",".join([line] * WIDTH) + b"\n" for line in body.splitlines())


async def _all_there(
    cfg: config.Config, rows: int, pids: Mapping[str, int], used: list[tuple[float, float]]
) -> None:
    """Wait for all rows. Fills `used` with pairs: a time (ms), and the CPU time that the services
    had used by then (s).
    """
    async with asyncio.timeout(WAIT_S), end_watcher(cfg.kafka) as watcher:
        while await count_records(watcher, cfg.output.topic, PARTITIONS) < rows:
            by_name = cpu_by_name(pids)
            used.append((time.time() * 1000, sum(by_name[name] for name in pids)))
            await asyncio.sleep(0.2)
