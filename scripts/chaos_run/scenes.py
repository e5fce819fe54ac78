"""`scripts/chaos --scenes`: two scenes workers that are killed, frozen and stopped every few
seconds, a restart of Kafka, then the judge and an oracle.

Rule: the broker is its own; whatever happens, it and the workers are gone at the end. The folder
with the logs stays if anything was wrong.
"""

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from chaos_run import oracle
from chaos_run.instants import PARTITIONS, Shape, said_at
from chaos_run.place import Place, crash, model_worker_pid
from chaos_run.workers import Crew, Worker
from consumers import config
from consumers.adapters.kafka_client import connection
from consumers.adapters.kafka_reader import open_reader
from consumers.errors import EXIT_CHECK_FAILED, EXIT_DONE
from realstack import stack

WORKERS = 2
FAULT_EVERY_S = 5.0
# Kafka gives a silent worker's sites to another after 8 s: some are frozen for less, some for more.
FROZEN_S = (1.0, 14.0)
# A session, a restart, and the backlog of both.
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
    parser.add_argument("--seconds", type=int, default=120, help="default 120")
    parser.add_argument("--sites", type=int, default=8, help="default 8")
    parser.add_argument("--members", type=int, default=8, help="of a site; default 8")
    parser.add_argument("--hz", type=int, default=20, help="default 20")
    parser.add_argument("--engine", choices=["penstock", "faust"], default="penstock")
    parser.add_argument("--seed", type=int, help="of the faults; random if not given")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    print(f"seed {seed}; logs in {folder}", flush=True)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
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


def _environ(options: argparse.Namespace, shape: Shape) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    servers = next(line for line in stack.exports() if "BOOTSTRAP" in line).partition("=")[2]
    ours = {
        "KAFKA__BOOTSTRAP_SERVERS": servers.strip("'"),
        "SCENES__ENGINE": options.engine,
        "SCENES__PERIOD_MS": str(shape.period_ms),
        "SCENES__TOLERANCE_MS": str(shape.period_ms // 2),
        "SCENES__MEMBERS": orjson.dumps(shape.members_of()).decode(),
        "HTTP__PORT": "0",
    }
    return inherited | {f"PENSTOCK_{name}": value for name, value in ours.items()}


async def _run(options: argparse.Namespace, chance: random.Random, folder: Path) -> bool:
    shape = Shape(options.sites, options.members, options.hz)
    place = Place(_environ(options, shape), "", folder, model_worker_pid, stack.restart, crash)
    penstock(place.environ, "topics", "create", "--scenes", "--partitions", str(PARTITIONS))
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
    return await judged(place, shape)


async def _speak(cfg: config.Config, shape: Shape, seconds: int) -> None:
    """Open loop: what could not be sent in time is sent late."""
    producer = AIOKafkaProducer(**connection(cfg.kafka), enable_idempotence=True)
    await producer.start()
    try:
        began_ms = int(time.time() * 1000) // shape.period_ms * shape.period_ms
        for instant in range(seconds * shape.hz):
            instant_ms = began_ms + instant * shape.period_ms
            for delay, partition, stream, value in sorted(said_at(instant, instant_ms, shape)):
                await asyncio.sleep((instant_ms + delay) / 1000 - time.time())
                await _send(producer, cfg.scenes.input_topic, stream.encode(), value, partition)
        await producer.flush()
    finally:
        await producer.stop()


async def _send(
    producer: AIOKafkaProducer, topic: str, key: bytes, value: bytes, partition: int
) -> None:
    """Also while Kafka is away for longer than a queue may be full."""
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
    """Until the judge finds nothing that is in no place, or the time is over."""
    until_s = time.monotonic() + GRACE_S
    while time.monotonic() < until_s:
        code, said = await asyncio.to_thread(_verify, place)
        if code == EXIT_DONE or set(orjson.loads(said)["violations"]) - {"in no place"}:
            return
        await asyncio.sleep(LOOK_S)


async def judged(place: Place, shape: Shape) -> bool:
    code, said = await asyncio.to_thread(_verify, place)
    print(said)
    scenes = place.config.scenes
    topics = [scenes.input_topic, scenes.topic, scenes.late_topic]
    async with open_reader(place.config.kafka, "read_uncommitted") as reader:
        read = []
        for topic in topics:
            spans = await reader.spans(topic)
            read.append(
                [
                    oracle.Said(record.value, record.timestamp)
                    async for _, records in reader.runs(topic, spans, lambda _: None)
                    for record in records
                ]
            )
    found = oracle.compare(*read, period_ms=shape.period_ms, members=shape.members_of())
    print(f"oracle: {found}")
    return code == EXIT_DONE and not found.wrong


def _verify(place: Place) -> tuple[int, str]:
    return penstock(place.environ, "verify", "--scenes")


def penstock(environ: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "consumers", *arguments]
    answer = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    if answer.returncode not in (EXIT_DONE, EXIT_CHECK_FAILED):
        raise RuntimeError(f"penstock {arguments[0]}: {answer.returncode}: {answer.stderr}")
    return answer.returncode, answer.stdout
