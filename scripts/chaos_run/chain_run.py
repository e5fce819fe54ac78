"""`scripts/chaos --chain`: sends objects through worker, model and scenes worker on the running
stack. Then runs the judge and an oracle, and tells how long a complete scene took from the record
of its last member, how late the announcer and the worker were, and which process used the CPU.

Rule: the run makes its own topics, group and bucket, removes them at the end, and disturbs nothing
else. Lags are measured and not judged, because a scene that is late on a machine that is too slow
breaks no promise. Owner: the command line.
"""

import argparse
import asyncio
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson

from chaos_run.cameras import (
    JITTER_MS,
    PARTITIONS,
    REJECTED_EVERY,
    Shape,
    add_options,
    event_time,
    instants,
    settings_of,
    until,
)
from chaos_run.scenes_oracle import Said, tails
from chaos_run.scenes_run import judged, placed, read_all
from chaos_run.services_under_test import Place, crash, environ_of, model_worker_pid, producing
from chaos_run.workers import LOOK_S, Crew
from penstock.adapters.kafka.topics import delete_topics
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE
from penstock.scenes.settings import names
from penstock.tools.bench.resource_use import cpu_by_name, others_s, service_pids
from realstack import stack

COLUMNS = 16
# Within this time worker and scenes worker have started and joined their groups.
START_S = 15.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos --chain",
        description="Objects of many streams through a worker, the model and a scenes worker on "
        "the running stack (scripts/stack up); then `penstock verify --scenes` and an oracle.",
    )
    parser.add_argument("--chain", action="store_true")
    add_options(parser, seconds=300)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    shape = Shape(options.sites, options.members, options.hz)
    with TemporaryDirectory(prefix="penstock-chain-") as folder:
        well = asyncio.run(_run(options, shape, Path(folder)))
    return EXIT_DONE if well else EXIT_CHECK_FAILED


def _environ(options: argparse.Namespace, shape: Shape, name: str) -> dict[str, str]:
    changes = {
        "KAFKA__INPUT_TOPIC": f"{name}-refs",
        "KAFKA__GROUP": name,
        "OUTPUT__TOPIC": f"{name}-predictions",
        "OUTPUT__DLQ_TOPIC": f"{name}-dlq",
        "LIMITS__DLQ_RATIO": "0",
        "MODEL__REQUEST": "float32",
        "ROWS__HEADER": "false",
        "SCENES__INPUT_TOPIC": f"{name}-predictions",
        "SCENES__TOPIC": f"{name}-scenes",
        "SCENES__LATE_TOPIC": f"{name}-late",
        "SCENES__GROUP": f"{name}-scenes",
    }
    return environ_of(changes | settings_of(options, shape), lambda name: "__" in name)


async def _run(options: argparse.Namespace, shape: Shape, folder: Path) -> bool:
    name = f"chain-{uuid.uuid4().hex[:8]}"
    environ = _environ(options, shape, name)
    place = Place(environ, name, folder, model_worker_pid, stack.restart, crash)
    for of_scenes in ([], ["--scenes"]):
        place.penstock("topics", "create", *of_scenes, "--partitions", str(PARTITIONS))
    store = _store(place, shape)
    try:
        async with asyncio.TaskGroup() as tasks:
            crews = [Crew(place, tasks, "run"), Crew(place, tasks, "scenes", first=10)]
            workers = {"worker": crews[0].join(), "scenes": crews[1].join()}
            try:
                await asyncio.sleep(START_S)
                while len(workers["worker"].partitions) < PARTITIONS:
                    await asyncio.sleep(LOOK_S)
                pids = {name: each.pid for name, each in workers.items() if each.pid is not None}
                cores = Cores(pids | service_pids(place.config) | {"announcer": os.getpid()})
                announced = await _announce(place, shape, options.seconds)
                used = cores.used()
                await placed(place)
                for crew in crews:
                    await crew.dismiss()
            finally:
                for crew in crews:
                    crew.end()
        read = await read_all(place)
        well = await judged(place, shape, read)
        deadline_ms = place.config.scenes.deadline_ms
        print(lag_text(announced, lags(read.predictions), used, deadline_ms))
        return well
    finally:
        _remove(store, place.bucket)
        cfg = place.config
        await delete_topics(cfg.kafka, [*cfg.topics[::2], *names(cfg.scenes)])


def _store(place: Place, shape: Shape) -> Any:
    """Store one object for each stream, and one more with a bad row."""
    client = place.s3()
    client.create_bucket(Bucket=place.bucket)
    for number, (site, member) in enumerate(shape.streams()):
        row = ",".join(str(number + column) for column in range(COLUMNS))
        client.put_object(Bucket=place.bucket, Key=f"{site}/{member}.csv", Body=f"{row}\n".encode())
    row = ",".join(["no number", *"1" * (COLUMNS - 1)])
    client.put_object(Bucket=place.bucket, Key="bad.csv", Body=f"{row}\n".encode())
    return client


def _remove(client: Any, bucket: str) -> None:
    for entry in client.list_objects_v2(Bucket=bucket).get("Contents", []):
        client.delete_object(Bucket=bucket, Key=entry["Key"])
    client.delete_bucket(Bucket=bucket)
    client.close()


async def _announce(place: Place, shape: Shape, seconds: int) -> list[float]:
    """Announce the objects. Returns how late each was announced, in milliseconds."""
    kafka, late = place.config.kafka, []
    async with producing(kafka) as producer:
        for instant, instant_ms in instants(shape, seconds):
            for number, (site, member) in enumerate(shape.streams()):
                if not shape.speaks(number, instant * shape.period_ms):
                    continue
                due_ms = instant_ms + number * JITTER_MS // len(shape.streams())
                # An object that is due already does not wait, so that objects of one instant share
                # a request.
                if time.time() * 1000 < due_ms:
                    await until(due_ms)
                late.append(time.time() * 1000 - due_ms)
                is_bad = (instant + number) % REJECTED_EVERY == 0
                reference = {
                    "bucket": place.bucket,
                    "key": "bad.csv" if is_bad else f"{site}/{member}.csv",
                    "stream": f"{site}/{member}",
                    "event_time": event_time(instant_ms, number),
                }
                await producer.send(
                    kafka.input_topic, orjson.dumps(reference), partition=number % PARTITIONS
                )
    return late


STEP_MS = 10_000

Pids = Mapping[str, int]


class Lags(NamedTuple):
    """Lags of predictions, from event time to Kafka's stamp. `steps_ms`: the median lag of each ten
    seconds. `apart_ms`: per site and second, the difference between the largest and the smallest
    lag.
    """

    worker_ms: dict[str, int]
    steps_ms: list[int]
    apart_ms: dict[str, int]


def lags(predictions: Iterable[Said]) -> Lags:
    every: list[int] = []
    of_steps: dict[int, list[int]] = defaultdict(list)
    of_seconds: dict[tuple[str, int], list[int]] = defaultdict(list)
    for value, recorded_ms in predictions:
        record = orjson.loads(value)
        lag = recorded_ms - record["event_time"]
        every.append(lag)
        of_steps[recorded_ms // STEP_MS].append(lag)
        of_seconds[record["stream"].partition("/")[0], recorded_ms // 1000].append(lag)
    steps = [tails(of_steps[step])["p50"] for step in sorted(of_steps)]
    apart = [max(each) - min(each) for each in of_seconds.values()]
    return Lags(tails(every), steps, tails(apart))


class Cores:
    """Measures how many cores each process keeps busy from now on."""

    def __init__(self, pids: Pids) -> None:
        self._pids = pids
        self._since_s = time.monotonic()
        self._before = cpu_by_name(pids)

    def used(self) -> dict[str, float]:
        took_s = time.monotonic() - self._since_s
        spent = {name: s - self._before[name] for name, s in cpu_by_name(self._pids).items()}
        spent["others"] = others_s(spent)
        return {name: round(cpu_s / took_s, 2) for name, cpu_s in spent.items()}


def lag_text(announced: list[float], found: Lags, cores: Mapping[str, float], due_ms: int) -> str:
    """The figures in words. `announced`: how late each object was announced, in milliseconds.
    `due_ms`: announcer or worker is called behind if the 99th percentile of its lag is above this.
    """
    late = {"announcer": tails([round(ms) for ms in announced]), "worker": found.worker_ms}
    behind = [name for name, each in late.items() if each.get("p99", 0) > due_ms]
    message = (
        f"behind: {' and '.join(behind)}, with {cores['machine']} of {os.cpu_count()} cores busy; "
        "scenes of it are late for that"
        if behind
        else "neither was behind"
    )
    apart = f"one site's members apart, within a second: {found.apart_ms}"
    return "\n".join(
        [
            f"announced after its time, ms: {late['announcer']}",
            f"predicted after its event time, ms: {late['worker']}; {apart}",
            f"of each ten seconds, half no later than: {found.steps_ms}",
            f"cores busy: {dict(cores)}",
            message,
        ]
    )
