"""A Kafka of two topics and a changelog, and workers on it, one after another, with one clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from penstock.scenes.changelog import CLAIM_KEY, Logged, Out
from penstock.scenes.core.rules import Rules, SiteStreams
from penstock.scenes.ledger import Keyed, SiteLedger
from penstock.scenes.records import LateTopic, Packing, Rekey, SceneRecords
from penstock.scenes.settings import Names
from penstock.scenes.site_figures import KeyedFigures, SiteFigures
from tests.scenes.flows import EPOCH, arrival

PATTERN = "(?P<site>[^/]+)/(?P<member>.+)"
TOPICS = Names("predictions", "scenes", "late", "by-site", "changelog")
LISTED = {"s": ["a", "b", "c"]}


class Crash(Exception):
    """The worker dies here."""


class Kafka:
    """Keeps what was sent, in order; dies before record number `dies_at`. An offset is of a topic
    and a partition; the changelog is read as Kafka would give it. A record has `most_bytes`.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes, bytes | None]] = []
        self.changelog: list[Logged] = []
        self.dies_at: int | None = None
        self.most_bytes = 1_000_000

    def fits(self, topic: str, key: bytes, value_bytes: int) -> bool:
        return len(key) + value_bytes <= self.most_bytes

    async def __call__(self, records: Sequence[Out], /) -> Awaitable[Sequence[int]]:
        offsets = [self.append(out) for out in records]
        done: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        done.set_result(offsets)
        return done

    def append(self, out: Out) -> int:
        assert self.fits(out.topic, out.key, len(out.value or b"")), "MessageSizeTooLarge"
        if out.key != CLAIM_KEY:
            if self.dies_at is not None and len(self.log) >= self.dies_at:
                raise Crash
            self.log.append((out.topic, out.key, out.value))
        if out.topic != "changelog":
            return 0
        assert out.partition is not None
        offset = sum(each.partition == out.partition for each in self.changelog)
        self.changelog.append(Logged(out.partition, offset, out.key, out.value))
        return offset

    async def read(
        self, ends: Mapping[int, int], begins: Mapping[int, int] | None = None
    ) -> AsyncIterator[Logged]:
        for each in self.changelog:
            begin = 0 if begins is None else begins[each.partition]
            if begin <= each.offset < ends.get(each.partition, 0):
                yield each

    def of(self, topic: str) -> list[bytes]:
        return [value for name, _, value in self.log if name == topic and value is not None]


def ledger_on(
    kafka: Kafka,
    rules: Rules,
    now_ms: Callable[[], int],
    is_behind: Callable[[], bool] = lambda: False,
) -> SiteLedger:
    late = LateTopic(TOPICS.late, kafka.fits, is_dropped=rules.late == "drop")
    return SiteLedger(
        rules=rules,
        rekey=Rekey(SiteStreams(PATTERN), TOPICS.by_site, late, kafka.fits, KeyedFigures(now_ms)),
        packing=Packing(SceneRecords(), late, TOPICS, kafka.fits),
        names=TOPICS,
        send=kafka,
        changelog=kafka,
        figures=SiteFigures(now_ms),
        now_ms=now_ms,
        is_behind=is_behind,
    )


class World:
    """A worker after another on one Kafka, with one clock."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.kafka = Kafka()
        self.rules = rules or Rules(listed=LISTED)
        self.now = EPOCH
        self.is_behind = False
        self.last: SiteLedger | None = None

    def ledger(self) -> SiteLedger:
        return ledger_on(self.kafka, self.rules, lambda: self.now, lambda: self.is_behind)

    async def worker(self) -> SiteLedger:
        ledger = self.ledger()
        await ledger.take_over([3])
        return ledger


def said(member: str, step: int, late_ms: int = 0) -> Keyed:
    time = EPOCH + step * 50
    return Keyed(3, "s", arrival(member, step, 0, time, time).value, time + late_ms, step)
