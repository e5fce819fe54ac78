"""The place of a run: services, topics and a bucket, how the run may disturb the services, and how
it writes to a topic and reads all of it.

Rule: the code that makes a `Place` also makes its topics (with `plan.PARTITIONS` partitions) and
its bucket. A message that could not be sent in time is sent late, never left out. Owner: the run.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer

from chaos_run.cluster import Cluster
from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.reader import open_reader
from penstock.errors import EXIT_CHECK_FAILED, EXIT_DONE
from penstock.tools.bench.distance import Distance
from realstack import layout, stack, what_runs
from realstack.minio import s3_client

TOPICS = {"KAFKA__INPUT_TOPIC": "in", "OUTPUT__TOPIC": "out", "OUTPUT__DLQ_TOPIC": "out.dlq"}


@dataclass(frozen=True)
class Place:
    """`environ`: all variables of a worker. `model_worker_pid`: the process that serves the model
    now, if there is one. `restart`: stops the named service and starts it again. `crash`: freezes
    the named service for the first number of seconds, kills it, and starts it again when the second
    number of seconds is over. `cluster`: the services, if each of them has a host of its own.
    `launcher`: the words to put before the command line of the named worker. `former`: the checkout
    whose code each worker runs in its first life. `far`: the settings of the workers alone, for
    services at a distance.
    """

    environ: Mapping[str, str]
    bucket: str
    folder: Path
    model_worker_pid: Callable[[], int | None]
    restart: Callable[[str], object]
    crash: Callable[[str, float, float], object]
    cluster: Cluster | None = None
    launcher: Callable[[str], Sequence[str]] = lambda worker: ()
    former: Path | None = None
    far: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> config.Config:
        return config.load(environ=self.environ)

    @property
    def hosts(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster

    def environ_of(self, life: int) -> Mapping[str, str]:
        """The variables of a worker in this life; the first is 1."""
        environ = {**self.environ, **variables(self.far)}
        if self.former is not None and life == 1:
            environ["PYTHONPATH"] = str(self.former / "consumers")
        return environ

    def s3(self) -> Any:
        """A client of the object store; the caller closes it."""
        objects = self.config.objects
        return s3_client(objects.endpoint_url, objects.key, objects.secret, objects.region)

    def penstock(self, *arguments: str) -> tuple[int, str]:
        """Run a `penstock` command. Returns its exit code and output. Raises unless the exit code
        says that a check passed or failed. Blocks.
        """
        answer = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            env=dict(self.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode not in (EXIT_DONE, EXIT_CHECK_FAILED):
            raise RuntimeError(f"penstock {arguments[0]}: {answer.returncode}: {answer.stderr}")
        return answer.returncode, answer.stdout

    @property
    def is_exactly_once(self) -> bool:
        return self.config.delivery.guarantee == "exactly_once"


def seeded(seed: int | None) -> tuple[int, Path]:
    """The run's seed (a random one if none is given), and its folder for all logs and the state of
    its own stack. Both are printed, so that people can repeat a failure with the seed, and look
    into the folder.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    print(f"seed {seed}; logs in {folder}", flush=True)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    return seed, folder


def add_distance(parser: argparse.ArgumentParser) -> None:
    """Add the options that `distance_of` reads."""
    for service in ("store", "model", "kafka"):
        how = f"how far away {service} is from the workers, as in penstock bench streams; default 0"
        parser.add_argument(f"--{service}-ms", type=float, default=0.0, metavar="MS", help=how)


def distance_of(options: argparse.Namespace) -> Distance:
    return Distance(options.store_ms, options.model_ms, options.kafka_ms)


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of settings that are named as `SECTION__KEY`."""
    return {f"PENSTOCK_{name}": value for name, value in settings.items()}


def bare() -> dict[str, str]:
    """The caller's environment variables without Penstock's settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}


def environ_of(
    changes: Mapping[str, str], is_taken: Callable[[str], bool] = lambda name: True
) -> dict[str, str]:
    """A worker's variables: the stack's variables for whose names `is_taken` is true, overridden by
    `changes` (`SECTION__KEY`). The caller's own settings are left out.
    """
    exports = (line.removeprefix("export ").partition("=") for line in what_runs.exports())
    ours = {name: value.strip("'") for name, _, value in exports if is_taken(name)}
    return bare() | ours | variables(changes)


def model_worker_pid() -> int | None:
    """The Python process of TorchServe on the local stack: a child of its Java process."""
    state = layout.load()
    server = state.processes.get("torchserve") if state else None
    if server is None:
        return None
    answer = subprocess.run(
        ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False
    )
    children = answer.stdout.split()
    return int(children[0]) if children else None


def crash(service: str, hangs_s: float, away_s: float) -> None:
    """Freeze, kill and restart a service of the local stack, as `Place` says. Blocks."""
    state = layout.load()
    assert state is not None
    pid = state.processes[service].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(hangs_s)
    finally:
        os.kill(pid, signal.SIGKILL)
    time.sleep(away_s)
    stack.restart(service)


@asynccontextmanager
async def producing(kafka: config.Kafka) -> AsyncIterator[AIOKafkaProducer]:
    """A producer for the block. At the end of the block everything is delivered. The producer is
    idempotent, so that a message that is sent again after a restart of Kafka is on the topic only
    once.
    """
    producer = AIOKafkaProducer(**connection(kafka), enable_idempotence=True)
    await producer.start()
    try:
        yield producer
        await producer.flush()
    finally:
        await producer.stop()


class Stamped(NamedTuple):
    """A record, with the broker's stamp."""

    partition: int
    offset: int
    at_ms: int
    value: bytes


async def stamped(kafka: config.Kafka, topic: str) -> list[Stamped]:
    """Everything that the topic holds."""
    async with open_reader(kafka, "read_committed") as reader:
        spans = await reader.spans(topic)
        return [
            Stamped(record.partition, record.offset, record.timestamp, record.value)
            async for record in reader.records(topic, spans)
        ]
