"""Decide, write down, publish: a crash at any point repeats the same bytes."""

import asyncio

import pytest

from penstock.errors import Fatal
from penstock.messages.scene import decode_scene
from penstock.scenes.changelog import CLAIM_BYTES, Out
from penstock.scenes.core.decision_time import WaitingClock
from penstock.scenes.core.rules import Rules, SiteStreams
from penstock.scenes.core.state import load
from penstock.scenes.judge import ScenesJudge
from penstock.scenes.ledger import Keyed, steady
from tests.scenes.flows import EPOCH, arrival
from tests.scenes.world import PATTERN, Crash, Kafka, World, said

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


def judged(kafka: Kafka) -> ScenesJudge:
    judge = ScenesJudge(SiteStreams(PATTERN), drops=False)
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
            assert (topic, value) in load((before[-1] or b"")[CLAIM_BYTES:]).outbox


async def test_a_state_that_cannot_be_read_ends_the_worker_before_it_decides() -> None:
    world = World()
    await lived(world)
    last = world.kafka.changelog[-1]
    world.kafka.append(
        Out("changelog", last.key, (last.value or b"")[:CLAIM_BYTES] + b"\xff" * 20, 3)
    )
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
        "complete without all members": [
            each.replace(b'"quorum"', b'"complete"') for each in scenes
        ],
        "wrong count of the absent": [
            each.replace(b'"evicted":0', b'"evicted":1') for each in scenes
        ],
        "without predictions and without a letter, or the reverse": [
            each[:-1] + b',"error":{"code":"result_too_large","message":""}}' for each in scenes
        ],
    }.items():
        world.kafka.log = [("scenes", b"s", value) for value in wrong]
        assert rule in judged(world.kafka).report().violations


@pytest.mark.parametrize("model", ["rows", None])
async def test_the_judge_knows_predictions_of_two_models_apart(model: str | None) -> None:
    """Both have one id, as they answer one row."""
    world = World(Rules(listed={"s": ["a", "b", "c"]}, model=model))
    worker, both = await world.worker(), []
    for keyed in BATCHES[0][:3]:
        for name in ("rows", "rows-v2"):
            value = keyed.value.replace(b'"row":0', b'"row":0,"model":"%b"' % name.encode())
            both.append(keyed._replace(value=value))
    await worker.handle(both)
    judge = ScenesJudge(SiteStreams(PATTERN), drops=False, model=model)
    for keyed in both:
        judge.prediction("", keyed.value, keyed.recorded_ms)
    scene, *_ = world.kafka.of("scenes")
    judge.scene(scene, EPOCH)
    late = world.kafka.of("late")
    for value in late[1:]:
        judge.late(value)
    report = judge.report()
    assert report.violations == {"in no place": 1}, "one is left out"
    assert report.models == {"rows": 3, "rows-v2": 3}


async def test_the_judge_finds_a_scene_by_another_model_after_one_by_ours() -> None:
    """Before it, scenes.model may have been another."""
    values = []
    for step, by in enumerate((b"rows", b"rows-v2", b"rows")):
        world = World()
        worker = await world.worker()
        for member in "abc":
            keyed = said(member, step)
            value = keyed.value.replace(b'"row":0', b'"row":0,"model":"%b"' % by)
            await worker.handle([keyed._replace(value=value)])
        values += world.kafka.of("scenes")
    for model, wrong in (("rows-v2", 1), ("rows", 1), ("other", 0)):
        judge = ScenesJudge(SiteStreams(PATTERN), drops=False, model=model)
        for value in values:
            judge.scene(value, EPOCH)
        found = judge.report().violations
        assert found.get("by another model than scenes.model", 0) == wrong, model


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


def test_time_goes_on_when_the_systems_time_jumps() -> None:
    clock = JumpingClock()
    now = steady(clock)
    assert now() == EPOCH
    clock.jumped_ms = -3_600_000
    clock.s += 1.5
    assert now() == EPOCH + 1_500
    clock.jumped_ms = 3_600_000
    assert now() == EPOCH + 1_500


class JumpingClock:
    s = 100.0
    jumped_ms = 0

    def now(self) -> float:
        return self.s

    def wall_ms(self) -> int:
        return EPOCH + round((self.s - 100) * 1000) + self.jumped_ms


async def test_of_many_sites_those_that_were_silent_longest_end_with_all_their_scenes() -> None:
    """Whoever names streams makes sites: 200,000 took 1.2 GB, and the worker left its group."""
    world = World(Rules(listed={}, max_sites=32))
    worker = await world.worker()
    for site in range(300):
        world.now += 1
        value = arrival("c", site, 0, EPOCH, world.now).value
        value = value.replace(b'"s/c"', b'"site%d/c"' % site)
        await worker.handle([Keyed(3, f"site{site}", value, world.now, site)])
        assert len(worker.sites) <= 32
        assert f"site{site}" in worker.sites
    world.now += 1_000
    await worker.tick()
    scenes = [decode_scene(value).id for value in world.kafka.of("scenes")]
    assert sorted(scenes) == sorted(f"site{site}/{EPOCH}" for site in range(300))
    left = {logged.key for logged in world.kafka.changelog if logged.value is not None}
    assert len(left) > 32  # what was written
    after = await world.worker()
    assert after.sites.keys() == worker.sites.keys()
