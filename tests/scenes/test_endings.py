"""Sites that have ended cost nothing: no memory, no look, no record that is published again."""

import pytest

from penstock.errors import Fatal
from penstock.scenes.changelog import CLAIM_BYTES, Out
from penstock.scenes.core.decision_time import Due
from penstock.scenes.core.rules import Rules
from penstock.scenes.ledger import Keyed
from tests.scenes.flows import EPOCH, arrival
from tests.scenes.world import Crash, World

FORGET_MS = 60_000
RULES = Rules(forget_ms=FORGET_MS, listed={"waits": ["a", "b"]}, lease_ms=550)


def spoken(site: str, step: int = 0, partition: int = 3) -> Keyed:
    time = EPOCH + step * 50
    value = arrival("a", step, 0, time, time).value.replace(b"s/a", f"{site}/a".encode())
    return Keyed(partition, site, value, time, step)


async def once_spoken(world: World, sites: int) -> None:
    worker = await world.worker()
    for number in range(sites):
        await worker.handle([spoken(f"s{number}")])
    world.now += 600
    await worker.tick()
    world.last = worker


async def test_a_site_that_is_silent_ends_and_leaves_a_tombstone() -> None:
    world = World(RULES)
    await once_spoken(world, 3)
    assert world.last is not None
    world.now = EPOCH + FORGET_MS - 1
    await world.last.tick()
    assert len(world.last.sites) == 3
    world.now += 1
    await world.last.tick()
    assert not world.last.sites
    assert list(world.last.looks(10)) == []
    assert {each.key: each.value for each in world.kafka.changelog if each.key} == dict.fromkeys(
        (b"s0", b"s1", b"s2")
    )
    assert not (await world.worker()).sites
    # It may come back, as one that is new.
    again = await world.worker()
    await again.handle([spoken("s1", 2_000)])
    assert again.sites.keys() == {"s1"}


async def test_what_it_costs_to_look_is_what_is_due() -> None:
    world = World(RULES)
    await once_spoken(world, 500)
    assert world.last is not None
    sites = world.last.sites
    world.now += 1_000
    await world.last.tick()  # all leases have run out
    before = {name: site.state.now for name, site in sites.items()}
    for _ in range(3_000):
        world.now += 10
        await world.last.tick()
    assert {name: site.state.now for name, site in sites.items()} == before, "none was looked at"
    looks = set()
    await world.last.handle([spoken("waits", 1_000)])
    for _ in range(60):
        world.now += 10
        await world.last.tick()
        looks |= {(name, site.state.now) for name, site in sites.items()} - before.items()
    assert {name for name, _ in looks} == {"waits"}
    assert len(looks) == 3, "when it arrived, when its patience was over, when a lease ran out"


async def test_a_restart_publishes_again_what_the_last_batch_decided_and_no_more() -> None:
    world = World(RULES)
    await once_spoken(world, 50)
    before = len(world.kafka.of("scenes"))
    assert before == 50
    await world.worker()
    assert len(world.kafka.of("scenes")) - before == 50, "all of them were closed by one tick"
    worker = await world.worker()
    await worker.handle([spoken("s1", 1_000)])
    for _ in range(3):
        before = len(world.kafka.of("scenes"))
        await world.worker()
        assert len(world.kafka.of("scenes")) == before + 1


async def test_a_restart_forgets_nothing_that_was_decided_and_not_published() -> None:
    """The worker dies when it publishes; so does the next one, and the one after that."""
    world = World(RULES)
    first = await world.worker()
    await first.handle([spoken("s0"), spoken("s1")])
    world.now += 600
    world.kafka.dies_at = len(world.kafka.log) + 2  # both states are written, no scene is
    with pytest.raises(Crash):
        await first.tick()
    for published in (1, 2):
        world.kafka.dies_at = len(world.kafka.log) + published - 1
        with pytest.raises(Crash):
            await world.worker()
    world.kafka.dies_at = None
    await world.worker()
    assert len(set(world.kafka.of("scenes"))) == 2


async def test_a_worker_that_was_frozen_ends_no_site_of_its_follower() -> None:
    world = World(RULES)
    await once_spoken(world, 2)
    asleep, follower = world.last, await world.worker()
    assert asleep is not None
    await follower.handle([spoken("s0", 1_000)])
    world.now = EPOCH + FORGET_MS
    with pytest.raises(Fatal, match="taken over partition 3"):
        await asleep.tick()
    # A tombstone alone ends nothing, either: it does not say who wrote it.
    world.kafka.append(Out("changelog", b"s0", None, 3))
    await follower.handle([spoken("s0", 1_001)])
    last = await world.worker()
    assert {"s0", "s1"} == last.sites.keys()
    assert last.sites["s0"].state.marks, "as the follower knew it"
    records = [each.value for each in world.kafka.changelog if each.key == b"s0"]
    assert records[-1] is not None, "and it stands behind the tombstone"
    assert len(records[-1]) > CLAIM_BYTES


async def test_what_a_frozen_worker_wrote_of_a_site_that_ended_since_is_removed_again() -> None:
    world = World(RULES)
    await once_spoken(world, 2)
    old = next(each.value for each in world.kafka.changelog if each.key == b"s0")
    worker = await world.worker()
    world.now = EPOCH + 3 * FORGET_MS
    await worker.tick()
    assert not worker.sites
    world.kafka.append(Out("changelog", b"s0", old, 3))
    await worker.handle([spoken("s9", 1)])
    assert [each.value for each in world.kafka.changelog if each.key == b"s0"][-1] is None
    world.kafka.append(Out("changelog", b"s1", old, 3))
    assert (await world.worker()).sites.keys() == {"s9"}
    assert [each.value for each in world.kafka.changelog if each.key == b"s1"][-1] is None


def test_due_gives_each_name_once_at_its_earliest_time() -> None:
    due = Due()
    for name, at in (("a", 30), ("b", 20), ("a", 10), ("a", 25), ("c", 40)):
        due.put(name, at)
    assert due.take(9) == []
    assert due.take(20) == ["a", "b"]
    assert due.take(39) == []
    due.put("a", 50)
    assert due.take(100) == ["c", "a"]
