"""`output.order = "stream"`: who waits for whom, and what a worker that takes over repeats."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from penstock.core.progress.cursor import MAX_CHARS, decode
from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Transient
from penstock.ports import Answers, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, running, until

STUCK = "stuck.csv"


def by_stream(**settings: Any) -> World:
    return World().with_settings(order_by_stream=True, **settings)


def stick(world: World, key: str = STUCK) -> Callable[[], None]:
    """The store does not give this object before the returned function is called."""
    free = asyncio.Event()

    async def wait(location: Location) -> None:
        if location.key == key:
            await free.wait()

    world.objects.on_open = wait
    return free.set


def offsets(world: World) -> list[int]:
    """Of the records' sources, each once, in order of their first record."""
    return list(dict.fromkeys(record["source"]["offset"] for record in world.records()))


def assert_ordered_once(world: World, partition: int = 0) -> None:
    """Every row once, and within each stream in input order."""
    places: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for record in world.records(partition):
        _, _, offset, index, _ = record["id"].split("/")
        row = -1 if record["row"] is None else record["row"]
        places[record["stream"]].append((int(offset), int(index), row))
    for stream, numbers in places.items():
        assert numbers == sorted(set(numbers)), stream


def all_rows(world: World) -> int:
    """Nothing is parsed, because it is asked time and again."""
    return sum(b'"row":null' not in value for _, value in world.sink.topics["predictions"][0])


@virtual_time
async def test_a_stuck_object_holds_back_its_own_stream_alone() -> None:
    world = by_stream()
    free = stick(world)
    world.announce(STUCK, csv(3), stream="a")
    for number in range(20):
        world.announce(f"{number}.csv", csv(3), stream="ab"[number % 2])
    async with running(world):
        await until(lambda: len(offsets(world)) == 10)
        await asyncio.sleep(30.0)
        assert offsets(world) == list(range(2, 21, 2))
        assert world.next_offset() == 0
        free()
        await until(lambda: world.next_offset() == 21)
    assert_ordered_once(world)
    assert all_rows(world) == 63
    assert world.source.committed[0].metadata == ""


@virtual_time
async def test_streams_that_choose_their_partition_keep_their_order_and_pass_a_stuck_one() -> None:
    world = World(partitions=2, partition_of=lambda ticket: int(ticket.stream[-1]) % 2)
    world.with_settings(order_by_stream=True)
    free = stick(world)
    world.announce(STUCK, csv(3), stream="a1", partition=0)
    for number in range(24):
        for home in "12":
            stream = "ab"[number % 2] + home
            world.announce(f"{number}-{home}.csv", csv(3), stream=stream, partition=number % 2)
    async with running(world):
        await until(lambda: world.published(0) == 72 and world.published(1) == 36)
        await asyncio.sleep(30.0)
        assert {record["stream"] for record in world.records(0)} == {"a2", "b2"}
        assert {record["stream"] for record in world.records(1)} == {"b1"}
        assert (world.next_offset(0), world.next_offset(1)) == (0, 24)
        free()
        await until(lambda: world.next_offset(0) == 25)
    assert {record["stream"] for record in world.records(1)} == {"a1", "b1"}
    assert world.published(1) == 36 + 36 + 3
    for partition in range(2):
        assert_ordered_once(world, partition)


@virtual_time
async def test_a_huge_object_leaves_its_rows_while_others_pass() -> None:
    world = by_stream()
    world.announce("huge.csv", csv(20_000), stream="huge")
    for number in range(20):
        world.announce(f"{number}.csv", csv(2), stream="small")
    async with running(world):
        await until(lambda: world.next_offset() == 21)
    assert_ordered_once(world)
    ends = [record["stream"] for record in world.records() if record.get("last")]
    assert ends[-1] == "huge"


@virtual_time
async def test_a_stuck_stream_that_goes_on_being_announced_keeps_no_other_waiting() -> None:
    world = by_stream(max_objects=8)
    free = stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(400):
        world.announce(f"{number}.csv", csv(1), stream="ab"[number % 2])
    async with running(world):
        await until(lambda: len(offsets(world)) == 200)
        free()
        await until(lambda: world.next_offset() == 401)
    assert_ordered_once(world)
    assert all_rows(world) == 401


@virtual_time
async def test_objects_that_wait_for_the_byte_budget_leave_fetchers_to_other_streams() -> None:
    world = by_stream(fetchers=8, buffer_bytes=200_000)
    free = stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(16):
        world.announce(f"large-{number}.csv", csv(4_000), stream="a")
    for number in range(16):
        world.announce(f"{number}.csv", csv(500), stream="b")
    async with running(world) as pipeline:
        await until(lambda: all_rows(world) == 16 * 500)
        assert pipeline.wiring.budget.spent_bytes >= 200_000
        free()
        await until(lambda: world.next_offset() == 33)
    assert_ordered_once(world)
    assert pipeline.wiring.budget.spent_bytes == 0


async def crashed(world: World, condition: Callable[[], bool]) -> None:
    """Run until the condition holds and all that is delivered is committed, then die."""
    world.with_settings(drain_s=0.0)
    async with running(world):
        await until(condition)
        await asyncio.sleep(1.0)


@virtual_time
async def test_after_a_takeover_what_was_completed_beyond_the_head_is_not_opened_again() -> None:
    world = by_stream()
    stick(world)
    world.announce(STUCK, csv(3), stream="a")
    for number in range(10):
        world.announce(f"{number}.csv", csv(3), stream=f"b{number % 3}")
    await crashed(world, lambda: all_rows(world) == 30)
    assert world.source.committed[0] == (0, "p1:0;0.0.;1.a;;")
    world.objects.on_open = None
    world.objects.opened.clear()
    async with running(world):
        await until(lambda: world.next_offset() == 11)
    assert [location.key for location in world.objects.opened] == [STUCK]
    assert_ordered_once(world)
    assert all_rows(world) == 33


def answers_up_to(world: World, rows: int) -> None:
    """The model never answers a batch that has a row above the `rows`-th."""

    async def script(payloads: Sequence[Payload]) -> Answers | None:
        for payload in payloads:
            assert isinstance(payload, Matrix)
            if payload.values.max() >= rows:
                await asyncio.Event().wait()
        return None

    world.model.script = script


@virtual_time
async def test_after_a_takeover_every_object_goes_on_at_its_own_row() -> None:
    world = by_stream(window=WindowLimits(100, 1 << 20, 0.010), callers=64, max_objects=64)
    names = [{"bucket": "b", "key": f"{key}.csv", "stream": key} for key in "abc"]
    for key in "abcde":
        world.objects.put("b", f"{key}.csv", csv(2_000))
    world.source.append(orjson.dumps({"objects": names}))
    world.announce("d.csv", stream="d")
    world.announce("e.csv", stream="e")
    answers_up_to(world, 800)
    await crashed(world, lambda: all_rows(world) >= 5 * 400)
    delivered = all_rows(world)
    world.model.script = None
    world.model.calls.clear()
    async with running(world):
        await until(lambda: world.next_offset() == 3)
    assert_ordered_once(world)
    assert all_rows(world) == 10_000
    assert sum(one.rows for call in world.model.calls for one in call) == 10_000 - delivered


@virtual_time
async def test_objects_of_one_message_that_were_delivered_beyond_a_stuck_one_are_skipped() -> None:
    world = by_stream()
    stick(world)
    for key in (STUCK, "x.csv", "y.csv"):
        world.objects.put("b", key, csv(2))
    names = [{"bucket": "b", "key": key, "stream": key} for key in (STUCK, "x.csv", "y.csv")]
    world.source.append(orjson.dumps({"objects": names}))
    await crashed(world, lambda: all_rows(world) == 4)
    world.objects.on_open = None
    world.objects.opened.clear()
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    assert [location.key for location in world.objects.opened] == [STUCK]
    assert_ordered_once(world)


@virtual_time
async def test_what_was_not_committed_is_repeated_and_nothing_else() -> None:
    world = by_stream(commit_interval_s=1_000.0)
    stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(5):
        world.announce(f"{number}.csv", csv(1), stream="b")
    async with running(world) as pipeline:
        await until(lambda: len(offsets(world)) == 5)
        committed = pipeline.wiring.lanes[P0].account.progress
        for number in range(5, 10):
            world.announce(f"{number}.csv", csv(1), stream="b")
        await until(lambda: len(offsets(world)) == 10)
        pipeline.wiring.lanes[P0].close()
    world.source.committed[0] = committed
    world.objects.on_open = None
    async with running(world):
        await until(lambda: world.published() == 16)
    sources = [record["source"]["offset"] for record in world.records()]
    assert sources[:10] == list(range(1, 11))
    assert sorted(sources[10:]) == [0, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("message_objects", [1, 1_000])
def test_when_the_metadata_is_full_intake_waits_and_goes_on_with_the_head(
    message_objects: int,
) -> None:
    """Every second record (or object of one message) is held back, so that nothing beyond the head
    can be written as one run.
    """

    @virtual_time
    async def scenario() -> None:
        world = by_stream()
        free = stick(world)
        keys = [STUCK, *(f"{number}.csv" for number in range(3_999))]
        streams = ["a" if number % 2 == 0 else "b" for number in range(4_000)]
        for key in keys:
            world.objects.put("b", key, csv(1))
        for start in range(0, 4_000, message_objects):
            part = range(start, start + message_objects)
            names = [{"bucket": "b", "key": keys[n], "stream": streams[n]} for n in part]
            world.source.append(orjson.dumps({"objects": names}))
        async with running(world):
            await asyncio.sleep(60.0)
            stood_at = world.published()
            await asyncio.sleep(60.0)
            assert 50 < world.published() == stood_at < 1_500
            metadata = world.source.committed[0].metadata
            assert len(metadata) <= MAX_CHARS
            assert decode(metadata, 0)[1]
            free()
            await until(lambda: world.published() == 4_000)
        assert all(
            len(commit.metadata) <= MAX_CHARS
            for one in world.source.commits
            for commit in one.values()
        )
        assert_ordered_once(world)

    scenario()


@virtual_time
async def test_gaps_between_offsets_are_no_records_that_are_missing() -> None:
    world = by_stream()
    stick(world)
    for number, offset in enumerate((5, 9, 30, 31, 77)):
        key = STUCK if not number else f"{number}.csv"
        world.objects.put("b", key, csv(1))
        value = {"bucket": "b", "key": key, "stream": key}
        world.source.append(orjson.dumps(value), offset=offset)
    await crashed(world, lambda: world.published() == 4)
    assert world.source.committed[0] == (5, "p1:5;0.0.;1.48;;")
    world.objects.on_open = None
    async with running(world):
        await until(lambda: world.next_offset() == 78)
    assert sorted(offsets(world)) == [5, 9, 30, 31, 77]
    assert_ordered_once(world)


@virtual_time
async def test_a_worker_that_keeps_the_order_of_partitions_honours_what_is_completed() -> None:
    world = by_stream()
    stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(4):
        world.announce(f"{number}.csv", csv(1), stream="b")
    await crashed(world, lambda: world.published() == 4)
    world.objects.on_open = None
    world.with_settings(order_by_stream=False)
    world.announce("more.csv", csv(1), stream="c")
    async with running(world):
        await until(lambda: world.next_offset() == 6)
    assert offsets(world) == [1, 2, 3, 4, 0, 5]


@virtual_time
async def test_metadata_that_cannot_be_read_repeats_work_and_skips_none() -> None:
    world = by_stream()
    stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(4):
        world.announce(f"{number}.csv", csv(1), stream="b")
    await crashed(world, lambda: world.published() == 4)
    committed = world.source.committed[0]
    world.source.committed[0] = committed._replace(metadata=committed.metadata[:-3])
    world.objects.on_open = None
    async with running(world):
        await until(lambda: world.next_offset() == 5)
    assert sorted(record["source"]["offset"] for record in world.records()[4:]) == [0, 1, 2, 3, 4]


@virtual_time
async def test_a_rejection_keeps_its_place_in_its_stream_and_has_its_letter() -> None:
    world = by_stream()
    free = stick(world)
    world.announce(STUCK, csv(1), stream="a")
    world.announce("gone.csv", None, stream="a")
    world.announce("gone-too.csv", None, stream="b")
    async with running(world):
        await until(lambda: world.published() == 1)
        await asyncio.sleep(5.0)
        assert [letter["stream"] for letter in world.dead_letters()] == ["b"]
        free()
        await until(lambda: world.next_offset() == 3)
    assert [record["source"]["offset"] for record in world.records()] == [2, 0, 1]
    assert [letter["stream"] for letter in world.dead_letters()] == ["b", "a"]
    assert_ordered_once(world)


@virtual_time
async def test_a_drain_waits_for_what_was_begun_and_forgets_the_rest() -> None:
    world = by_stream(max_objects=4)
    world.with_settings(drain_s=2.0)
    stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(30):
        world.announce(f"{number}.csv", csv(1), stream="ab"[number % 2])
    async with running(world):
        await until(lambda: world.published() >= 5)
    world.objects.on_open = None
    async with running(world):
        await until(lambda: world.next_offset() == 31)
    assert_ordered_once(world)
    assert all_rows(world) == 31


@virtual_time
async def test_a_line_that_stops_beyond_the_head_stands_still_there_after_a_restart() -> None:
    world = by_stream(line=LineLimits(0.0, 2), drain_s=0.0)
    stick(world)
    world.announce(STUCK, csv(1), stream="a")
    for number in range(5):
        world.announce(f"gone-{number}.csv", None, stream="b")
    for _ in range(2):
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            assert "offset 3, object 0" in str(pipeline.stopped[0])
        limits = LineLimits(0.0, 2).digest
        assert world.source.committed[0] == (0, f"p1:0;0.0.;1.2;;!3.{limits}")
    assert offsets(world) == [1, 2]
    assert len(world.dead_letters()) == 2


@pytest.mark.parametrize("failing", [2, 9, 17, 30])
def test_exactly_once_stays_exact_when_a_transaction_fails(failing: int) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(exactly_once=True)
        limits = WindowLimits(100, 1 << 20, 0.010)
        world.with_settings(order_by_stream=True, window=limits, callers=1)

        async def take_a_while(_payloads: Sequence[Payload]) -> None:
            await asyncio.sleep(0.020)

        world.model.script = take_a_while
        for number in range(12):
            world.announce(f"{number}.csv", csv(50 + 450 * (number % 3)), stream=f"s{number % 5}")
        begun = 0

        async def fail_once(_partition: int) -> None:
            nonlocal begun
            begun += 1
            if begun == failing:
                raise Transient("the coordinator moved")

        world.producers.before_commit = fail_once
        async with running(world):
            await until(lambda: world.next_offset() == 12)
        assert begun > failing
        assert_ordered_once(world)
        assert all_rows(world) == 4 * (50 + 500 + 950)

    scenario()
