"""Measures how late answers are around a restart, a join and a death of a worker: 16 streams at 10
Hz, four workers.

Rule: lateness is the time from the broker's stamp of the reference to the broker's stamp of the
answer. No other clock counts. A process begins on the services' core and is moved when it is
`AGE_S` old, so that its start takes no CPU from the other workers. Owner: `scripts/fleet`.
"""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson

from chaos_run.plan import PARTITIONS
from chaos_run.services_under_test import Place, producing, stamped
from chaos_run.workers import LOOK_S, Crew, Worker
from fleet_run.common import (
    SERVICES_CORE,
    WORKERS_CORE,
    Figure,
    fresh_place,
    place,
    services_apart,
    tell,
)
from penstock.tools.bench.object_bodies import csv_body
from penstock.tools.bench.resource_use import family
from penstock.tools.bench.topics_and_bucket import count_records, end_watcher
from penstock.tools.bench.verdict import percentile

WORKERS, STREAMS, HZ, ROWS = 4, 16, 10, 8
# By this age a worker has started and joined its group.
AGE_S = 3.0
QUIET_S = 3.0
# Within this time the supervisor has started another process in the place of the dead one.
RESTART_S = 6.0
SETTLE_S = 2.0
KILLS = 5
SESSION_S = 8.0
# Within this time workers start, and answer the objects that were announced meanwhile.
WAIT_S = 60.0


class Event(NamedTuple):
    """A restart, a join or a death. `moved`: the partitions whose worker changed. `away`: the
    partitions whose worker was restarted.
    """

    began_ms: float
    ended_ms: float
    moved: frozenset[int]
    away: frozenset[int]


class Answered(NamedTuple):
    """A reference, the broker's stamp of it, and how much later the answer to its last row was
    stamped: infinite if the reference was never answered.
    """

    partition: int
    at_ms: float
    late_ms: float


class Fleet:
    """Workers under load. `events`: the events since this list was last emptied. `answered`: all
    references; set at the end.
    """

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.events: list[Event] = []
        self.answered: list[Answered] = []

    def owners(self) -> dict[int, str]:
        return {number: worker.name for worker in self.crew.free() for number in worker.partitions}

    @asynccontextmanager
    async def event(self, *, away: frozenset[int] = frozenset()) -> AsyncIterator[None]:
        """Note what happens in the block, and for `SETTLE_S` after it, as one event."""
        before, began_ms = self.owners(), time.time() * 1000
        yield
        await asyncio.sleep(SETTLE_S)
        after = self.owners()
        moved = frozenset(number for number in before if before[number] != after.get(number))
        self.events.append(Event(began_ms, time.time() * 1000, moved, away))


async def measured(folder: Path) -> list[Figure]:
    found: list[Figure] = []
    async with _fleet(folder / "dynamic", WORKERS) as fleet:
        await _roll(fleet)
        rolled, fleet.events = fleet.events, []
        async with fleet.event():
            joiner = fleet.crew.join()
            await _has(joiner)
        joined, fleet.events = fleet.events, []
        async with fleet.event():
            victim = fleet.crew.free()[0]
            victim.lose()
            await asyncio.sleep(SESSION_S + 4.0)
        lost = fleet.events
    late = fleet.answered
    found += _told("rolling restart", late, rolled, stay_ms=300, move_ms=2_000)
    found += _told("a worker joins", late, joined, stay_ms=300, move_ms=700)
    found += tell(
        Figure("a host is lost: silence", _silence_s(late, lost[0]), "s", most=SESSION_S + 2)
    )
    async with _fleet(folder / "static", WORKERS, static=True) as fleet:
        await _roll(fleet)
    what = "rolling restart, static members"
    found += _told(what, fleet.answered, fleet.events, stay_ms=300)
    changed = [len(event.moved) for event in fleet.events]
    found += tell(Figure("the same: partitions moved", sum(changed), "", most=0))
    for spare, most_s in (("", 2.0), (" --spare", 1.0)):
        async with _fleet(
            folder / f"processes{spare.strip()}", 1, f"run --processes {WORKERS}{spare}"
        ) as fleet:
            for number in range(KILLS):
                async with fleet.event():
                    children = _children(fleet)
                    os.kill(children[number % len(children)], signal.SIGKILL)
                    await asyncio.sleep(RESTART_S)
        silences = [_silence_s(fleet.answered, event) for event in fleet.events]
        what = f"kill -9 of one of run --processes {WORKERS}{spare}: silence"
        found += tell(
            Figure(f"{what}, median", median(silences), "s", most=most_s),
            Figure(f"{what}, worst", max(silences), "s"),
        )
    return found


def _told(
    what: str,
    answered: list[Answered],
    events: list[Event],
    stay_ms: float,
    move_ms: float | None = None,
) -> list[Figure]:
    stays: list[float] = []
    moves: list[float] = []
    for event in events:
        for record in answered:
            if event.began_ms <= record.at_ms <= event.ended_ms:
                changes = record.partition in event.moved | event.away
                (moves if changes else stays).append(record.late_ms)
    figures = [Figure(f"{what}: p99 of {len(stays)} that stay", _p99(stays), "ms", most=stay_ms)]
    if moves:
        move = f"{what}: p99 of {len(moves)} that move, or whose worker restarts"
        figures.append(Figure(move, _p99(moves), "ms", most=move_ms))
    return tell(*figures)


def _p99(values: list[float]) -> float:
    return percentile(values, 0.99) if values else float("inf")


def _silence_s(answered: list[Answered], event: Event) -> float:
    """The longest time without an answer of any partition during the event."""
    ends = [event.began_ms, event.ended_ms]
    times: dict[int, list[float]] = {number: [*ends] for number in range(PARTITIONS)}
    for one in answered:
        if event.began_ms <= one.at_ms + one.late_ms <= event.ended_ms:
            times[one.partition].append(one.at_ms + one.late_ms)
    pairs = (pair for each in times.values() for pair in itertools.pairwise(sorted(each)))
    return max(later - earlier for earlier, later in pairs) / 1000


async def _roll(fleet: Fleet) -> None:
    for worker in fleet.crew.free():
        async with fleet.event(away=worker.partitions):
            async with asyncio.timeout(WAIT_S):
                await worker.restarted()


async def _has(worker: Worker) -> None:
    async with asyncio.timeout(WAIT_S):
        while not worker.partitions:
            await asyncio.sleep(0.05)


def _children(fleet: Fleet) -> list[int]:
    """The worker processes under the supervisor. The process in reserve is the youngest child, and
    is left out.
    """
    (supervisor,) = (worker.pid for worker in fleet.crew.free() if worker.pid)
    direct = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(pid) for pid in direct][:WORKERS]


@asynccontextmanager
async def _fleet(
    folder: Path, workers: int, command: str = "run", *, static: bool = False
) -> AsyncIterator[Fleet]:
    """Workers that have their partitions, under load. After the block, `answered` is filled."""
    folder.mkdir()
    changes = {"DELIVERY__DRAIN_MS": "2000"}
    if static:
        changes |= {"KAFKA__SESSION_MS": "30000"}

    def launcher(worker: str) -> tuple[str, ...]:
        begins = ("taskset", "-c", str(SERVICES_CORE))
        return (*begins, "env", f"PENSTOCK_KAFKA__INSTANCE_ID={worker}") if static else begins

    async with fresh_place(folder, changes, launcher) as (place, bucket):
        await bucket.put({f"{n}.csv": csv_body(ROWS, n) for n in range(STREAMS)})
        with services_apart(place.config):
            async with asyncio.TaskGroup() as tasks:
                crew = Crew(place, tasks, command)
                for _ in range(workers):
                    crew.join()
                helpers = [tasks.create_task(_age(crew)), tasks.create_task(_load(place))]
                try:
                    await _caught_up(place)
                    await asyncio.sleep(AGE_S + QUIET_S)
                    fleet = Fleet(crew)
                    yield fleet
                    helpers[1].cancel()
                    await asyncio.sleep(QUIET_S)
                    fleet.answered = await _answered(place)
                finally:
                    for helper in helpers:
                        helper.cancel()
                    crew.end()


async def _caught_up(place: Place) -> None:
    """Wait until all references but those of the last second are answered."""
    topics = (place.config.kafka.input_topic, place.config.output.topic)
    async with asyncio.timeout(WAIT_S), end_watcher(place.config.kafka) as watcher:
        while True:
            asked, answers = [await count_records(watcher, each, PARTITIONS) for each in topics]
            if answers and asked <= answers / ROWS + HZ * STREAMS:
                return
            await asyncio.sleep(LOOK_S)


async def _age(crew: Crew) -> None:
    """Move each process to the workers' core when it is old enough."""
    begun: dict[int, float] = {}
    while True:
        for worker in crew.free():
            for pid in family(worker.pid or 0):
                if time.monotonic() - begun.setdefault(pid, time.monotonic()) > AGE_S:
                    place([pid], {WORKERS_CORE})
        await asyncio.sleep(0.25)


async def _load(place: Place) -> None:
    """Announce an object of each stream, `HZ` times a second, spread over the period."""
    topic = place.config.kafka.input_topic
    messages = [
        orjson.dumps({"bucket": place.bucket, "key": f"{n}.csv", "stream": f"stream-{n}"})
        for n in range(STREAMS)
    ]
    async with producing(place.config.kafka) as producer:
        await producer.partitions_for(topic)
        begun_s = time.monotonic()
        for tick in itertools.count():
            number = tick % STREAMS
            await producer.send(topic, messages[number], partition=number % PARTITIONS)
            await asyncio.sleep(begun_s + (tick + 1) / (HZ * STREAMS) - time.monotonic())


async def _answered(place: Place) -> list[Answered]:
    ends: dict[tuple[int, int], int] = {}
    for record in await stamped(place.config.kafka, place.config.output.topic):
        document = orjson.loads(record.value)
        if document.get("last"):
            ends.setdefault((record.partition, document["source"]["offset"]), record.at_ms)
    never = float("inf")
    return [
        Answered(one.partition, one.at_ms, ends.get((one.partition, one.offset), never) - one.at_ms)
        for one in await stamped(place.config.kafka, place.config.kafka.input_topic)
    ]
