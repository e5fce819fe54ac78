"""A stream with too many dead letters stops at the object it would fail next, and goes on there."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from penstock.core.progress.cursor import PartitionProgress, Position
from penstock.core.progress.line_stop import LineLimits, Word, encode_words, stream_digest
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import EXIT_FATAL, Fatal
from penstock.ports import Answers, Commit
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, run_to_end, running, until

THREE = LineLimits(0.0, 3)
# Where a line of `THREE` stops whose first three objects failed.
AT_THREE = Position(PartitionProgress(3), (3,), THREE.digest).commit
BAD = 1_000.0


def offsets(world: World, partition: int = 0) -> list[int]:
    return [record["source"]["offset"] for record in world.records(partition)]


def announce_missing(world: World, count: int) -> None:
    for number in range(count):
        world.announce(f"bad-{number}.csv", stream="bad")


def refuse_large_numbers(world: World) -> None:
    """The model rejects rows from `BAD` on."""

    async def script(payloads: Sequence[Payload]) -> Answers | None:
        values = [row[0] for part in payloads if isinstance(part, Matrix) for row in part.values]
        errors = {index: "too large" for index, value in enumerate(values) if value >= BAD}
        return Answers([b"null" if value >= BAD else b"1" for value in values], errors)

    world.model.script = script


async def stopped(world: World) -> Fatal:
    """Run until the worker ends by itself."""
    with pytest.raises(Fatal) as failure:
        async with asyncio.timeout(600.0):
            await world.pipeline().run()
    return failure.value


@virtual_time
async def test_a_stream_stops_before_the_letter_that_is_one_too_many() -> None:
    world = World().with_settings(line=THREE)
    world.announce("good.csv", csv(2), stream="bad")
    announce_missing(world, 10)
    failure = await stopped(world)
    assert offsets(world) == [0, 0, 1, 2, 3]
    assert len(world.dead_letters()) == 3
    assert world.next_offset() == 4
    assert failure.exit_code == EXIT_FATAL
    assert "stream 'bad' at refs/0, offset 4, object 0" in str(failure)
    assert "limits.dlq_consecutive is 3" in str(failure)
    assert "not_found" in str(failure)


@virtual_time
async def test_after_the_mending_it_goes_on_at_the_same_object() -> None:
    world = World().with_settings(line=THREE)
    announce_missing(world, 6)
    await stopped(world)
    for number in range(6):
        world.objects.put("b", f"bad-{number}.csv", csv(1))
    await run_to_end(world, 6)
    assert offsets(world) == [0, 1, 2, 3, 4, 5]
    assert ["error" in record for record in world.records()] == [True] * 3 + [False] * 3
    assert len(world.dead_letters()) == 3


@virtual_time
async def test_started_again_without_mending_it_stops_there_without_another_letter() -> None:
    world = World().with_settings(line=THREE)
    announce_missing(world, 10)
    for _ in range(3):
        failure = await stopped(world)
        assert len(world.dead_letters()) == 3
        assert world.next_offset() == 3
    assert "it failed here before" in str(failure)


@pytest.mark.parametrize("line", [LineLimits(0.0, 0), LineLimits(0.0, 5)])
def test_started_again_under_a_higher_limit_or_none_it_goes_on_with_letters(
    line: LineLimits,
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(line=THREE)
        announce_missing(world, 6)
        await stopped(world)
        await run_to_end(world.with_settings(line=line), 6)
        assert offsets(world) == [0, 1, 2, 3, 4, 5]
        assert world.source.committed[0] == Commit(6, "")

    scenario()


@virtual_time
async def test_once_it_passed_the_object_the_stop_is_forgotten() -> None:
    world = World().with_settings(line=THREE)
    announce_missing(world, 8)
    await stopped(world)
    assert world.source.committed[0] == AT_THREE
    world.objects.put("b", "bad-3.csv", csv(1))
    await stopped(world)
    assert offsets(world) == [0, 1, 2, 3, 4, 5, 6]
    assert len(world.dead_letters()) == 6


@virtual_time
async def test_inside_a_large_object_it_goes_on_at_the_rows_that_were_held_back() -> None:
    world = World().with_settings(
        line=LineLimits(0.0, 1), window=WindowLimits(64, 1 << 20, 0.01), callers=1
    )
    refuse_large_numbers(world)
    world.announce("a.csv", csv(1, start=int(BAD)), stream="s")
    world.announce("b.csv", csv(int(BAD) + 10), stream="s")
    await stopped(world)
    delivered = [record["row"] for record in world.records()][1:]
    assert delivered == list(range(len(delivered)))
    assert 0 < len(delivered) <= BAD
    assert world.source.committed[0].metadata.startswith(f"p1:1;0.{len(delivered)}.")
    world.model.script = None
    await run_to_end(world, 2)
    assert [record["row"] for record in world.records()][1:] == list(range(int(BAD) + 10))


@virtual_time
async def test_other_partitions_go_on_and_what_the_line_held_is_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(partitions=2).with_settings(line=THREE)
    announce_missing(world, 4)
    for number in range(20):
        world.announce(f"behind-{number}.csv", csv(50))
    with caplog.at_level(logging.ERROR):
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            for number in range(10):
                world.announce(f"{number}.csv", csv(50), partition=1)
            await until(lambda: world.next_offset(1) == 10)
            assert pipeline.wiring.budget.spent_bytes == 0
            assert pipeline.stopped[0].offset == 3
            await until(lambda: world.source.committed[0] == AT_THREE)
    assert offsets(world) == [0, 1, 2]
    # Threads of earlier tests may log, too.
    ours = [record for record in caplog.records if record.name.startswith("penstock")]
    [reason] = [record.getMessage() for record in ours]
    assert reason.startswith("line stopped: stream 'bad' at refs/0, offset 3, object 0: 4 of its")
    assert "Mend the cause, then start the worker again" in reason


@virtual_time
async def test_a_stopped_partition_is_handed_back_at_once_and_its_owner_goes_on_there() -> None:
    world = World(partitions=2).with_settings(line=THREE)
    announce_missing(world, 5)
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        began_s = world.clock.now()
        await world.source.revoke([0])
        assert world.clock.now() == began_s
        assert world.source.committed[0] == AT_THREE
        for number in (3, 4):
            world.objects.put("b", f"bad-{number}.csv", csv(1))
        await world.source.assign([0])
        await until(lambda: world.next_offset() == 5)
        assert pipeline.stopped == []


async def stuck_behind(world: World) -> Commit:
    """With order per stream: run until stream `bad` stopped while the first object of another still
    waits for the model, and is away for good. The commit after that.
    """
    world.with_settings(line=THREE, order_by_stream=True, drain_s=0.0)

    async def never(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.Event().wait()
        return None

    world.model.script = never
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
    world.model.script = None
    return world.source.committed[0]


@virtual_time
async def test_ordered_by_stream_it_is_known_which_record_stopped_the_line() -> None:
    world = World(partitions=2)
    world.announce("slow.csv", csv(1), stream="slow")
    announce_missing(world, 6)
    commit = await stuck_behind(world)
    position = Position.of(commit)
    assert (commit.next_offset, position.stopped_at, position.limits) == (0, (4,), THREE.digest)
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        assert "offset 4, object 0: it failed here before" in str(pipeline.stopped[0])
    assert len(world.dead_letters()) == 3
    for number in range(6):
        world.objects.put("b", f"bad-{number}.csv", csv(1))
    await run_to_end(world, 7)
    assert sorted(offsets(world)) == [0, 1, 2, 3, 4, 5, 6]


@virtual_time
async def test_ordered_by_stream_the_stop_is_forgotten_once_its_record_passed() -> None:
    world = World(partitions=2)
    world.announce("slow.csv", csv(1), stream="slow")
    announce_missing(world, 6)
    await stuck_behind(world)
    world.objects.put("b", "bad-3.csv", b"")
    world.objects.put("b", "bad-4.csv", b"")
    world.objects.put("b", "bad-5.csv", b"")
    hang = asyncio.Event()

    async def wait(payloads: Sequence[Payload]) -> Answers | None:
        await hang.wait()
        return None

    world.model.script = wait
    async with running(world):
        await until(lambda: "!" not in world.source.committed[0].metadata)
        assert world.next_offset() == 0
        hang.set()
        await until(lambda: world.next_offset() == 7)


ORDERS = pytest.mark.parametrize("order_by_stream", [False, True], ids=["partition", "stream"])
GUARANTEES = pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least", "exactly"])


def answered(world: World, stream: str) -> list[int]:
    return [record["source"]["offset"] for record in world.records() if record["stream"] == stream]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_ordered_by_stream_streams_stop_alone(*, exactly_once: bool) -> None:
    """As many as there are fetchers for four streams, so that each would be missed."""

    @virtual_time
    async def scenario() -> None:
        world = World(exactly_once=exactly_once)
        world.with_settings(line=THREE, order_by_stream=True, fetchers=4, max_objects=8)
        for number in range(20):
            for stream in "abcdef":
                world.announce(f"{stream}-{number}.csv", stream=stream)
            world.announce(f"good-{number}.csv", csv(3), stream="good")
        async with running(world) as pipeline:
            good = list(range(6, 140, 7))
            await until(lambda: answered(world, "good") == [at for at in good for _ in range(3)])
            assert {stop.stream for stop in pipeline.stopped} == set("abcdef")
            assert [stop.offset for stop in pipeline.stopped] == [21, 22, 23, 24, 25, 26]
            assert pipeline.wiring.budget.spent_bytes == 0
            for stream in "abcdef":
                assert len(answered(world, stream)) == 3
            await until(lambda: "!" in world.source.committed.get(0, Commit(0)).metadata)
            assert len(world.dead_letters()) == 18
        for number in range(3, 20):
            for stream in "abcdef":
                world.objects.put("b", f"{stream}-{number}.csv", csv(1))
        await run_to_end(world, 140)
        assert world.source.committed[0] == Commit(140, "")
        for place, stream in enumerate("abcdef"):
            assert answered(world, stream) == list(range(place, 140, 7))
        assert len(answered(world, "good")) == 60

    scenario()


def say(world: World, *words: Word) -> None:
    world.source.said[0] = encode_words(words)


@ORDERS
@GUARANTEES
def test_a_line_goes_on_by_a_word_without_a_restart(
    *, order_by_stream: bool, exactly_once: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2, exactly_once=exactly_once)
        world.with_settings(line=THREE, order_by_stream=order_by_stream)
        announce_missing(world, 6)
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            say(
                world,
                Word("resume", 3, stream_digest("other"), 1),
                Word("resume", 2, stream_digest("bad"), 2),
            )
            await asyncio.sleep(60.0)
            assert offsets(world) == [0, 1, 2], "those words are about other stops"
            say(world, Word("resume", 3, stream_digest("bad"), 3))
            await asyncio.sleep(60.0)
            assert len(pipeline.stopped) == 1, "what fails still stops there again"
            for number in range(6):
                world.objects.put("b", f"bad-{number}.csv", csv(1))
            await asyncio.sleep(60.0)
            assert offsets(world) == [0, 1, 2], "a word is acted on once"
            say(world, Word("resume", 3, stream_digest("bad"), 4))
            await until(lambda: world.next_offset() == 6)
            assert pipeline.stopped == []
        assert offsets(world) == [0, 1, 2, 3, 4, 5]
        assert len(world.dead_letters()) == 3

    scenario()


@ORDERS
@GUARANTEES
def test_what_stopped_a_line_is_answered_by_its_error_where_it_is_to_be_skipped(
    *, order_by_stream: bool, exactly_once: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2, exactly_once=exactly_once)
        world.with_settings(line=THREE, order_by_stream=order_by_stream)
        announce_missing(world, 9)
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            say(world, Word("skip", 3, stream_digest("bad"), 1))
            await until(lambda: [stop.offset for stop in pipeline.stopped] == [7])
            assert offsets(world) == [0, 1, 2, 3, 4, 5, 6], "from there on it is counted anew"
            assert len(world.dead_letters()) == 7

    scenario()


@ORDERS
@GUARANTEES
def test_all_that_fails_up_to_an_offset_may_be_skipped_by_one_word(
    *, order_by_stream: bool, exactly_once: bool
) -> None:
    """Also by the next worker, if the first one ends before."""

    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2, exactly_once=exactly_once)
        world.with_settings(line=THREE, order_by_stream=order_by_stream)
        announce_missing(world, 20)
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            say(world, Word("skip", 3, stream_digest("bad"), 1, until=15))
            # From 16 on it is counted anew.
            await until(lambda: [stop.offset for stop in pipeline.stopped] == [19])
            await until(lambda: world.source.said[0].endswith("+"))
        assert offsets(world) == list(range(19))

    scenario()


@virtual_time
async def test_a_word_that_comes_while_the_partition_is_handed_back_begins_nothing() -> None:
    world = World(partitions=2, exactly_once=True)
    world.with_settings(line=THREE, order_by_stream=True, drain_s=20.0)

    async def never(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.Event().wait()
        return None

    world.model.script = never
    world.announce("good.csv", csv(3), stream="good")
    announce_missing(world, 6)
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        handing_back = asyncio.create_task(world.source.revoke([0]))
        await asyncio.sleep(0)
        say(world, Word("resume", pipeline.stopped[0].offset, stream_digest("bad"), 1))
        await handing_back
        await asyncio.sleep(60.0)
        assert not pipeline.wiring.lanes.keys() & {P0}


@virtual_time
async def test_a_word_that_nobody_heard_is_there_for_the_next_worker() -> None:
    world = World().with_settings(line=THREE)
    announce_missing(world, 5)
    await stopped(world)
    say(world, Word("skip", 3, stream_digest("bad"), 1))
    await run_to_end(world, 5)
    assert offsets(world) == [0, 1, 2, 3, 4]
    assert len(world.dead_letters()) == 5


@ORDERS
@GUARANTEES
def test_a_word_that_was_obeyed_is_not_heard_again_by_another_worker(
    *, order_by_stream: bool, exactly_once: bool
) -> None:
    """Not even if the group's position was moved back to where the line had stopped."""

    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2, exactly_once=exactly_once)
        world.with_settings(line=THREE, order_by_stream=order_by_stream)
        announce_missing(world, 5)
        world.announce("good.csv", csv(1), stream="good")
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            say(world, Word("skip", 3, stream_digest("bad"), 1))
            await until(lambda: world.next_offset() == 6)
            await until(lambda: world.source.said[0].endswith("+"))
        assert len(world.dead_letters()) == 5
        world.source.committed[0] = Commit(0)
        async with running(world) as pipeline:
            await until(lambda: len(pipeline.stopped) == 1)
            await asyncio.sleep(60.0)
            assert len(world.dead_letters()) == 8, "it stops again, and stands"

    scenario()


@virtual_time
async def test_a_word_about_wherever_a_stream_stands_is_obeyed_once() -> None:
    world = World(partitions=2).with_settings(line=THREE, order_by_stream=True)
    announce_missing(world, 9)
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        say(world, Word("skip", None, stream_digest("bad"), 1))
        await until(lambda: [stop.offset for stop in pipeline.stopped] == [7])
        await asyncio.sleep(60.0)
        assert len(world.dead_letters()) == 7


@virtual_time
async def test_words_that_cannot_be_read_end_no_worker() -> None:
    world = World(partitions=2).with_settings(line=THREE)
    announce_missing(world, 5)
    world.source.said[0] = "l1:skip.3;resume.zz.0.0;\x00"
    async with running(world) as pipeline:
        await until(lambda: len(pipeline.stopped) == 1)
        await asyncio.sleep(60.0)
        world.announce("good.csv", csv(1), partition=1, stream="good")
        await until(lambda: world.next_offset(1) == 1)


@virtual_time
async def test_other_streams_of_the_partition_do_not_save_a_bad_one() -> None:
    world = World().with_settings(line=THREE)
    for number in range(8):
        world.announce(f"good-{number}.csv", csv(1), stream="good")
        world.announce(f"bad-{number}.csv", stream="bad")
    await stopped(world)
    assert len(world.dead_letters()) == 3
    assert world.next_offset() == 7


@virtual_time
async def test_a_row_without_answer_makes_its_object_count() -> None:
    world = World().with_settings(line=THREE)
    refuse_large_numbers(world)
    for number in range(5):
        world.announce(f"{number}.csv", csv(3, start=int(BAD) - 1), stream="s")
    await stopped(world)
    assert world.next_offset() == 3
    assert world.published() == 9


@virtual_time
async def test_an_answer_too_large_for_the_topic_counts_too() -> None:
    world = World().with_settings(line=THREE)

    async def long_answers(payloads: Sequence[Payload]) -> Answers | None:
        return Answers([b'"' + b"x" * 2_000_000 + b'"'] * sum(part.rows for part in payloads), {})

    world.model.script = long_answers
    for number in range(5):
        world.announce(f"{number}.csv", csv(1), stream="s")
    failure = await stopped(world)
    assert "result_too_large" in str(failure)
    assert world.published() == 3


@virtual_time
async def test_by_default_a_small_sample_stops_nothing_and_a_hundred_failures_do() -> None:
    world = World()
    announce_missing(world, 110)
    await stopped(world)
    assert len(world.dead_letters()) == 99
