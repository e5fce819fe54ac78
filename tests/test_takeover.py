"""Exactly once, in memory: what readers of committed records see, whatever fails in between."""

import asyncio
from collections.abc import Sequence
from random import Random

import orjson
import pytest

from penstock.core.progress.cursor import PartitionProgress, Position
from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import EXIT_FATAL, EXIT_UNREACHABLE, Fatal, Transient, Unreachable
from penstock.pipeline.transaction_pool import PRODUCERS, SUSPECTS
from penstock.ports import Commit
from penstock.stages.settle import FENCED_WAIT_S
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.memory import MemoryProducers
from tests.support.pipelines import World, csv, run_to_end, running, until

ROWS = 2_000


def small_steps(world: World) -> World:
    """Many transactions for one object: each batch of 100 rows takes the model 20 ms."""

    async def take_a_while(_payloads: Sequence[Payload]) -> None:
        await asyncio.sleep(0.020)

    world.model.script = take_a_while
    return world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1)


def rows(world: World, partition: int = 0) -> list[int]:
    return [record["row"] for record in world.records(partition)]


class Failing:
    """Raises in the transactions of these numbers (from 1), before they commit."""

    def __init__(self, world: World, error: Exception, *numbers: int) -> None:
        self.begun = 0
        self._error = error
        self._numbers = numbers
        world.producers.before_commit = self

    async def __call__(self, _partition: int) -> None:
        self.begun += 1
        if self.begun in self._numbers or not self._numbers:
            raise self._error


@virtual_time
async def test_a_transaction_moves_the_position_with_the_rows() -> None:
    world = small_steps(World(exactly_once=True))
    world.announce("a.csv", csv(ROWS))
    await run_to_end(world, 1)
    assert rows(world) == list(range(ROWS))
    assert len(world.producers.transactions) > 1
    assert world.source.commits == []
    assert world.source.committed[0] == Commit(1, "")


@virtual_time
async def test_dead_letters_are_in_the_transaction_of_their_rows() -> None:
    world = World(exactly_once=True)
    Failing(world, Transient("no"), 1)
    world.announce("missing.csv")
    await run_to_end(world, 1)
    assert [out.topic for out in world.producers.aborted] == ["predictions", "predictions.dlq"]
    assert [letter["code"] for letter in world.dead_letters()] == ["not_found"]
    assert [record["error"]["code"] for record in world.records()] == ["not_found"]


@virtual_time
async def test_after_a_failed_transaction_the_partition_goes_on_from_the_last_one() -> None:
    world = small_steps(World(exactly_once=True))
    failing = Failing(world, Transient("the broker stumbled"), 3, 4, 9)
    world.announce("a.csv", csv(ROWS))
    world.announce("b.csv", csv(10))
    await run_to_end(world, 2)
    assert failing.begun > 9
    assert rows(world) == [*range(ROWS), *range(10)]
    assert world.producers.aborted


@virtual_time
async def test_who_is_fenced_publishes_nothing_more_and_takes_over_again_if_it_still_owns() -> None:
    world = small_steps(World(exactly_once=True))
    world.announce("a.csv", csv(ROWS))
    async with running(world) as pipeline:
        await until(lambda: world.published() >= 500)
        world.producers.expelled = True
        await until(lambda: not pipeline.wiring.lanes)
        seen = world.published()
        await asyncio.sleep(FENCED_WAIT_S / 2)
        assert world.published() == seen
        world.producers.expelled = False
        await until(lambda: world.next_offset() == 1)
    assert rows(world) == list(range(ROWS))


@virtual_time
async def test_a_worker_that_only_believes_to_own_a_partition_repeats_nothing() -> None:
    world = small_steps(World(exactly_once=True))
    world.announce("a.csv", csv(ROWS))
    frozen = asyncio.Event()

    async def freeze(_partition: int) -> None:
        if world.published() >= 500 and not frozen.is_set():
            frozen.set()
            world.producers.before_commit = None
            await asyncio.sleep(1.0)

    world.producers.before_commit = freeze
    async with running(world):
        await frozen.wait()
        world.producers.expelled = True
        heir = World(exactly_once=True)
        heir.source.records, heir.source.committed = world.source.records, world.source.committed
        heir.objects = world.objects
        heir.producers = MemoryProducers(heir.source, world.sink)
        await run_to_end(heir, 1)
    assert rows(world) == list(range(ROWS))


@virtual_time
async def test_the_position_is_read_when_earlier_transactions_are_decided_and_not_before() -> None:
    world = World(exactly_once=True)
    world.announce("a.csv", csv(10))
    world.announce("b.csv", csv(10))
    world.source.undecided.add(0)
    async with running(world) as pipeline:
        await asyncio.sleep(30.0)
        assert not pipeline.wiring.lanes
        world.source.committed[0] = Commit(1)
        world.source.undecided.clear()
        await until(lambda: world.next_offset() == 2)
    assert {record["source"]["offset"] for record in world.records()} == {1}


@virtual_time
async def test_a_lane_does_not_go_on_while_another_members_transaction_is_open() -> None:
    world = small_steps(World(exactly_once=True))
    world.announce("a.csv", csv(ROWS))
    async with running(world) as pipeline:
        await until(lambda: world.published() >= 500)
        await world.source.suspend([0])
        seen = world.published()
        world.source.undecided.add(0)
        await world.source.assign([0])
        await asyncio.sleep(10.0)
        assert (world.published(), pipeline.wiring.lanes) == (seen, {})
        world.source.committed[0] = Commit(1)
        world.source.undecided.clear()
        await until(lambda: bool(pipeline.wiring.lanes))
    assert world.published() == seen


@virtual_time
async def test_records_without_an_answer_move_the_position_too() -> None:
    world = World(exactly_once=True)
    world.source.append(orjson.dumps({"Event": "s3:TestEvent", "Service": "Amazon S3"}))
    await run_to_end(world, 1)
    assert world.records() == []
    assert world.producers.transactions == [[0]]


@virtual_time
async def test_a_drain_finishes_what_was_begun_and_the_next_owner_goes_on() -> None:
    world = small_steps(World(partitions=2, exactly_once=True))
    for key in ("a.csv", "b.csv"):
        world.announce(key, csv(ROWS), partition=0)
        world.announce(key, csv(ROWS), partition=1)
    async with running(world):
        await until(lambda: world.published() >= 300)
        await world.source.revoke([0])
        await world.source.assign([0])
        await until(lambda: world.next_offset(0) == 2 and world.next_offset(1) == 2)
    assert rows(world, 0) == rows(world, 1) == [*range(ROWS), *range(ROWS)]


@virtual_time
async def test_a_drain_past_its_time_takes_the_open_transaction_back() -> None:
    world = World(exactly_once=True).with_settings(drain_s=2.0)

    async def hang(_partition: int) -> None:
        await asyncio.Event().wait()

    world.producers.before_commit = hang
    world.announce("a.csv", csv(10))
    async with running(world):
        await until(lambda: bool(world.model.calls))
        await asyncio.sleep(1.0)
    assert world.records() == []
    assert 0 not in world.source.committed
    assert [out.topic for out in world.producers.aborted] == ["predictions"]


@virtual_time
async def test_a_partition_handed_back_while_it_is_taken_over_is_left_alone() -> None:
    world = World(exactly_once=True)
    Failing(world, Transient("no"))
    world.announce("a.csv", csv(10))
    async with running(world) as pipeline:
        await until(lambda: bool(world.producers.aborted) and not pipeline.wiring.lanes)
        await world.source.revoke([0])
        begun = world.producers.begun
        await asyncio.sleep(60.0)
        assert world.producers.begun == begun


@pytest.mark.parametrize(
    ("error", "code"),
    [(Unreachable("gone"), EXIT_UNREACHABLE), (Fatal("not allowed"), EXIT_FATAL)],
)
def test_what_does_not_pass_ends_the_worker(error: Exception, code: int) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(exactly_once=True).with_settings(broker_patience_s=20.0)
        Failing(world, error)
        world.announce("a.csv", csv(10))
        with pytest.raises(ExceptionGroup) as raised:
            async with running(world):
                await asyncio.sleep(40.0)
        fatal = raised.value
        while isinstance(fatal, ExceptionGroup):
            (fatal,) = fatal.exceptions
        assert isinstance(fatal, Fatal)
        assert fatal.exit_code == code
        assert ("no transaction for 20 s" in str(fatal)) == (code == EXIT_UNREACHABLE)
        assert world.clock.now() <= 30.0

    scenario()


MANY = 300


@virtual_time
async def test_any_number_of_partitions_shares_a_few_producers() -> None:
    world = World(partitions=MANY, exactly_once=True)
    for partition in range(MANY):
        world.announce("a.csv", csv(10), partition=partition)
    async with running(world):
        await until(lambda: all(world.next_offset(number) == 1 for number in range(MANY)))
    assert world.producers.opened == PRODUCERS
    assert len(world.producers.transactions) < MANY
    assert all(rows(world, number) == list(range(10)) for number in range(MANY))


@virtual_time
async def test_a_transaction_that_fails_takes_all_its_partitions_back_and_each_goes_on() -> None:
    world = World(partitions=4, exactly_once=True)
    failing = Failing(world, Transient("the broker stumbled"), 3)
    for partition in range(4):
        world.announce("a.csv", csv(10), partition=partition)
    async with running(world):
        await until(lambda: all(world.next_offset(number) == 1 for number in range(4)))
    assert failing.begun > 4
    assert len(world.producers.aborted) > 1
    assert all(rows(world, number) == list(range(10)) for number in range(4))


@virtual_time
async def test_partitions_that_always_fail_keep_no_other_waiting() -> None:
    world = World(partitions=20, exactly_once=True)
    bad = range(2 * SUSPECTS)

    async def break_some(partition: int) -> None:
        if partition in bad:
            await asyncio.sleep(20.0)
            raise Transient("the leader is away")

    world.producers.before_commit = break_some
    for partition in range(20):
        world.announce("a.csv", csv(10), partition=partition)
    async with running(world):
        good = [number for number in range(20) if number not in bad]
        await until(lambda: all(world.next_offset(number) == 1 for number in good), within_s=300.0)
        # Those that failed go alone, and leave half of the producers to the others.
        for offset in range(1, 5):
            for number in good:
                world.announce("b.csv", csv(10), partition=number)
            await until(
                lambda: all(world.next_offset(number) > offset for number in good),  # noqa: B023
                within_s=1.0,
            )
        assert not any(world.next_offset(number) for number in bad)
        world.producers.before_commit = None
        await until(lambda: all(world.next_offset(number) for number in bad), within_s=300.0)


@virtual_time
async def test_a_stopped_line_says_so_in_its_last_transaction() -> None:
    world = World(exactly_once=True).with_settings(line=LineLimits(0.0, 3))
    for number in range(10):
        world.announce(f"missing-{number}.csv", stream="s")
    with pytest.raises(Fatal, match="every line is stopped"):
        await world.pipeline().run()
    assert world.published() == len(world.dead_letters()) == 3
    commit = world.source.committed[0]
    stopped_at, limits = (commit.next_offset,), LineLimits(0.0, 3).digest
    assert Position.of(commit) == Position(
        PartitionProgress(commit.next_offset), stopped_at, limits
    )
    with pytest.raises(Fatal, match="it failed here before"):
        await world.pipeline().run()
    assert world.published() == 3


@pytest.mark.parametrize("seed", range(25))
def test_each_row_is_there_once_though_calls_fail_and_another_owner_comes_between(
    seed: int,
) -> None:
    @virtual_time
    async def scenario() -> None:
        drawn = Random(seed)
        world = small_steps(World(partitions=2, exactly_once=True))
        world.with_settings(drain_s=drawn.choice((0.0, 0.05, 5.0)), order_by_stream=seed % 2 == 1)

        async def stumble(_partition: int) -> None:
            await asyncio.sleep(drawn.choice((0.0, 0.01, 0.05)))
            if drawn.random() < 0.1:
                raise Transient("the broker stumbled")

        async def disturb() -> None:
            partition = drawn.randrange(2)
            match drawn.randrange(3):
                case 0:
                    world.producers.expelled = True
                    await asyncio.sleep(drawn.choice((0.0, 0.1)))
                    world.producers.expelled = False
                case 1:
                    await world.source.revoke([partition])
                    await world.source.assign([partition])

        world.producers.before_commit = stumble
        for number in range(4):
            world.announce(f"{number}.csv", csv(500), partition=number % 2, stream="s")
            world.announce(f"missing-{number}.csv", partition=number % 2, stream="s")
        for _ in range(drawn.randint(1, 3)):
            async with asyncio.TaskGroup() as tasks:
                before = world.producers.opened
                worker = tasks.create_task(world.pipeline().run())
                await until(lambda: world.producers.opened > before)  # noqa: B023
                for _ in range(drawn.randint(1, 5)):
                    await asyncio.sleep(drawn.choice((0.0, 0.03, 0.1, FENCED_WAIT_S)))
                    await disturb()
                worker.cancel()
        world.producers.before_commit = None
        async with running(world):
            await until(lambda: world.next_offset(0) == world.next_offset(1) == 4, within_s=600.0)
        for partition in range(2):
            answers = [
                (record["source"]["offset"], record["row"]) for record in world.records(partition)
            ]
            assert answers == [
                answer
                for offset in (0, 2)
                for answer in [*((offset, row) for row in range(500)), (offset + 1, None)]
            ]
        assert len(world.dead_letters()) == 4

    scenario()


@virtual_time
async def test_a_partition_whose_transaction_fails_in_the_drain_is_not_taken_over_again() -> None:
    world = small_steps(World(partitions=2, exactly_once=True))
    world.announce("a.csv", csv(10), partition=0)
    world.announce("b.csv", csv(10), partition=1)

    async def slow_and_broken(partition: int) -> None:
        await asyncio.sleep(1.0)
        if partition == 1:
            raise Transient("the broker stumbled")

    world.producers.before_commit = slow_and_broken
    async with running(world):
        await asyncio.sleep(0.5)
        await world.source.revoke([0, 1])
        begun = world.producers.begun
        await asyncio.sleep(60.0)
        assert world.producers.begun == begun
