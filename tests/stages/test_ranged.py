"""Objects that are read here and there, through the pipeline: order, pin, resume, failures."""

import asyncio
import bz2
import io
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.adapters.memory import MemoryObjects
from penstock.core.routing.store_choice import DEFAULT
from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Overloaded, Transient
from penstock.ports import Answers, Location, Part
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import BUCKET, World, csv, run_to_end, running, until

ROWS, GROUP = 40_000, 4_000


def parquet(rows: int = ROWS) -> bytes:
    """Row i sums to i; row groups of 64 kB, none of which lies in the tail."""
    values = {"row": np.arange(rows, dtype="f8"), "noise": np.zeros(rows)}
    out = io.BytesIO()
    options = {"compression": "none", "use_dictionary": False, "row_group_size": GROUP}
    pq.write_table(pa.table(values), out, **options)
    return out.getvalue()


def sums(world: World) -> list[float]:
    return [record["prediction"]["sum"] for record in world.records()]


def rounded(rows: range) -> list[float]:
    return [float(f"{row:g}") for row in rows]


@virtual_time
async def test_every_row_is_answered_once_in_order() -> None:
    world = World()
    world.announce("a.parquet", parquet())
    world.announce("b.csv", b"1,2\n")
    await run_to_end(world, 2)
    assert [record["row"] for record in world.records()] == [*range(ROWS), 0]
    assert sums(world)[:-1] == rounded(range(ROWS))
    assert world.records()[ROWS - 1]["rows"] == ROWS
    pins = [one.etag for one in world.objects.opened if one.key == "a.parquet"]
    assert pins[0] is None
    assert set(pins[1:]) == {'"1"'}


@virtual_time
async def test_without_an_extension_its_first_bytes_tell() -> None:
    world = World()
    world.announce("a", parquet(5000))
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == list(range(5000))


@virtual_time
async def test_a_worker_that_takes_over_fetches_only_the_row_groups_that_are_left() -> None:
    world = World()
    data = parquet()
    world.announce("a.parquet", data)
    world.with_settings(window=WindowLimits(1000, 1 << 20, 0.01), callers=1, drain_s=0.0)

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        if len(world.model.calls) > 31:
            await asyncio.Event().wait()
        return None

    world.model.script = stuck
    async with running(world):
        await until(lambda: world.published() == 31_000)
        await asyncio.sleep(1.0)
    world.model.script = None
    world.objects.parts.clear()
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == list(range(ROWS))
    left = (ROWS - 31_000 + GROUP) / ROWS * len(data)
    assert sum(nbytes for _, nbytes in world.objects.parts) < left + (64 << 10)


@virtual_time
async def test_only_the_selected_rows_are_fetched_and_answered() -> None:
    world = World()
    data = parquet()
    world.announce("a.parquet", data, rows=[[100, 200], [20_000, 20_010]])
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == [
        *range(100, 200),
        *range(20_000, 20_010),
    ]
    assert world.records()[-1]["rows"] == ROWS
    assert sum(nbytes for _, nbytes in world.objects.parts) < len(data) * 0.45


@virtual_time
async def test_a_part_that_cannot_be_had_is_tried_again_and_no_row_repeated() -> None:
    world = World()
    world.announce("a.parquet", parquet())
    world.objects.part_faults += [None, None, Transient("ill"), None, None, Transient("ill")]
    await run_to_end(world, 1)
    assert [record["row"] for record in world.records()] == list(range(ROWS))


@virtual_time
async def test_an_object_that_is_replaced_meanwhile_is_changed() -> None:
    world = World()
    world.announce("a.parquet", parquet())
    asked = 0

    async def replace(_: object) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            world.objects.put("b", "a.parquet", parquet(10))

    world.objects.on_open = replace
    await run_to_end(world, 1)
    assert world.records()[-1]["error"]["code"] == "changed"


@virtual_time
async def test_an_empty_object_has_no_rows_and_a_broken_one_is_bad_format() -> None:
    world = World()
    world.announce("a.parquet", b"")
    world.announce("b.parquet", parquet()[:-20])
    await run_to_end(world, 2)
    first, second = world.records()
    assert (first["row"], first["rows"]) == (None, 0)
    assert second["error"]["code"] == "bad_format"
    assert world.dead_letters()[0]["stage"] == "expand"


@virtual_time
async def test_a_duplicate_is_told_by_its_first_part() -> None:
    world = World().with_settings(dedupe=True)
    data = parquet()
    for _ in range(2):
        world.announce("a.parquet", data if not world.objects.parts else None)
    world.objects.parts.clear()
    await run_to_end(world, 2)
    assert world.records()[-1]["duplicate_of"] == "refs/0/0/0/0"


def of_columns(columns: int) -> bytes:
    """About 0.4 MB each."""
    random = np.random.default_rng(1)
    table = pa.table({f"c{n}": random.standard_normal(6_000) for n in range(columns)})
    out = io.BytesIO()
    pq.write_table(table, out, use_dictionary=False)
    return out.getvalue()


def test_readers_that_wait_for_rows_of_the_head_let_it_begin() -> None:
    """A budget that one reader spends, two partitions, and a single decoder."""
    data = of_columns(4)

    @virtual_time
    async def scenario() -> None:
        world = World(partitions=2, decoders=DecodersAtHand(most=1))
        world.with_settings(fetchers=4, buffer_bytes=1_000)
        for number in range(6):
            world.announce(f"{number}.parquet", data, stream="s", partition=number % 2)
        async with running(world):
            await until(lambda: [world.next_offset(n) for n in (0, 1)] == [3, 3], within_s=600.0)
        for number in (0, 1):
            rows = [record["row"] for record in world.records(number)]
            assert rows == [*range(6_000)] * 3

    scenario()


def test_who_waits_for_room_gives_its_decoder_to_the_head() -> None:
    """The head comes late: the only decoder is another object's, whose rows spend the budget."""
    data = of_columns(4)

    @virtual_time
    async def scenario() -> None:
        world = World(decoders=DecodersAtHand(most=1))
        world.with_settings(fetchers=4, buffer_bytes=1_000)
        for number in range(2):
            world.announce(f"{number}.parquet", data)

        async def late(location: Location) -> None:
            if location.key == "0.parquet":
                await asyncio.sleep(5.0)

        world.objects.on_open = late
        async with running(world):
            await until(lambda: world.next_offset() == 2, within_s=600.0)
        assert [record["row"] for record in world.records()] == [*range(6_000)] * 2

    scenario()


def test_a_small_object_that_waits_for_a_decoder_holds_no_read() -> None:
    """One read at a time, and one decoder: its object needs more reads to be done with it."""
    data = of_columns(4)

    @virtual_time
    async def scenario() -> None:
        world = World(decoders=DecodersAtHand(most=1))
        world.with_settings(fetchers=2, begin_fetches={DEFAULT: 2}, inline_bytes=500)
        has_refused = False

        async def refuse_once(_: Location) -> None:
            nonlocal has_refused
            await asyncio.sleep(0.03)
            if not has_refused:
                has_refused = True
                raise Overloaded("SlowDown")

        world.objects.on_open = refuse_once
        async with running(world) as pipeline:
            world.announce("refused.csv", csv(1))
            await until(lambda: world.next_offset() == 1)
            for number in range(3):
                world.announce(f"{number}.parquet", data)
            await asyncio.sleep(0.1)  # until the first two have all seats
            world.announce("small.csv.bz2", bz2.compress(csv(2)))
            await until(lambda: world.next_offset() == 5, within_s=60.0)
            assert pipeline.wiring.reads[DEFAULT].limiter.limit == 1
        assert world.published() == 1 + 3 * 6_000 + 2

    scenario()


class Untagged(MemoryObjects):
    """A store that tells no version of an object."""

    async def open(self, location: Location) -> Any:
        body = await super().open(location)
        body.etag = None
        return body


def arrow(rows: int) -> bytes:
    table, out = pa.table({"a": np.ones(rows, "f4")}), io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def zipped(rows: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", csv(rows))
    return out.getvalue()


BY_RANGES = {"parquet": parquet, "arrow": arrow, "zip": zipped}


@pytest.mark.parametrize("store", [MemoryObjects, Untagged])
@pytest.mark.parametrize("after", [parquet(9_000), parquet(5), csv(20), b""], ids=len)
@pytest.mark.parametrize("before", BY_RANGES)
def test_an_object_replaced_after_its_first_bytes_told_the_format_is_changed(
    before: str, after: bytes, store: type[MemoryObjects]
) -> None:
    """Never damaged, and never without rows: both versions are good."""

    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(pin=False)
        world.objects = store()
        world.announce("a", BY_RANGES[before](4_000))
        replace_at_its_last_bytes(world.objects, after)
        await run_to_end(world, 1)
        [record] = world.records()
        assert (record["row"], record["error"]["code"]) == (None, "changed")
        [letter] = world.dead_letters()
        assert letter["reference"]["key"] == "a"

    scenario()


def replace_at_its_last_bytes(objects: MemoryObjects, data: bytes) -> None:
    """Just before the object is asked for its tail."""
    ask = objects.part

    async def part(location: Location, start: int, stop: int | None = None) -> Part:
        if start < 0:
            objects.put(BUCKET, location.key, data)
        return await ask(location, start, stop)

    objects.part = part  # type: ignore[method-assign]


@virtual_time
async def test_parts_of_another_version_than_was_asked_for_are_not_used() -> None:
    """As from a store that ignores `If-Match`."""
    world = World()
    world.announce("a.parquet", parquet())
    ask, asked = world.objects.part, 0

    async def part(location: Location, start: int, stop: int | None = None) -> Part:
        nonlocal asked
        asked += 1
        if asked == 3:
            world.objects.put(BUCKET, "a.parquet", parquet())
        return await ask(location._replace(etag=None), start, stop)

    world.objects.part = part  # type: ignore[method-assign]
    await run_to_end(world, 1)
    assert world.records()[-1]["error"]["code"] == "changed"
