"""`scripts/chaos --scenes`: kills, freezes and stops two scenes workers every few seconds, and
restarts Kafka. Then runs the judge and an oracle.

Rule: the broker belongs to the run, which stops broker and workers at its end even if it fails. If
a promise was broken or the run failed, the folder with the logs is kept. Owner: the command line.
"""

import argparse
import asyncio
import random
import shutil
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from chaos_run import scenes_oracle
from chaos_run.cameras import (
    PARTITIONS,
    Shape,
    add_options,
    instants,
    said_at,
    settings_of,
    until,
)
from chaos_run.services_under_test import (
    Place,
    crash,
    environ_of,
    model_worker_pid,
    producing,
    seeded,
    stamped,
)
from chaos_run.workers import Crew, Worker
from penstock import config
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE
from realstack import stack

WORKERS = 2
FAULT_EVERY_S = 5.0
# Kafka gives a silent worker's sites to another worker after 8 s. Some freezes are shorter than
# that, some are longer.
FROZEN_S = (1.0, 14.0)
# After this time a session, a restart of Kafka, and the backlogs that they cause are over.
GRACE_S = 90.0
LOOK_S = 3.0
KINDS = ("kill", "freeze", "terminate")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos --scenes",
        description="Predictions of many sites through two scenes workers that are killed, frozen "
        "or stopped every five seconds, with a restart of Kafka in the middle; then `penstock "
        "verify --scenes` and an oracle. It runs a broker of its own.",
    )
    parser.add_argument("--scenes", action="store_true")
    add_options(parser, seconds=120)
    parser.add_argument("--seed", type=int, help="of the faults; random if not given")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed, folder = seeded(options.seed)
    well = False
    try:
        stack.up_alone("kafka")
        well = asyncio.run(_run(options, random.Random(seed), folder))
    finally:
        stack.down()
        if well:
            shutil.rmtree(folder)
        else:
            print(f"kept: {folder}")
    return EXIT_DONE if well else EXIT_CHECK_FAILED


async def _run(options: argparse.Namespace, chance: random.Random, folder: Path) -> bool:
    shape = Shape(options.sites, options.members, options.hz)
    environ = environ_of(settings_of(options, shape), lambda name: "BOOTSTRAP" in name)
    place = Place(environ, "", folder, model_worker_pid, stack.restart, crash)
    place.penstock("topics", "create", "--scenes", "--partitions", str(PARTITIONS))
    struck: Counter[str] = Counter()
    async with asyncio.TaskGroup() as tasks:
        crew = Crew(place, tasks, "scenes")
        for _ in range(WORKERS):
            crew.join()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_speak(place.config, shape, options.seconds))
                both.create_task(_strike(crew, place, chance, options.seconds, struck))
            await placed(place)
            await crew.dismiss()
        finally:
            crew.end()
    print(f"struck: {dict(struck)}; unexpected ends: {Counter(each.code for each in crew.exits)}")
    return await judged(place, shape, await read_all(place))


async def _speak(cfg: config.Config, shape: Shape, seconds: int) -> None:
    async with producing(cfg.kafka) as producer:
        for instant, instant_ms in instants(shape, seconds):
            for delay, partition, stream, value in sorted(said_at(instant, instant_ms, shape)):
                await until(instant_ms + delay)
                await _send(producer, cfg.scenes.input_topic, stream.encode(), value, partition)


async def _send(
    producer: AIOKafkaProducer, topic: str, key: bytes, value: bytes, partition: int
) -> None:
    """Send a record. If Kafka is away for so long that the producer's queue is full, try again."""
    while True:
        with suppress(KafkaTimeoutError):
            await producer.send(topic, value, key=key, partition=partition)
            return


async def _strike(
    crew: Crew, place: Place, chance: random.Random, seconds: int, struck: Counter[str]
) -> None:
    faults = int(seconds / FAULT_EVERY_S) - 1
    async with asyncio.TaskGroup() as tasks:
        for number in range(faults):
            await asyncio.sleep(FAULT_EVERY_S)
            if number == faults // 2:
                struck["restart kafka"] += 1
                tasks.create_task(asyncio.to_thread(place.restart, "kafka"))
                continue
            kind, free = chance.choice(KINDS), crew.free()
            if not free:
                continue
            struck[kind] += 1
            worker = chance.choice(free)
            if kind == "freeze":
                tasks.create_task(_freeze(worker, chance.uniform(*FROZEN_S)))
            elif kind == "kill":
                worker.kill()
            else:
                worker.terminate()


async def _freeze(worker: Worker, seconds: float) -> None:
    worker.busy = True
    worker.freeze()
    await asyncio.sleep(seconds)
    worker.thaw()
    worker.busy = False


async def placed(place: Place) -> None:
    """Wait until the judge finds every prediction in its place, or until the time is over."""
    until_s = time.monotonic() + GRACE_S
    while time.monotonic() < until_s:
        code, output = await asyncio.to_thread(_verify, place)
        if code == EXIT_DONE or set(orjson.loads(output)["violations"]) - {"in no place"}:
            return
        await asyncio.sleep(LOOK_S)


class Read(NamedTuple):
    """All records of the three topics."""

    predictions: list[scenes_oracle.Said]
    scenes: list[scenes_oracle.Said]
    late: list[scenes_oracle.Said]


async def read_all(place: Place) -> Read:
    kafka, scenes = place.config.kafka, place.config.scenes
    found = [
        [scenes_oracle.Said(one.value, one.at_ms) for one in await stamped(kafka, topic)]
        for topic in (scenes.input_topic, scenes.topic, scenes.late_topic)
    ]
    return Read(*found)


async def judged(place: Place, shape: Shape, read: Read) -> bool:
    code, output = await asyncio.to_thread(_verify, place)
    print(output)
    scenes = place.config.scenes
    comparison = scenes_oracle.compare(
        *read,
        period_ms=shape.period_ms,
        members=shape.members_of(),
        bounds=scenes_oracle.Bounds(scenes.deadline_ms, scenes.ahead_ms, scenes.engine == "faust"),
    )
    print(f"oracle: {comparison}")
    return code == EXIT_DONE and not comparison.wrong


def _verify(place: Place) -> tuple[int, str]:
    return place.penstock("verify", "--scenes")
