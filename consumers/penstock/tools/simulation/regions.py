"""Three regions from one seed: one is cut off and comes back; three promises are checked.

    answered   every row of every reference is answered by its true prediction
    in order   within a partition, the first answers to rows come in the order of the input
    local      until a region is cut off, every byte is read in its own region; a region without
               workers is helped, and the help ends when all services work again

Rule: one seed gives one history. The workers run the real pipeline, with the real choice among
stores, model servers and groups; only the services are in memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import orjson

from penstock.adapters.memory import MemorySink
from penstock.tools.simulation.checks.history import History, Violation
from penstock.tools.simulation.region_workers import (
    NAMES,
    OUTPUT,
    PARTITIONS,
    TOPIC,
    RegionsWorld,
    RegionWorker,
    SimulatedRegion,
    topics,
)
from penstock.tools.simulation.virtual_time import VirtualClock, run

# How soon a region must be helped: this is long enough for a session, two looks, the time for which
# help must be needed, and a join.
HELPED_WITHIN_S = 30.0
RECOVERY_S = 300.0
BUCKET = "b"


class RegionsReport(NamedTuple):
    """`counts`: how many notes of each kind there are, such as `help`, `cut off` and `killed`. Two
    equal histories have the same `digest`.
    """

    rows: int
    repeated: int
    counts: dict[str, int]
    digest: str


def simulate_regions(seed: int) -> RegionsReport:
    """Raises `Violation` with the seed and the history if a promise is broken."""
    return run(_World(seed).live())


class _World:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed}/regions")
        self.history = History(seed)
        self.clock = VirtualClock()
        self.sink = MemorySink(partitions=PARTITIONS)
        topic = topics()
        self.regions = {
            name: SimulatedRegion(name, topic, Random(f"{seed}/{name}"), self.history)
            for name in NAMES
        }
        self.tasks = asyncio.TaskGroup()
        self._shared = RegionsWorld(
            self.regions, self.sink, self.clock, self.random, self.history, self.tasks
        )
        self._workers: list[RegionWorker] = []
        self._killed: list[RegionWorker] = []
        self._asked: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
        self._hired = self._announced = 0

    async def live(self) -> RegionsReport:
        try:
            await self._live()
        except* Violation:
            pass  # the history keeps the error: below it is raised without its group
        return self._judged()

    async def _live(self) -> None:
        async with self.tasks:
            coordinating = [
                self.tasks.create_task(each.group.coordinate()) for each in self.regions.values()
            ]
            for region in self.regions.values():
                for _ in range(self.random.randint(1, 2)):
                    self._hire(region)
            announcing = self.tasks.create_task(self._announce_forever())
            await self._storm()
            announcing.cancel()
            await self._calm()
            for worker in self._workers:
                worker.pipeline.stop()
            await asyncio.wait([worker.task for worker in self._workers])
            for task in coordinating:
                task.cancel()
            for worker in (*self._workers, *self._killed):
                worker.end()

    def _hire(self, region: SimulatedRegion) -> None:
        self._hired += 1
        self._workers.append(RegionWorker(f"{region.name}-{self._hired}", region, self._shared))

    async def _announce_forever(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(2.0))
            region = self.random.choice(list(self.regions.values()))
            self._announced += 1
            key, rows = f"{self._announced}.csv", self.random.randint(1, 5)
            data = b"".join(b"%d,%d\n" % (self._announced, row) for row in range(rows))
            region.objects.put(BUCKET, key, data)
            # The stores of the other regions get their copy of the object at once, or some time
            # later.
            late_s = self.random.choice((0.0, 0.0, 10.0 * self.random.random()))
            for other in self.regions.values():
                if other is not region:
                    asyncio.get_running_loop().call_later(
                        late_s, other.objects.put, BUCKET, key, data
                    )
            number = self.random.randrange(PARTITIONS)
            value = orjson.dumps({"bucket": BUCKET, "key": key, "stream": region.name})
            region.topic.append(region.partitions[number], None, value, 0)
            self._asked[region.name, number].append([self._announced + row for row in range(rows)])

    async def _storm(self) -> None:
        """Cut a region off once or twice, and kill workers."""
        await asyncio.sleep(5.0 + 10.0 * self.random.random())
        if any(worker.region.local_share() < 1.0 for worker in self._workers):
            self.history.broken("bytes left their region while all was well")
        for _ in range(self.random.randint(1, 2)):
            await self._cut_off(self.random.choice(list(self.regions.values())))
            for _ in range(self.random.randint(0, 2)):
                await asyncio.sleep(20.0 * self.random.random())
                victim = self.random.choice(self._workers)
                self._kill(victim)
                await asyncio.sleep(12.0 * self.random.random())
                self._hire(victim.home)

    async def _cut_off(self, region: SimulatedRegion) -> None:
        """Cut a region off for a while: always its store and model, and in some cases its workers
        as well.
        """
        is_silent, with_workers = self.random.random() < 0.5, self.random.random() < 0.7
        self.history.note("cut off", f"{region.name} {is_silent=} {with_workers=}")
        region.cut_off(is_silent=is_silent)
        theirs = [worker for worker in self._workers if worker.home is region and with_workers]
        for worker in theirs:
            self._kill(worker)
        began_s = self.clock.now()
        await asyncio.sleep(self.random.uniform(5.0, 90.0))
        if theirs and self.clock.now() - began_s > HELPED_WITHIN_S and not region.is_helped:
            self.history.broken(f"nobody helps {region.name}, which has no workers")
        region.come_back()
        self.history.note("back", region.name)
        for _ in theirs:
            self._hire(region)

    def _kill(self, worker: RegionWorker) -> None:
        self._workers.remove(worker)
        self._killed.append(worker)
        worker.kill()

    async def _calm(self) -> None:
        """Nothing is cut off now. Wait until all is answered and all helpers have left."""
        promises: dict[str, Callable[[], bool]] = {
            "not all is answered": lambda: not any(region.lag for region in self.regions.values()),
            "somebody helps for ever": lambda: (
                not any(worker.is_helping for worker in self._workers)
            ),
        }
        for promise, is_kept in promises.items():
            until_s = self.clock.now() + RECOVERY_S
            while not is_kept():
                if self.clock.now() > until_s:
                    raise self.history.broken(promise)
                await asyncio.sleep(0.5)

    def _judged(self) -> RegionsReport:
        if self.history.failure is not None:
            raise self.history.failure
        places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for records in self.sink.topics[OUTPUT].values():
            for _, value in records:
                record = orjson.loads(value)
                source, row = record["source"], record["row"]
                name, number = source["topic"].removeprefix(TOPIC), source["partition"]
                places[name, number].append((source["offset"], row))
                objects = self._asked[name, number]
                true = None if row is None else objects[source["offset"]][row]
                if row is None or record["prediction"] != {"sum": true}:
                    raise self.history.broken(f"{record} instead of {true}")
        rows = 0
        for where, objects in self._asked.items():
            wanted = [
                (at, row) for at, numbers in enumerate(objects) for row in range(len(numbers))
            ]
            first_of_each = list(dict.fromkeys(places[where]))
            if first_of_each != wanted:
                self.history.broken(f"{where}: {first_of_each} instead of {wanted}")
            rows += len(wanted)
        if self.history.failure is not None:
            raise self.history.failure
        total = sum(map(len, places.values()))
        return RegionsReport(rows, total - rows, dict(self.history.counts), self.history.digest())
