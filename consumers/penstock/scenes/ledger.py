"""Handles the sites of a worker's partitions: decides, writes the decisions down, and publishes
them, in this order. Both engines use it, and differ only in how they reach Kafka.

Rule: records are committed after both, so a crash at any point repeats the same bytes. If the
changelog shows that another worker has a partition now (`ClaimedPartitions`), nothing of it is
published. A batch is written down only after all earlier ones are published.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Any, NamedTuple

from penstock import config
from penstock.errors import Fatal
from penstock.ports import Clock
from penstock.scenes.changelog import (
    ENDED,
    Changelog,
    ClaimedPartitions,
    Fits,
    KafkaChangelog,
    Out,
    PartitionStates,
    Send,
    State,
)
from penstock.scenes.core.decision_time import Due, WaitingClock
from penstock.scenes.core.rules import Rules, SiteStreams
from penstock.scenes.core.site import Site
from penstock.scenes.core.state import OtherForm, SiteState, dump, load
from penstock.scenes.records import LateTopic, Packing, Rekey, SceneRecords
from penstock.scenes.settings import Names, names, rules_of
from penstock.scenes.site_figures import MOST_LOOK_CHARS, KeyedFigures, SiteFigures, chars_of

log = logging.getLogger(__name__)

# A batch with more bytes of predictions than this is written down and published in steps.
STEP_BYTES = 256 << 10
# So many sites are packed in some 10 ms; then other tasks have their turn.
AT_A_TIME = 100


class Keyed(NamedTuple):
    """A record of the repartition topic, where the key of a prediction is its site."""

    partition: int
    site: str
    value: bytes
    recorded_ms: int
    offset: int


class SiteLedger:
    """Decides about the sites of the partitions that this worker owns. Call `handle` for each
    batch, and `tick` often. `is_behind`: a function that returns True while old, unhandled records
    lie in Kafka.
    """

    def __init__(
        self,
        *,
        rules: Rules,
        rekey: Rekey,
        packing: Packing,
        names: Names,
        send: Send,
        changelog: Changelog,
        figures: SiteFigures,
        now_ms: Callable[[], int],
        is_behind: Callable[[], bool],
    ) -> None:
        self._rules = rules
        self._rekey = rekey
        self._packing = packing
        self._names = names
        self._send = send
        self._claimed = ClaimedPartitions(send, changelog, names.changelog)
        self._figures = figures
        self._clock = WaitingClock(now_ms, is_behind)
        self._lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._due = Due()
        self._batch = 0
        self.sites: dict[str, Site] = {}

    async def give_up(self) -> None:
        """Wait for the batch in progress. Then forget our partitions, because other workers may get
        them now.
        """
        self._ready.clear()
        async with self._lock:
            self._clear()
            self._claimed.close()
            self._figures.clear()

    async def take_over(self, partitions: Collection[int]) -> None:
        """Claim the partitions, so that states that other workers write later are void. Restore the
        sites of the partitions from the changelog, and publish the last decisions again.
        """
        async with self._lock:
            self._clear()
            positions = await self._claimed.claim(partitions)
            for partition, states in positions.items():
                await self._publish(self._restored(partition, states))
            void = {site: number for number, each in positions.items() for site in each.shadowed}
            await self._write_again(void)
            for name in self.sites:
                self._due.put(name, self._clock.now())
            await self._make_room()
        log.info("%d sites of partitions %s", len(self.sites), sorted(partitions) or "none")
        self._ready.set()

    async def handle(self, batch: Iterable[Keyed]) -> None:
        """Handle a batch of the repartition topic. When this method returns, the batch may be
        committed.
        """
        await self._ready.wait()
        async with self._lock:
            now, touched, nbytes = self._clock.now(), dict[str, Site](), 0
            ours = self._claimed.partitions
            for keyed in batch:
                if keyed.partition not in ours:
                    continue  # it was read before a rebalance, so the new owner reads it again
                placed = self._rekey.placed(keyed.value, keyed.recorded_ms)
                if placed is None or placed[1].site != keyed.site:
                    await self._key_again(keyed)
                    continue
                arrival, place = placed
                site = touched[keyed.site] = self._site(keyed)
                site.arrive(arrival, place.member, now)
                nbytes += len(keyed.value)
                if nbytes > STEP_BYTES:
                    await self._settle(touched.values())
                    touched, nbytes = {}, 0
            await self._settle(touched.values())
            await self._make_room()

    async def _key_again(self, keyed: Keyed) -> None:
        """Send the record through the re-keying again, because it was keyed by another setting of
        `scenes.site`, or by a version of penstock that accepted it as a prediction.
        """
        where = f"{self._names.by_site}/{keyed.partition}/{keyed.offset}"
        await (await self._send(self._rekey.out(keyed.value, where, keyed.recorded_ms)))

    async def tick(self) -> None:
        """Close the scenes whose time is over. End the sites that were silent for
        `scenes.forget_ms`.
        """
        if not self._ready.is_set() or self._lock.locked():
            return
        due = self._due.take(now := self._clock.now())
        if not due:
            return
        async with self._lock:
            sites = [self.sites[name] for name in due if name in self.sites]
            for site in sites:
                site.tick(now)
            await self._settle([site for site in sites if site.has_decided])
            await self._end([site for site in sites if site.is_over])
            self._look_again(sites)

    @property
    def partitions(self) -> Collection[int]:
        """The partitions for which this worker decides."""
        return self._claimed.partitions if self._ready.is_set() else ()

    @property
    def keyed(self) -> KeyedFigures:
        """Of the predictions that this worker has read."""
        return self._rekey.figures

    def looks(self, most: int) -> Iterator[dict[str, Any]]:
        """The figures of at most `most` sites, for people: fewer if they have many members or long
        names, because senders choose these.
        """
        left_chars = MOST_LOOK_CHARS
        for name in sorted(self.sites)[:most]:
            look = self._figures.look(self.sites[name])
            yield look
            left_chars -= chars_of(look)
            if left_chars <= 0:
                return

    def _clear(self) -> None:
        self.sites.clear()
        self._due.clear()

    def _site(self, keyed: Keyed) -> Site:
        site = self.sites.get(keyed.site)
        if site is None:
            state = SiteState(partition=keyed.partition)
            site = self.sites[keyed.site] = Site(keyed.site, self._rules, state)
        return site

    def _restored(self, partition: int, states: PartitionStates) -> list[Site]:
        """Restore all sites of the partition. Returns the sites whose state was written by the last
        batch, because the decisions of that batch may be unpublished. The decisions of earlier
        batches were published before the last batch was written.
        """
        now, by_batch = self._clock.now(), dict[tuple[int, int], list[Site]]()
        for name, (claim, packed) in states.states.items():
            site = self.sites[name] = Site(name, self._rules, _loaded(name, packed))
            by_batch.setdefault((claim, site.state.batch), []).append(site)
            site.state.partition, site.state.batch = partition, 0  # our own batches begin at 1
            site.resume(now)
        last = by_batch.pop(max(by_batch), []) if by_batch else []
        for sites in by_batch.values():
            for site in sites:
                site.state.outbox = []
        return last

    async def _settle(self, sites: Collection[Site]) -> None:
        while sites:
            self._batch += 1
            states, heavy = [], []
            for number, site in enumerate(sites, 1):
                if number % AT_A_TIME == 0:  # heartbeats must be sent meanwhile
                    await asyncio.sleep(0)
                decisions, site.state.batch = site.take(), self._batch
                packed, is_half_full = self._packing.pack(site, decisions)
                states.append(State(site.state.partition, site.name, packed))
                self._figures.decided(site.name, decisions)
                if is_half_full:
                    heavy.append(site)
            await self._write_again(await self._claimed.append(states))
            await self._publish(sites)
            self._look_again(sites)
            sites = [site for site in heavy if site.shed()]

    def _look_again(self, sites: Iterable[Site]) -> None:
        for site in sites:
            if (at := site.next_look()) is not None:
                self._due.put(site.name, at)

    async def _write_again(self, names: dict[str, int]) -> None:
        """Write our states of these sites again. A worker that was frozen has written states of
        these sites after it had lost the partition. Compaction keeps only the last state of each
        site, so the last one must be ours.
        """
        while names:
            ours = self.sites
            names = await self._claimed.append(
                [
                    State(partition, name, dump(ours[name].state) if name in ours else None)
                    for name, partition in names.items()
                ]
            )

    async def _end(self, sites: Collection[Site]) -> None:
        for site in sites:
            del self.sites[site.name]
            self._figures.forget(site.name)
        for packed in (ENDED, None):
            states = [State(site.state.partition, site.name, packed) for site in sites]
            await self._write_again(await self._claimed.append(states))

    async def _make_room(self) -> None:
        """If there are more sites than `limits.sites`, end those that were silent longest.
        Their open scenes are decided first. Somebody who names streams may make any number of
        sites.
        """
        most = self._rules.max_sites
        if len(self.sites) <= most:
            return
        # A few more, so that not each batch looks through all sites.
        over = len(self.sites) - most + most // 16
        silent = nsmallest(over, self.sites.values(), key=lambda site: site.heard)
        for site in silent:
            site.finish()
        await self._settle(silent)
        await self._end(silent)
        log.warning(
            "there are more than %d sites (limits.sites): the %d that were silent longest are "
            "forgotten",
            most,
            over,
        )

    async def _publish(self, sites: Iterable[Site]) -> None:
        outbox = [
            Out(topic, site.name.encode(), value)
            for site in sites
            for topic, value in site.state.outbox
        ]
        if outbox:
            await (await self._send(outbox))
        for site in sites:
            site.state.outbox = []


def _loaded(site: str, value: bytes) -> SiteState:
    try:
        return load(value)
    except OtherForm as error:
        raise Fatal(
            f"the changelog's state of site {site} is of another version of penstock: {error}. Run "
            "the one that wrote it, or begin anew: docs/scenes.md says how, at the changelog"
        ) from error


class Parts(NamedTuple):
    names: Names
    rekey: Rekey
    ledger: SiteLedger


def parts_of(
    cfg: config.Config, send: Send, fits: Fits, clock: Clock, is_behind: Callable[[], bool]
) -> Parts:
    """Make the parts for an engine that sends its records through `send`. `is_behind`: a function
    that returns True while old, unhandled records lie in Kafka. Raises `Fatal` if settings
    contradict each other.
    """
    scenes, topics = cfg.scenes, names(cfg.scenes)
    late = LateTopic(topics.late, fits, is_dropped=scenes.late == "drop")
    keyed = KeyedFigures(clock.wall_ms)
    rekey = Rekey(SiteStreams(scenes.site), topics.by_site, late, fits, keyed)
    ledger = SiteLedger(
        rules=rules_of(scenes, cfg.limits.sites),
        rekey=rekey,
        packing=Packing(SceneRecords(scenes.inline, scenes.fill), late, topics, fits),
        names=topics,
        send=send,
        changelog=KafkaChangelog(cfg.kafka, topics.changelog),
        figures=SiteFigures(clock.wall_ms),
        now_ms=steady(clock),
        is_behind=is_behind,
    )
    return Parts(topics, rekey, ledger)


def steady(clock: Clock) -> Callable[[], int]:
    """A clock in milliseconds. It starts at the system's time, but ignores later jumps of the
    system's clock, so that no decision has to wait when the system's clock is set back.
    """
    began_ms = clock.wall_ms() - clock.now() * 1000
    return lambda: int(began_ms + clock.now() * 1000)
