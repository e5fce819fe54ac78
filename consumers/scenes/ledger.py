"""The sites of a worker's partitions: decide, write down, publish, in this order.

Rule: what was decided is on the changelog before it is on a topic, and events are acknowledged
after both; so a crash at any point repeats the same bytes. One batch at a time. Owner: the Faust
application, which gives the batches, the time and the way out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from consumers.scenes.arrival import read_arrival
from consumers.scenes.picture import Pictures, late
from consumers.scenes.rules import Rules, Streams
from consumers.scenes.site import Site
from consumers.scenes.state import SiteState, dump, load

log = logging.getLogger(__name__)


class Keyed(NamedTuple):
    """A prediction as the repartition topic has it: keyed by its site."""

    partition: int
    site: str
    value: bytes
    recorded_ms: int


class Send(Protocol):
    """Hands a record over; what it returns ends when the record is delivered, or raises."""

    async def __call__(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Awaitable[object]: ...


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
        wall_ms: Callable[[], int],
        is_behind: Callable[[], bool],
    ) -> None:
        self._rules = rules
        self._streams = streams
        self._pictures = pictures
        self._topics = topics
        self._send = send
        self._clock = WaitingClock(wall_ms, is_behind)
        self._lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._partitions: Collection[int] = ()
        self.sites: dict[str, Site] = {}

    async def give_up(self) -> None:
        """The partitions are somebody else's from now on; waits for the batch that is under way."""
        self._ready.clear()
        async with self._lock:
            self.sites.clear()
            self._partitions = ()

    async def take_over(self, partitions: Collection[int], states: Mapping[str, bytes]) -> None:
        """Go on from what the changelog says: what was decided is published again."""
        async with self._lock:
            self._partitions = partitions
            self.sites.clear()
            for name, value in states.items():
                state = load(value)
                if state.partition in partitions:
                    site = self.sites[name] = Site(name, self._rules, state)
                    site.resume(self._clock.now())
            await self._publish(self.sites.values())
        self._ready.set()

    async def handle(self, batch: Iterable[Keyed]) -> None:
        """A batch of the repartition topic. When it returns all of it is safe."""
        await self._ready.wait()
        async with self._lock:
            now, touched = self._clock.now(), {}
            for keyed in batch:
                if keyed.partition not in self._partitions:
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

    def _site(self, keyed: Keyed) -> Site:
        site = self.sites.get(keyed.site)
        if site is None:
            state = SiteState(partition=keyed.partition)
            site = self.sites[keyed.site] = Site(keyed.site, self._rules, state)
        return site

    async def _settle(self, sites: Collection[Site]) -> None:
        for site in sites:
            site.state.outbox = self._outbox(site)
        written = [
            await self._send(
                self._topics.changelog, site.name.encode(), dump(site.state), site.state.partition
            )
            for site in sites
        ]
        await asyncio.gather(*written)
        await self._publish(sites)

    def _outbox(self, site: Site) -> list[tuple[str, bytes]]:
        scenes, refused = site.take()
        topics = self._topics
        outbox = [(topics.scenes, self._pictures.scene(site.name, scene)) for scene in scenes]
        if self._rules.late != "drop":
            outbox += [(topics.late, late(site.name, each)) for each in refused]
        return outbox

    async def _publish(self, sites: Iterable[Site]) -> None:
        sent = [
            await self._send(topic, site.name.encode(), value)
            for site in sites
            for topic, value in site.state.outbox
        ]
        await asyncio.gather(*sent)
