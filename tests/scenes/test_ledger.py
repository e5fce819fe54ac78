"""Decide, write down, publish: a crash at any point repeats the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

import pytest

from consumers.errors import Fatal
from consumers.scenes.boundary import Logged, Out
from consumers.scenes.changelog import CLAIM_BYTES, CLAIM_KEY
from consumers.scenes.judge import Judge
from consumers.scenes.ledger import Keyed, Ledger, Topics, WaitingClock
from consumers.scenes.picture import Pictures
from consumers.scenes.rekey import forward
from consumers.scenes.rules import Rules, Streams
from consumers.scenes.state import load
from consumers.scenes.watch import Watch
from schemas.scene import decode_late, decode_scene
from tests.scenes.flows import EPOCH, arrival

PATTERN = "(?P<site>[^/]+)/(?P<member>.+)"
TOPICS = Topics("scenes", "late", "changelog")
LISTED = {"s": ["a", "b", "c"]}


class Crash(Exception):
    """The worker dies here."""


class Kafka:
    """Keeps what was sent, in order; dies before record number `dies_at`. An offset is of a topic
    and a partition; the changelog is read as Kafka would give it.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes, bytes]] = []
        self.changelog: list[Logged] = []
        self.dies_at: int | None = None

    async def __call__(self, records: Sequence[Out], /) -> Awaitable[Sequence[int]]:
        offsets = [self.append(out) for out in records]
        done: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        done.set_result(offsets)
        return done

    def append(self, out: Out) -> int:
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
        return [value for name, _, value in self.log if name == topic]


class World:
    """A worker after another on one Kafka, with one clock."""

    def __init__(self) -> None:
        self.kafka = Kafka()
        self.now = EPOCH
        self.is_behind = False
        self.last: Ledger | None = None

    async def worker(self) -> Ledger:
        ledger = Ledger(
            Rules(listed=LISTED),
            Streams(PATTERN),
            Pictures(),
            TOPICS,
            self.kafka,
            self.kafka,
            Watch(lambda: self.now),
            lambda: self.now,
            lambda: self.is_behind,
        )
        await ledger.take_over([3])
        return ledger


def said(member: str, step: int, late_ms: int = 0) -> Keyed:
    time = EPOCH + step * 50
    return Keyed(3, "s", arrival(member, step, 0, time, time).value, time + late_ms)


BATCHES = [
    [said("a", 0), said("b", 0), said("c", 0), said("a", 1)],
    [said("b", 1), said("a", 2), said("a", 3)],
    [said("c", 1), said("b", 2), said("b", 3), said("c", 2)],
    [said("c", 3), said("a", 4)],
]


async def lived(world: World, *, dies_at: int | None = None) -> None:
    """All batches, with one death; what was not acknowledged is read again."""
    world.kafka.dies_at = dies_at
    batches = list(BATCHES)
    while batches:
        try:
            worker = await world.worker()
            while batches:
                world.now += 60
                await worker.handle(batches[0])
                await worker.tick()
                batches.pop(0)
            world.now += 1_000
            await worker.tick()
        except Crash:
            world.kafka.dies_at = None


def judged(kafka: Kafka) -> Judge:
    judge = Judge(Streams(PATTERN), drops=False)
    for batch in BATCHES:
        for keyed in batch:
            judge.prediction("", keyed.value, keyed.recorded_ms)
    for value in kafka.of("scenes"):
        judge.scene(value, EPOCH)
    for value in kafka.of("late"):
        judge.late(value)
    return judge


@pytest.mark.parametrize("dies_at", [None, *range(1, 16)])
async def test_a_crash_at_any_point_contradicts_nothing(dies_at: int | None) -> None:
    world = World()
    await lived(world, dies_at=dies_at)
    world.kafka.dies_at = None
    worker = await world.worker()
    world.now += 1_000
    await worker.tick()
    report = judged(world.kafka).report()
    assert report.ok, report.examples
    assert report.in_scenes + report.late == 13


async def test_a_decision_is_written_down_before_it_is_published() -> None:
    world = World()
    await lived(world)
    for at, (topic, _, value) in enumerate(world.kafka.log):
        if topic != "changelog":
            before = [each for name, _, each in world.kafka.log[:at] if name == "changelog"]
            assert (topic, value) in load(before[-1][CLAIM_BYTES:]).outbox


async def test_a_state_that_cannot_be_read_ends_the_worker_before_it_decides() -> None:
    world = World()
    await lived(world)
    last = world.kafka.changelog[-1]
    world.kafka.append(Out("changelog", last.key, last.value[:CLAIM_BYTES] + b"\xff" * 20, 3))
    written = len(world.kafka.of("scenes"))
    with pytest.raises(Fatal, match="is of another version of penstock"):
        await world.worker()
    assert len(world.kafka.of("scenes")) == written


async def test_what_was_read_before_a_rebalance_is_left_to_the_new_owner() -> None:
    world = World()
    worker = await world.worker()
    await worker.give_up()
    handling = asyncio.ensure_future(worker.handle(BATCHES[0]))
    await asyncio.sleep(0)
    assert not handling.done(), "it waits until the changelog is read"
    await worker.take_over([4])
    await handling
    assert world.kafka.log == []


async def test_a_worker_that_was_taken_over_from_publishes_nothing_more() -> None:
    world = World()
    asleep = await world.worker()
    await asleep.handle(BATCHES[0])
    await world.worker()
    published = world.kafka.of("scenes")
    world.now += 1_000
    with pytest.raises(Fatal, match="taken over partition 3"):
        await asleep.tick()
    assert world.kafka.of("scenes") == published


async def test_what_it_wrote_is_void_for_its_follower_and_for_the_next() -> None:
    world = World()
    asleep = await world.worker()
    await asleep.handle(BATCHES[0])
    follower = await world.worker()
    world.now += 1_000
    with pytest.raises(Fatal):
        await asleep.tick()  # closes what the follower completes
    await follower.handle(BATCHES[1])
    await follower.handle(BATCHES[2])
    last = await world.worker()
    await last.handle(BATCHES[3])
    world.now += 1_000
    await last.tick()
    report = judged(world.kafka).report()
    assert report.ok, report.examples
    scenes = {scene.time: scene for scene in map(decode_scene, world.kafka.of("scenes"))}
    assert scenes[EPOCH + 50].members["b"].status == "present", "as the follower decided it"


async def test_the_next_worker_writes_anew_what_a_void_record_hides() -> None:
    world = World()
    asleep = await world.worker()
    await asleep.handle(BATCHES[0])
    await world.worker()
    with pytest.raises(Fatal):
        await asleep.handle(BATCHES[1])
    before = len(world.kafka.of("changelog"))
    await world.worker()
    assert len(world.kafka.of("changelog")) == before + 1


def test_what_has_no_site_goes_to_the_late_topic() -> None:
    streams = Streams(PATTERN)
    value = arrival("a", 1, 0, EPOCH, EPOCH).value
    assert forward(streams, value, "p/0/1").site == "s"
    alone = forward(streams, value.replace(b"s/a", b"alone"), "p/0/1")
    assert (alone.site, decode_late(alone.value).reason) == (None, "no_site")
    for wrong in (None, b"", b"{", b"\xff"):
        broken = decode_late(forward(streams, wrong, "p/0/1").value)
        assert (broken.id, broken.reason) == ("p/0/1", "unreadable")


def test_the_judge_finds_what_is_wrong() -> None:
    world = World()
    asyncio.run(lived(world))
    scenes = world.kafka.of("scenes")
    for rule, wrong in {
        "scene twice with other content": [*scenes, scenes[0].replace(b"complete", b"deadline")],
        "scene out of order": [*scenes[1:], scenes[0]],
        "in no place": scenes[1:],
        "in two places": [*scenes, scenes[0].replace(b"%d" % EPOCH, b"%d" % (EPOCH + 10_000))],
        "no scene": [*scenes, b"{}"],
    }.items():
        world.kafka.log = [("scenes", b"s", value) for value in wrong]
        assert rule in judged(world.kafka).report().violations


async def test_nobody_is_late_because_this_worker_is() -> None:
    world = World()
    worker = await world.worker()
    world.is_behind = True
    for keyed in BATCHES[0][:3]:
        world.now += 5_000
        await worker.handle([keyed])
        await worker.tick()
    (scene,) = [decode_scene(value) for value in world.kafka.of("scenes")]
    assert (scene.closed_by, scene.missing) == ("complete", 0)
    world.is_behind = False
    await worker.handle([said("a", 9)])
    world.now += 101
    await worker.tick()
    assert len(world.kafka.of("scenes")) == 2


def test_the_waiting_clock_does_not_jump_when_the_backlog_is_gone() -> None:
    wall, behind = [0], [True]
    clock = WaitingClock(lambda: wall[0], lambda: behind[0])
    wall[0] = 1_000
    assert clock.now() == 0
    behind[0] = False
    wall[0] = 1_010
    assert clock.now() == 10
