"""The sites of a worker's partitions: decide, write down, publish, in this order.

Rule: what was decided is on the changelog before it is on a topic, and events are acknowledged
after both; so a crash at any point repeats the same bytes. What another worker has taken over is
not published: the changelog says so (`Turn`). One batch at a time. Owner: the engine, which gives
the batches, the time and the way out.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from consumers.errors import Fatal
from consumers.scenes.arrival import read_arrival
from consumers.scenes.boundary import Changelog, Out, Send
from consumers.scenes.changelog import CLAIM_KEY, Replay, Turn
from consumers.scenes.picture import Pictures, late
from consumers.scenes.rules import Rules, Streams
from consumers.scenes.site import Site
from consumers.scenes.state import OtherForm, SiteState, dump, load
from consumers.scenes.watch import Watch

log = logging.getLogger(__name__)


class Keyed(NamedTuple):
    """A prediction as the repartition topic has it: keyed by its site."""

    partition: int
    site: str
    value: bytes
    recorded_ms: int


class Topics(NamedTuple):
    scenes: str
    late: str
    changelog: str


class WaitingClock:
    """The wall clock, which stands still while there is a backlog: members whose predictions lie in
    Kafka are not late, this worker is.
    """

    def __init__(self, wall_ms: Callable[[], int], is_behind: Callable[[], bool]) -> None:
        self._wall_ms = wall_ms
        self._is_behind = is_behind
        self._stood_still = 0
        self._last = wall_ms()

    def now(self) -> int:
        wall = self._wall_ms()
        if self._is_behind():
            self._stood_still += max(0, wall - self._last)
        self._last = wall
        return wall - self._stood_still


class Ledger:
    """`wall_ms` is the system's time. `is_behind`: records lie in Kafka that are not handled."""

    def __init__(
        self,
        rules: Rules,
        streams: Streams,
        pictures: Pictures,
        topics: Topics,
        send: Send,
        changelog: Changelog,
        watch: Watch,
        wall_ms: Callable[[], int],
        is_behind: Callable[[], bool],
    ) -> None:
        self._rules = rules
        self._streams = streams
        self._pictures = pictures
        self._topics = topics
        self._send = send
        self._changelog = changelog
        self._watch = watch
        self._clock = WaitingClock(wall_ms, is_behind)
        self._lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._turns: dict[int, Turn] = {}
        self.sites: dict[str, Site] = {}

    async def give_up(self) -> None:
        """The partitions are another worker's from now on; waits for the batch under way."""
        self._ready.clear()
        async with self._lock:
            self.sites.clear()
            self._turns.clear()
            self._watch.forget()

    async def take_over(self, partitions: Collection[int]) -> None:
        """Claim them, and go on from what the changelog says: what was decided is published again.
        From the claim on no other worker's decision counts.
        """
        async with self._lock:
            self.sites.clear()
            self._turns = await self._claimed(partitions)
            shadowed = []
            for partition, replay in (await self._replayed()).items():
                for name, value in replay.states.items():
                    site = Site(name, self._rules, _loaded(name, value))
                    site.state.partition = partition
                    site.resume(self._clock.now())
                    self.sites[name] = site
                shadowed += [self.sites[name] for name in replay.shadowed & replay.states.keys()]
            await self._write(shadowed)
            await self._publish(self.sites.values())
        log.info("%d sites of partitions %s", len(self.sites), sorted(self._turns) or "none")
        self._ready.set()

    async def handle(self, batch: Iterable[Keyed]) -> None:
        """A batch of the repartition topic. When it returns all of it is safe."""
        await self._ready.wait()
        async with self._lock:
            now, touched = self._clock.now(), {}
            for keyed in batch:
                if keyed.partition not in self._turns:
                    continue  # read before a rebalance; its new owner reads it again
                site = self._site(keyed)
                arrival = read_arrival(keyed.value, keyed.recorded_ms)
                place = self._streams.place(arrival.stream)
                if place is not None:
                    site.arrive(arrival, place.member, now)
                    touched[site.name] = site
            await self._settle(touched.values())

    async def tick(self) -> None:
        """Close what has waited long enough."""
        if not self._ready.is_set() or self._lock.locked():
            return
        async with self._lock:
            now = self._clock.now()
            for site in self.sites.values():
                site.tick(now)
            await self._settle([site for site in self.sites.values() if site.has_decided])

    @property
    def partitions(self) -> Collection[int]:
        """Of which it decides."""
        return self._turns.keys() if self._ready.is_set() else ()

    def looks(self, most: int) -> Iterator[dict[str, Any]]:
        """What is to be seen of its sites, of so many at the most."""
        for name in sorted(self.sites)[:most]:
            yield self._watch.look(self.sites[name])

    def _site(self, keyed: Keyed) -> Site:
        site = self.sites.get(keyed.site)
        if site is None:
            state = SiteState(partition=keyed.partition)
            site = self.sites[keyed.site] = Site(keyed.site, self._rules, state)
        return site

    async def _settle(self, sites: Collection[Site]) -> None:
        for site in sites:
            site.state.outbox = self._outbox(site)
        await self._write(sites)
        await self._publish(sites)

    async def _write(self, sites: Collection[Site]) -> None:
        """Until all of it stands in the changelog, and nothing of another worker behind it."""
        while sites:
            states = [
                Out(
                    self._topics.changelog,
                    site.name.encode(),
                    self._turns[site.state.partition].seal(dump(site.state)),
                    site.state.partition,
                )
                for site in sites
            ]
            foreign: set[str] = set()
            for site, offset in zip(sites, await (await self._send(states)), strict=True):
                foreign |= await self._foreign(site.state.partition, offset)
            # A worker that was frozen wrote what it took for its sites: ours are written again.
            sites = [self.sites[name] for name in foreign if name in self.sites]

    async def _foreign(self, partition: int, offset: int) -> set[str]:
        """The sites that another worker wrote since our last record. Raises `Fatal` if it has
        claimed the partition.
        """
        others = self._turns[partition].written(_known(offset))
        if not others:
            return set()
        found = self._changelog.read({partition: others.stop}, {partition: others.start})
        keys = {record.key async for record in found}
        if CLAIM_KEY in keys:
            raise Fatal(
                f"another worker has taken over partition {partition}: this one was silent for "
                "too long. Nothing that it decided since was published; start it again."
            )
        log.warning("partition %d: a worker that had lost it wrote once more", partition)
        return {key.decode() for key in keys}

    async def _claimed(self, partitions: Collection[int]) -> dict[int, Turn]:
        ours = list(partitions)
        claims = [Out(self._topics.changelog, CLAIM_KEY, b"claim", number) for number in ours]
        offsets = await (await self._send(claims))
        return {number: Turn(_known(each)) for number, each in zip(ours, offsets, strict=True)}

    async def _replayed(self) -> dict[int, Replay]:
        replays = {partition: Replay() for partition in self._turns}
        ends = {partition: turn.claim for partition, turn in self._turns.items()}
        async for record in self._changelog.read(ends):
            replays[record.partition].add(record)
        return replays

    def _outbox(self, site: Site) -> list[tuple[str, bytes]]:
        scenes, refused = site.take()
        if scenes:
            self._watch.decided(site.name, scenes)
        topics = self._topics
        outbox = [(topics.scenes, self._pictures.scene(site.name, scene)) for scene in scenes]
        if self._rules.late != "drop":
            outbox += [(topics.late, late(site.name, each)) for each in refused]
        return outbox

    async def _publish(self, sites: Iterable[Site]) -> None:
        outbox = [
            Out(topic, site.name.encode(), value)
            for site in sites
            for topic, value in site.state.outbox
        ]
        if outbox:
            await (await self._send(outbox))


def _known(offset: int) -> int:
    if offset < 0:
        raise Fatal("Kafka did not say where a record of the changelog stands; start again")
    return offset


def _loaded(site: str, value: bytes) -> SiteState:
    try:
        return load(value)
    except OtherForm as error:
        raise Fatal(
            f"the changelog's state of site {site} is of another version of penstock: {error}. Run "
            "the one that wrote it, or begin anew: docs/scenes.md says how, at the changelog"
        ) from error
