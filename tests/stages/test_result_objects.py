"""The answers of an object as one result object: complete before its record, in row order, and
after a crash the same again.
"""

import asyncio
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from penstock.adapters.memory import MemoryResults, MemoryUpload
from penstock.core.health.limiter import Limiter
from penstock.core.records.result_names import NameScope, ResultNames
from penstock.core.routing.model_routes import ModelRoute
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.window.window import WindowLimits
from penstock.encodings import result_formats
from penstock.errors import EXIT_UNREACHABLE, Fatal, NoAnswer, Transient
from penstock.ports import Location
from penstock.stages.result_objects import COMPARED_BYTES, ObjectResults, ResultTerms
from penstock.stages.store_reads import StoreReads
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.stages.test_resume import stuck_after
from tests.support.pipelines import World, csv, run_to_end, running, until

TEMPLATE = "s3://results/{bucket}/{key}.jsonl"
ROWS = 2_000


def writing(world: World, records: str = "objects", template: str = TEMPLATE) -> World:
    names = ResultNames(template, world.settings.labels.model, NameScope())
    terms = ResultTerms(
        names,
        result_formats.find(names.format),
        of_rows=records != "objects",
        of_objects=records != "rows",
    )
    return world.with_settings(results=terms)


def lines(world: World, key: str) -> list[dict[str, Any]]:
    data = world.results.objects["results", f"b/{key}.jsonl"]
    return [orjson.loads(line) for line in data.splitlines()]


def sums(world: World, key: str) -> list[tuple[int, Any]]:
    return [(line["row"], line["prediction"]["sum"]) for line in lines(world, key)]


@virtual_time
async def test_an_object_becomes_one_result_and_one_record() -> None:
    world = writing(World())
    world.announce("a.csv", csv(300), stream="s", event_time=7)
    await run_to_end(world, 1)
    assert sums(world, "a.csv") == [(row, 2 * row) for row in range(300)]
    assert lines(world, "a.csv")[5] == {"row": 5, "prediction": {"sum": 10}}
    data = world.results.objects["results", "b/a.csv.jsonl"]
    (record,) = world.records()
    assert record["id"] == "refs/0/0/0/-"
    assert (record["stream"], record["event_time"]) == ("s", 7)
    assert (record["row"], record["prediction"]) == (None, None)
    assert (record["last"], record["rows"]) == (True, 300)
    assert record["result"] == {
        "url": "s3://results/b/a.csv.jsonl",
        "version": "v1",
        "bytes": len(data),
        "rows": 300,
        "errors": 0,
        "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }


@pytest.mark.parametrize(("records", "rows", "ends"), [("rows", 5, 0), ("both", 5, 1)])
def test_rows_may_be_records_as_well(records: str, rows: int, ends: int) -> None:
    @virtual_time
    async def scenario() -> None:
        world = writing(World(), records)
        world.announce("a.csv", csv(5))
        await run_to_end(world, 1)
        assert sums(world, "a.csv") == [(row, 2 * row) for row in range(5)]
        found = world.records()
        assert [record["row"] for record in found] == [*range(rows), *[None] * ends]
        assert found[rows - 1]["last"]
        assert [record for record in found if "result" in record] == found[rows:]

    scenario()


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("records", ["objects", "both"])
def test_an_object_that_was_interrupted_is_written_again_from_its_first_row(
    records: str, *, exactly_once: bool
) -> None:
    """What was published of it is not published again."""

    @virtual_time
    async def scenario() -> None:
        world = writing(World(exactly_once=exactly_once), records)
        world.announce("a.csv", csv(ROWS))
        world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1, drain_s=0.0)
        stuck_after(world, 7)
        async with running(world):
            await until(lambda: "700" in world.source.committed.get(0, (0, ""))[1])
            assert not world.results.objects
        assert not world.results.begun, "what a lane leaves open is given up"
        before = world.published()
        assert before == (700 if records == "both" else 0)
        world.model.script = None
        await run_to_end(world, 1)
        assert sums(world, "a.csv") == [(row, 2 * row) for row in range(ROWS)]
        rows = [record["row"] for record in world.records()]
        assert rows == ([*range(ROWS), None] if records == "both" else [None])

    scenario()


@virtual_time
async def test_rows_that_were_only_in_a_result_are_published_once_that_is_asked_for() -> None:
    """The cursor of a result says nothing of records."""
    world = writing(World())
    world.announce("a.csv", csv(ROWS))
    world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1, drain_s=0.0)
    stuck_after(world, 7)
    async with running(world):
        await until(lambda: "700" in world.source.committed.get(0, (0, ""))[1])
    world.model.script = None
    world.with_settings(results=None)
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == list(range(ROWS))


@virtual_time
async def test_letters_of_an_interrupted_object_are_not_sent_again() -> None:
    world = writing(World(exactly_once=True))
    world.announce("a.csv", b"x,y\n" + csv(100) + b"1,oops\n" + csv(ROWS), stream="s")
    world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1, drain_s=0.0)
    stuck_after(world, 7)
    async with running(world):
        await until(lambda: "p1:" in world.source.committed.get(0, (0, ""))[1])
        await asyncio.sleep(1.0)
    world.model.script = None
    await run_to_end(world, 1)
    assert [letter["rows"] for letter in world.dead_letters()] == [[[100, 101]]]
    bad = [line for line in lines(world, "a.csv") if "error" in line]
    assert [(line["row"], line["prediction"], line["error"]["code"]) for line in bad] == [
        (100, None, "bad_row")
    ]
    (record,) = world.records()
    assert (record["result"]["rows"], record["result"]["errors"]) == (ROWS + 101, 1)


@virtual_time
async def test_nothing_is_committed_before_the_result_is_complete() -> None:
    world = writing(World())
    gate = asyncio.Event()

    async def wait(_: Location) -> None:
        await gate.wait()

    world.results.on_step = wait
    world.announce("a.csv", csv(3))
    async with running(world):
        await asyncio.sleep(5)
        assert (world.records(), world.next_offset()) == ([], 0)
        gate.set()
        await until(lambda: world.next_offset() == 1)


@virtual_time
async def test_what_cannot_be_read_has_a_record_and_no_result() -> None:
    world = writing(World())
    world.announce("gone.csv", None)
    world.source.append(b"nonsense")
    world.announce("empty.csv", b"")
    await run_to_end(world, 3)
    gone, nonsense, empty = world.records()
    assert (gone["error"]["code"], nonsense["error"]["code"]) == ("not_found", "bad_reference")
    assert "result" not in gone
    assert "result" not in nonsense
    assert (empty["result"]["rows"], empty["result"]["bytes"]) == (0, 0)
    assert list(world.results.objects) == [("results", "b/empty.csv.jsonl")]


@virtual_time
async def test_an_object_that_breaks_off_has_a_result_and_an_error() -> None:
    world = writing(World())
    world.announce("a.csv.gz", b"\x1f\x8bnonsense")
    await run_to_end(world, 1)
    (record,) = world.records()
    assert record["error"]["code"] in ("bad_archive", "bad_format")
    assert len(world.dead_letters()) == 1


@virtual_time
async def test_a_store_that_takes_nothing_ends_the_worker() -> None:
    world = writing(World())

    async def away(_: Location) -> None:
        raise Transient("the store is away")

    world.results.on_step = away
    world.announce("a.csv", csv(3))
    with pytest.raises(BaseExceptionGroup) as group:
        async with running(world):
            await asyncio.sleep(5)
    assert group.group_contains(Fatal)
    (fatal,) = group.value.subgroup(Fatal).exceptions  # type: ignore[union-attr]
    while isinstance(fatal, BaseExceptionGroup):
        fatal = fatal.exceptions[0]
    assert isinstance(fatal, Fatal)
    assert fatal.exit_code == EXIT_UNREACHABLE
    assert world.next_offset() == 0


@virtual_time
async def test_in_transactions_a_store_that_was_away_costs_a_repeat() -> None:
    world = writing(World(exactly_once=True))
    away = [Transient("the store is away")] * 2

    async def sometimes(_: Location) -> None:
        if away:
            raise away.pop()

    world.results.on_step = sometimes
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    assert world.published() == 1
    assert sums(world, "a.csv") == [(0, 0), (1, 2), (2, 4)]


class SlowToAbort(MemoryResults):
    """As a store that is away."""

    def begin(self, location: Location) -> MemoryUpload:
        upload = self.begun[location.bucket, location.key] = SlowUpload(self, location)
        return upload


class SlowUpload(MemoryUpload):
    async def abort(self) -> None:
        await asyncio.sleep(5)
        await super().abort()


@virtual_time
async def test_a_stop_gives_up_all_that_is_open_at_once() -> None:
    world = writing(World())
    world.results = SlowToAbort()
    for number in range(4):
        world.announce(f"{number}.csv", csv(ROWS), stream=f"s{number}")
    world.with_settings(
        window=WindowLimits(100, 1 << 20, 0.010), callers=1, drain_s=0.0, order_by_stream=True
    )
    stuck_after(world, 20)
    async with running(world):
        await until(lambda: len(world.results.begun) == 4)
        stopped_s = asyncio.get_running_loop().time()
    assert not world.results.begun
    assert asyncio.get_running_loop().time() - stopped_s < 10


@virtual_time
async def test_objects_that_end_together_are_written_together() -> None:
    world = writing(World(partitions=1))
    for number in range(40):
        world.announce(f"{number}.csv", csv(2), stream="s")
    await run_to_end(world, 40)
    assert len(world.results.objects) == 40
    assert [record["source"]["offset"] for record in world.records()] == list(range(40))


@pytest.mark.parametrize(("most", "begin", "reached"), [(8, {}, 8), (64, {DEFAULT: 8}, 32)])
def test_as_many_results_are_written_at_a_time_as_the_store_bears(
    most: int, begin: dict[str, int], reached: int
) -> None:
    """A number is kept; otherwise they become more while more bring more."""

    @virtual_time
    async def scenario() -> None:
        world = writing(World(partitions=4))
        world.with_settings(fetchers=most, begin_fetches=begin, max_objects=1_000)
        writes, at_most = 0, 0

        async def far(_: Location) -> None:
            nonlocal writes, at_most
            writes += 1
            at_most = max(at_most, writes)
            await asyncio.sleep(0.03)
            writes -= 1

        world.results.on_step = far
        async with running(world):
            for number in range(2_000):
                world.announce(f"{number}.csv", csv(2), partition=number % 4)
            await until(
                lambda: sum(world.next_offset(n) for n in range(4)) == 2_000, within_s=120.0
            )
        assert reached <= at_most <= most

    scenario()


@virtual_time
async def test_after_failures_large_results_are_written_as_many_at_a_time_as_before() -> None:
    told: Any = SimpleNamespace(result_written=lambda _: None, at=lambda _: None)
    terms: Any = SimpleNamespace(of_rows=False, of_objects=True, only_whole=False)
    writes = StoreReads(Limiter(8), VirtualClock())
    results = ObjectResults(MemoryResults(), terms, told, writes, told, told)

    async def complete() -> Any:
        if silent:
            raise silent.pop()
        return SimpleNamespace(bytes=COMPARED_BYTES + 1)

    silent, large = [NoAnswer("timed out")] * 3, cast("Any", SimpleNamespace(complete=complete))
    for _ in range(3):
        with pytest.raises(NoAnswer):
            await results.complete(large)
    assert writes.limiter.limit == 1
    for _ in range(8):
        await results.complete(large)
    assert writes.limiter.limit == 8


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_slow_result_holds_back_the_records_behind_it_but_no_other_result(
    *, exactly_once: bool
) -> None:
    """An object that comes later has its result before the slow one of the same partition."""

    @virtual_time
    async def scenario() -> None:
        world = writing(World(exactly_once=exactly_once))
        gate = asyncio.Event()

        async def slow(location: Location) -> None:
            if "first" in location.key:
                await gate.wait()

        world.results.on_step = slow
        async with running(world):
            for number in range(50):
                world.announce(f"{number or 'first'}.csv", csv(8), stream=f"s{number}")
                await asyncio.sleep(0.012)
            await until(lambda: len(world.results.objects) == 49)
            assert (world.records(), world.next_offset()) == ([], 0)
            gate.set()
            await until(lambda: world.next_offset() == 50)
        offsets = [record["source"]["offset"] for record in world.records()]
        assert offsets == list(range(50))

    scenario()


@virtual_time
async def test_an_object_that_is_announced_again_and_again_stands_in_nobodys_way() -> None:
    """Its results have one name, and some of them end in the same release."""
    world = writing(World(partitions=2))

    async def far(_: Location) -> None:
        await asyncio.sleep(0.03)

    world.results.on_step = far
    async with running(world):
        for number in range(60):
            world.announce("a.csv", csv(8), partition=number % 2)
            world.announce(f"{number % 3}.csv", csv(8), partition=number % 2)
            await asyncio.sleep(0.005)
        await until(lambda: (world.next_offset(), world.next_offset(1)) == (60, 60))


@virtual_time
async def test_results_under_way_are_bounded() -> None:
    """While a result is slow, no more rows leave than one and a half releases have."""
    world = writing(World().with_settings(max_objects=1_000))
    gate = asyncio.Event()

    async def slow(location: Location) -> None:
        await gate.wait()

    world.results.on_step = slow
    async with running(world):
        for number in range(60):
            world.announce(f"{number}.csv", csv(100), stream="s")
            await asyncio.sleep(0.1)
        assert 12 <= len(world.results.begun) <= 37
        gate.set()
        await until(lambda: world.next_offset() == 60)


@virtual_time
async def test_of_an_object_that_was_announced_twice_the_later_result_stays() -> None:
    world = writing(World())
    waits_s = iter((5.0, 0.0))

    async def slower_first(_: Location) -> None:
        await asyncio.sleep(next(waits_s, 0.0))

    world.results.on_step = slower_first
    async with running(world):
        world.announce("a.csv", csv(1))
        await asyncio.sleep(1.0)
        world.announce("a.csv", csv(3))
        await until(lambda: world.next_offset() == 2)
    assert len(lines(world, "a.csv")) == 3


@virtual_time
async def test_an_object_that_two_models_answer_has_a_result_and_a_record_of_each() -> None:
    both = ModelRoute(("rows", "a/b"), stream="x/*")
    world = writing(
        World().with_models(["a/b"], both), template="s3://results/{model}/{bucket}/{key}.jsonl"
    )
    world.announce("1.csv", csv(30), stream="x/1")
    world.announce("2.csv", csv(20), stream="s")
    await run_to_end(world, 2)
    told = [(record["model"], record["result"]["url"]) for record in world.records()]
    assert told == [
        ("rows", "s3://results/rows/b/1.csv.jsonl"),
        ("a/b", "s3://results/a%2Fb/b/1.csv.jsonl"),
        ("rows", "s3://results/rows/b/2.csv.jsonl"),
    ]
    written = {key: len(data.splitlines()) for (_, key), data in world.results.objects.items()}
    assert written == {
        "rows/b/1.csv.jsonl": 30,
        "a%2Fb/b/1.csv.jsonl": 30,
        "rows/b/2.csv.jsonl": 20,
    }
