"""The parts that the measurements share: topics of their own, services on one core, and figures
with goals.

Rule: all times are the broker's stamps. At the end, processes that were moved to a core may use all
cores again. Owner: the measurement.
"""

import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from chaos_run.plan import PARTITIONS
from chaos_run.services_under_test import Place, environ_of
from penstock import config
from penstock.adapters.kafka.topics import TopicShape, create_topics, delete_topics
from penstock.tools.bench.resource_use import family, service_pids
from penstock.tools.bench.topics_and_bucket import TOPIC_SETTINGS, BenchBucket, fresh_bucket

SERVICES_CORE, WORKERS_CORE = 0, 1


class Figure(NamedTuple):
    """A measured value. `most`, `least`: its goal, if it has one."""

    what: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def is_kept(self) -> bool:
        return (self.most is None or self.value <= self.most) and (
            self.least is None or self.value >= self.least
        )


def tell(*figures: Figure) -> list[Figure]:
    """Print the figures, each with its goal."""
    for figure in figures:
        goals = {"at most": figure.most, "at least": figure.least}
        goal = "".join(f"  ({how} {bound:g})" for how, bound in goals.items() if bound is not None)
        mark = "  " if not goal else "ok" if figure.is_kept else "NO"
        sys.stdout.write(f"{mark} {figure.what:<58} {figure.value:10,.2f} {figure.unit}{goal}\n")
        sys.stdout.flush()
    return list(figures)


@asynccontextmanager
async def fresh_place(
    folder: Path, changes: Mapping[str, str], launcher: Callable[[str], Sequence[str]]
) -> AsyncIterator[tuple[Place, BenchBucket]]:
    """A place with topics, a group and a bucket of its own. `launcher`: as in `Place`."""
    name = f"fleet-{uuid.uuid4().hex[:8]}"
    topics = {"KAFKA__INPUT_TOPIC": name, "OUTPUT__TOPIC": f"{name}.out"}
    topics |= {"OUTPUT__DLQ_TOPIC": f"{name}.dlq", "KAFKA__GROUP": name}
    environ = environ_of(topics | {"HTTP__PORT": "0", "MODEL__REQUEST": "float32"} | dict(changes))
    cfg = config.load(environ=environ)
    await create_topics(cfg.kafka, cfg.topics, TopicShape(PARTITIONS, settings=TOPIC_SETTINGS))
    try:
        async with fresh_bucket(cfg.objects) as bucket:
            nothing = lambda *_: None  # noqa: E731
            yield (
                Place(environ, bucket.name, folder, nothing, nothing, nothing, launcher=launcher),
                bucket,
            )
    finally:
        await delete_topics(cfg.kafka, cfg.topics)


@contextmanager
def services_apart(cfg: config.Config) -> Iterator[None]:
    """Keep the services and this process on the services' core during the block."""
    everywhere = os.sched_getaffinity(0)
    pids = [os.getpid(), *service_pids(cfg).values()]
    place(pids, {SERVICES_CORE})
    try:
        yield
    finally:
        place(pids, everywhere)


def place(pids: Sequence[int], cores: set[int]) -> None:
    """Move these processes, their children and all their threads to these cores."""
    for pid in pids:
        for member in family(pid):
            for thread in Path(f"/proc/{member}/task").glob("*"):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores)
