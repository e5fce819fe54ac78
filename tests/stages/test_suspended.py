"""A rebalance suspends lanes: nothing leaves, and what comes back as it was left goes on."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.core.progress.line_stop import LineLimits, Word, encode_words, stream_digest
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Transient
from penstock.pipeline.life import Pipeline
from penstock.pipeline.transaction_pool import PRODUCERS
from penstock.ports import Commit
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, running, until

ROWS = 2_000
GUARANTEES = pytest.mark.parametrize("exactly_once", [False, True])


def slow(world: World) -> World:
    """Each batch of 100 rows takes the model 20 ms, so a large object is many releases."""

    async def take_a_while(_payloads: Sequence[Payload]) -> None:
        await asyncio.sleep(0.020)

    world.model.script = take_a_while
    return world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1)


def rows(world: World, partition: int = 0) -> list[tuple[int, int]]:
    return [(record["source"]["offset"], record["row"]) for record in world.records(partition)]


def all_rows(*objects: int) -> list[tuple[int, int]]:
    return [(offset, row) for offset, count in enumerate(objects) for row in range(count)]


@GUARANTEES
@virtual_time
async def test_what_comes_back_in_the_middle_of_an_object_goes_on_without_a_second_fetch(
    exactly_once: bool,
) -> None:
    world = slow(World(exactly_once=exactly_once))
    world.announce("a.csv", csv(ROWS))
    world.announce("b.csv", csv(10))
    async with running(world) as pipeline:
        await until(lambda: world.published() >= 500)
        generation = pipeline.wiring.lanes[P0].generation
        await world.source.suspend([0])
        left, position = world.published(), world.source.committed[0]
        await asyncio.sleep(1.0)
        assert (world.published(), world.source.committed[0]) == (left, position)
        world.announce("c.csv", csv(10))
        await world.source.assign([0])
        assert pipeline.wiring.lanes[P0].generation == generation
        await until(lambda: world.next_offset() == 3)
    assert rows(world) == all_rows(ROWS, 10, 10)
    assert [one.key for one in world.objects.opened] == ["a.csv", "b.csv", "c.csv"]
    assert world.producers.opened == exactly_once * PRODUCERS, "its producers are the same"


@virtual_time
async def test_answers_that_came_meanwhile_leave_at_once() -> None:
    world = slow(World())
    world.announce("a.csv", csv(ROWS))
    async with running(world):
        await until(lambda: world.published() >= 500)
        await world.source.suspend([0])
        await asyncio.sleep(10.0)
        world.model.script = asyncio.Event().wait  # type: ignore[assignment]  # no call more
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1, within_s=1.0)
    assert rows(world) == all_rows(ROWS)


@GUARANTEES
@virtual_time
async def test_what_is_lost_is_dropped_and_its_next_owner_repeats_nothing_that_was_committed(
    exactly_once: bool,
) -> None:
    world = slow(World(exactly_once=exactly_once))
    world.announce("a.csv", csv(ROWS))
    async with running(world) as pipeline:
        await until(lambda: world.published() >= 500)
        await world.source.suspend([0])
        await world.source.revoke([0])
        assert not pipeline.wiring.lanes
        assert pipeline.wiring.budget.spent_bytes == 0
        await asyncio.sleep(5.0)
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(ROWS)
    assert [one.key for one in world.objects.opened] == ["a.csv", "a.csv"]


@GUARANTEES
@virtual_time
async def test_a_partition_with_which_another_member_got_further_is_opened_anew(
    exactly_once: bool,
) -> None:
    world = slow(World(exactly_once=exactly_once))
    for name in "abc":
        world.announce(f"{name}.csv", csv(300))
    async with running(world):
        await until(lambda: world.published() >= 100)
        await world.source.suspend([0])
        left = rows(world)
        world.source.committed[0] = Commit(2)
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 3)
    assert rows(world) == [*left, *((2, row) for row in range(300))]


@virtual_time
async def test_an_expelled_member_whose_commit_did_not_count_repeats() -> None:
    world = World()
    world.announce("a.csv", csv(10))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        await world.source.suspend([0])
        world.source.committed[0] = Commit(0)
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(10) * 2


@virtual_time
async def test_what_was_delivered_without_a_commit_is_repeated_from_the_last_commit_on() -> None:
    world = World()
    world.announce("a.csv", csv(10))

    async def away() -> None:
        raise Transient("Kafka is away")

    async with running(world):
        world.source.on_commit = away
        await until(lambda: world.published() == 10)
        await world.source.suspend([0])
        world.source.on_commit = None
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(10) * 2


@virtual_time
async def test_a_transaction_of_which_kafka_does_not_tell_yet_is_waited_for() -> None:
    world = World(exactly_once=True)
    world.announce("a.csv", csv(10))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        await world.source.suspend([0])
        world.source.undecided.add(0)
        world.announce("b.csv", csv(10))
        await world.source.assign([0])
        await asyncio.sleep(1.0)
        assert rows(world) == all_rows(10)
        world.source.undecided.clear()
        await until(lambda: world.next_offset() == 2)
    assert rows(world) == all_rows(10, 10)


@virtual_time
async def test_what_is_on_its_way_to_the_broker_is_awaited_and_committed() -> None:
    world = World()
    world.sink.hold = True
    world.announce("a.csv", csv(10))
    async with running(world) as pipeline:
        await until(lambda: bool(world.records()))
        suspending = asyncio.create_task(world.source.suspend([0]))
        await asyncio.sleep(1.0)
        assert not suspending.done()
        world.sink.deliver()
        await suspending
        assert world.next_offset() == 1
        assert pipeline.wiring.lanes[P0].suspended
        await world.source.assign([0])
    assert world.sink.forgotten == 0


@virtual_time
async def test_a_transaction_that_has_begun_is_finished_first() -> None:
    world = World(exactly_once=True)
    may = asyncio.Event()

    async def wait(_partition: int) -> None:
        await may.wait()

    world.producers.before_commit = wait
    world.announce("a.csv", csv(10))
    async with running(world):
        await asyncio.sleep(1.0)
        suspending = asyncio.create_task(world.source.suspend([0]))
        await asyncio.sleep(1.0)
        assert not suspending.done()
        may.set()
        await suspending
        assert world.next_offset() == 1
        await world.source.assign([0])
    assert rows(world) == all_rows(10)
    assert world.producers.begun == 1


async def suspended_too_late(world: World, pipeline: Pipeline) -> None:
    await world.source.suspend([0])
    assert not pipeline.wiring.lanes


@virtual_time
async def test_what_the_broker_does_not_acknowledge_in_time_is_dropped_and_begun_again() -> None:
    world = World().with_settings(drain_s=1.0)
    world.sink.hold = True
    world.announce("a.csv", csv(10))
    async with running(world) as pipeline:
        await until(lambda: bool(world.records()))
        await suspended_too_late(world, pipeline)
        assert world.sink.forgotten == 1
        world.sink.hold = False
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(10) * 2


@virtual_time
async def test_a_transaction_that_does_not_end_in_time_is_taken_back_and_begun_again() -> None:
    world = World(exactly_once=True).with_settings(drain_s=1.0)

    async def hang(_partition: int) -> None:
        await asyncio.Event().wait()

    world.producers.before_commit = hang
    world.announce("a.csv", csv(10))
    async with running(world) as pipeline:
        await asyncio.sleep(1.0)
        await suspended_too_late(world, pipeline)
        world.producers.before_commit = None
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(10)
    assert world.producers.opened == PRODUCERS + 1


@GUARANTEES
@virtual_time
async def test_a_stop_in_the_middle_of_a_rebalance_waits_for_nothing(exactly_once: bool) -> None:
    world = slow(World(exactly_once=exactly_once))
    world.announce("a.csv", csv(ROWS))
    began_s = 0.0
    async with running(world) as pipeline:
        await until(lambda: world.published() >= 500)
        await world.source.suspend([0])
        left = world.published()
        began_s = world.clock.now()
    assert world.clock.now() - began_s < 1.0
    assert world.published() == left
    assert not pipeline.wiring.lanes
    assert pipeline.wiring.budget.spent_bytes == 0


@virtual_time
async def test_a_suspended_lane_is_not_stuck() -> None:
    world = slow(World()).with_settings(stall_s=10.0)
    world.announce("a.csv", csv(ROWS))
    async with running(world):
        await until(lambda: world.published() >= 500)
        await world.source.suspend([0])
        await asyncio.sleep(60.0)
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == all_rows(ROWS)


@virtual_time
async def test_a_stream_that_stopped_stays_stopped_and_the_others_go_on() -> None:
    world = World().with_settings(line=LineLimits(0.0, 1), order_by_stream=True)
    for number in range(2):
        world.announce(f"bad-{number}.csv", stream="bad")
    async with running(world) as pipeline:
        await until(lambda: bool(pipeline.stopped))
        await world.source.suspend([0])
        await world.source.assign([0])
        offset = world.announce("good.csv", csv(10), stream="good")
        await until(lambda: (offset, 9) in rows(world))
        assert [stop.stream for stop in pipeline.stopped] == ["bad"]


@virtual_time
async def test_words_about_a_stopped_stream_are_not_lost_in_a_rebalance() -> None:
    world = World().with_settings(line=LineLimits(0.0, 1), order_by_stream=True)
    for number in range(2):
        world.announce(f"bad-{number}.csv", stream="bad")
    async with running(world) as pipeline:
        await until(lambda: bool(pipeline.stopped))
        (stop,) = pipeline.stopped
        await world.source.suspend([0])
        world.source.said[0] = encode_words(
            [Word("skip", stop.offset, stream_digest(stop.stream), 1)]
        )
        await asyncio.sleep(10.0)
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 2)


@virtual_time
async def test_a_producer_that_failed_is_opened_again_though_nothing_waits_for_it() -> None:
    """What it left open would keep readers of committed records waiting."""
    world = World(exactly_once=True)
    opened: list[int] = []

    async def note(number: int) -> None:
        opened.append(number)

    async def fail(_partition: int) -> None:
        world.producers.before_commit = None
        raise Transient("the transaction failed")

    world.producers.before_open, world.producers.before_commit = note, fail
    world.announce("a.csv", csv(10))
    async with running(world):
        await until(lambda: world.next_offset() == 1)
        assert len(opened) == len(set(opened)) + 1
    assert rows(world) == all_rows(10)
