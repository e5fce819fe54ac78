"""What is larger than a record may be leaves out predictions, says so, and ends no worker."""

import os
from base64 import b64encode
from collections.abc import Iterable

import orjson
import pytest

from penstock.messages.scene import TOO_LARGE, Late, Scene, decode_late, decode_scene
from penstock.scenes.core.rules import LatePolicy, Rules, SiteStreams
from penstock.scenes.judge import ScenesJudge, ScenesReport
from penstock.scenes.ledger import Keyed, SiteLedger
from tests.scenes.flows import EPOCH, arrival
from tests.scenes.test_rekey import rekeyed
from tests.scenes.world import PATTERN, World

MOST = 1_000_000
LISTED = {"s": ["a", "b"]}


def large(member: str, step: int, nbytes: int, *, is_error: bool = False) -> Keyed:
    """A prediction that no packing makes smaller."""
    time = EPOCH + step * 50
    record = orjson.loads(arrival(member, step, 0, time, time).value)
    record["prediction"] = {"x": b64encode(os.urandom(nbytes * 3 // 4)).decode()}
    if is_error:
        record |= {"prediction": None, "error": {"code": "bad_row", "message": "no"}}
    return Keyed(3, "s", orjson.dumps(record), time, step)


async def told(world: World, batches: Iterable[list[Keyed]], lives: int = 1) -> ScenesReport:
    """Each batch in some lives of a worker, until nothing is undecided; the judge's report."""
    judge, worker = (
        ScenesJudge(SiteStreams(PATTERN), drops=world.rules.late == "drop"),
        await world.worker(),
    )
    for batch in batches:
        for keyed in batch:
            judge.prediction("", keyed.value, keyed.recorded_ms)
        world.now += 50
        await worker.handle(batch)
        await worker.tick()
        for _ in range(1, lives):
            worker = await world.worker()
            await worker.handle(batch)
    await closed(world, worker)
    for value in world.kafka.of("scenes"):
        judge.scene(value, EPOCH)
    for value in world.kafka.of("late"):
        judge.late(value)
    return judge.report()


async def closed(world: World, worker: SiteLedger) -> None:
    for _ in range(20):
        world.now += 100
        await worker.tick()


def scenes(world: World) -> list[Scene]:
    return list({s.id: s for s in map(decode_scene, world.kafka.of("scenes"))}.values())


def letters(world: World) -> list[Late]:
    return [late for late in map(decode_late, world.kafka.of("late")) if late.member is None]


@pytest.mark.parametrize("together", [True, False])
async def test_a_scene_that_is_too_large_has_its_members_and_a_letter(together: bool) -> None:
    world = World(Rules(listed=LISTED))
    both = [large("a", 0, 600_000), large("b", 0, 600_000)]
    report = await told(world, [both] if together else [both[:1], both[1:]])
    assert report.ok, report.examples
    (scene,) = scenes(world)
    assert (scene.closed_by, scene.missing) == ("complete", 0)
    assert {(name, seat.status, seat.id) for name, seat in scene.members.items()} == {
        ("a", "present", "refs/97/0/0/0"),
        ("b", "present", "refs/98/0/0/0"),
    }
    assert not any(bytes(seat.prediction) for seat in scene.members.values())
    assert scene.error is not None
    assert scene.error.code == TOO_LARGE
    (letter,) = letters(world)
    assert (letter.id, letter.reason, letter.scene) == (scene.id, TOO_LARGE, scene.id)
    assert bytes(letter.record) == b"null"
    assert report.without_predictions == 1


async def test_one_large_prediction_beside_small_ones_is_published_whole() -> None:
    world = World(Rules(listed=LISTED))
    first = large("a", 0, 600_000)
    report = await told(world, [[first], [large("b", 0, 10)]])
    assert report.ok, report.examples
    (scene,) = scenes(world)
    assert scene.error is None
    assert bytes(scene.members["a"].prediction) in first.value
    assert not letters(world)


async def test_who_is_too_large_costs_no_other_scene_its_predictions() -> None:
    world = World(Rules(listed={"s": ["a", "b", "c"]}, patience_ms=1_000, deadline_ms=2_000))
    batches = [[large("a", 0, 10)], [large("a", 1, 600_000)], [large("b", 1, 600_000)]]
    report = await told(world, [*batches, [large("c", 0, 10)], [large("c", 1, 10)]])
    assert report.ok, report.examples
    assert [each.error is None for each in scenes(world)] == [True, False]


@pytest.mark.parametrize("late", ["topic", "amend", "drop"])
async def test_instant_after_instant_of_large_predictions_ends_no_life(late: LatePolicy) -> None:
    world = World(Rules(listed=LISTED, late=late))
    steps = [[large("a", n, 600_000)] for n in range(8)]
    steps += [[large("b", n, 600_000, is_error=n == 3)] for n in range(8)]
    steps += [[large("a", n, 10), large("b", n, 10)] for n in range(8, 12)]
    report = await told(world, steps, lives=2)
    assert report.ok, report.examples
    assert report.predictions == 24
    assert all(scene.error is None for scene in scenes(world)[-4:])
    bare = report.without_predictions
    assert bare
    assert len({each.id for each in letters(world)}) == (0 if late == "drop" else bare)


async def test_a_batch_of_many_scenes_that_fit_is_published_whole() -> None:
    """Together they are ten times what the changelog takes."""
    world = World(Rules(listed=LISTED))
    batch = [large(member, n, 100_000) for n in range(50) for member in "ab"]
    report = await told(world, [batch])
    assert report.ok, report.examples
    assert report.closed_by == {"complete": 50}
    assert report.without_predictions == 0


async def test_members_times_scenes_that_are_more_than_a_record_close_the_earliest() -> None:
    """Their names are long, and nothing makes them smaller."""
    names = [b64encode(os.urandom(180)).decode().replace("/", "-") for _ in range(40)]
    world = World(Rules(listed={"s": [*names, "dead"]}, patience_ms=60_000, deadline_ms=60_000))
    world.kafka.most_bytes = 30_000
    batches = [
        [
            Keyed(3, "s", arrival(name, n * 40 + at, 0, EPOCH + n * 50, EPOCH).value, EPOCH, 0)
            for at, name in enumerate(names)
        ]
        for n in range(5)
    ]
    worker = await world.worker()
    for batch in batches:
        await worker.handle(batch)
    assert worker.sites["s"].state.counts["forced"] > 0
    assert (await world.worker()).sites.keys() == {"s"}


async def test_a_made_up_name_without_end_makes_no_state_without_end() -> None:
    world = World(Rules())
    worker = await world.worker()
    for number in range(300):
        name = f"{number:04}" + b64encode(os.urandom(2_800)).decode().replace("/", "-")
        value = arrival("a", number, 0, EPOCH, EPOCH).value.replace(b"s/a", f"s/{name}".encode())
        await worker.handle([Keyed(3, "s", value, EPOCH, number)])
    assert worker.sites["s"].state.counts["crowded"] > 200
    assert (await world.worker()).sites.keys() == {"s"}


def test_a_prediction_larger_than_the_next_topic_takes_is_late_without_its_record() -> None:
    value = large("a", 0, MOST).value
    topic, key, written = rekeyed(value)
    late = decode_late(written)
    assert (topic, key, late.reason, late.member) == ("late", b"s", TOO_LARGE, "a")
    assert bytes(late.record) == b"null"
    unreadable = decode_late(rekeyed(b"{" * (MOST - 300))[2])
    assert (unreadable.id, bytes(unreadable.record)) == ("p/0/1", b"null")


async def test_a_refused_prediction_that_does_not_fit_its_letter_leaves_its_record_out() -> None:
    world = World(Rules(listed={"s": ["b"]}))
    report = await told(world, [[large("a", 0, MOST - 500)]])
    assert report.ok, report.examples
    (late,) = map(decode_late, world.kafka.of("late"))
    assert (late.id, late.reason, bytes(late.record)) == ("refs/97/0/0/0", "stranger", b"null")
