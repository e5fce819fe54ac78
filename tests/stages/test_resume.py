"""A worker that takes over skips what the cursor covers, and nothing else."""

import asyncio
import io
import tarfile
from collections.abc import Sequence

import orjson
import pytest

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.formats.runs import RowOptions
from penstock.formats.text.csv_dialect import CsvOptions
from penstock.ports import Answers, Commit
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end, running, until

ROWS = 2_000


def stuck_after(world: World, calls: int) -> None:
    """The model answers so many calls, then never again."""

    async def script(payloads: Sequence[Payload]) -> Answers | None:
        if len(world.model.calls) > calls:
            await asyncio.Event().wait()
        return None

    world.model.script = script


async def killed_in_the_middle(world: World) -> int:
    """Run until some batches are delivered and committed; how many rows that were."""
    world.with_settings(window=WindowLimits(100, 1 << 20, 0.010), callers=1, drain_s=0.0)
    stuck_after(world, 7)
    async with running(world):
        await until(lambda: world.published() == 700)
        await asyncio.sleep(1.0)
    world.model.script = None
    return world.published()


def rows(world: World) -> list[tuple[int, int]]:
    """(object index, row) of every record."""
    return [(int(record["id"].split("/")[3]), record["row"]) for record in world.records()]


@virtual_time
async def test_rows_before_the_cursor_are_not_repeated() -> None:
    world = World()
    world.announce("a.csv", csv(ROWS))
    delivered = await killed_in_the_middle(world)
    assert world.source.committed[0].next_offset == 0
    assert world.source.committed[0].metadata.startswith("p1:0;0.700.")
    world.model.calls.clear()
    await run_to_end(world, 1)
    assert rows(world) == [(0, row) for row in range(ROWS)]
    assert delivered == 700
    assert sum(payload.rows for call in world.model.calls for payload in call) == ROWS - 700
    assert (world.records()[-1]["last"], world.records()[-1]["rows"]) == (True, ROWS)


@virtual_time
async def test_objects_before_the_cursor_are_not_opened_again() -> None:
    world = World()
    for key in ("a.csv", "b.csv", "c.csv"):
        world.objects.put("b", key, csv(400))
    names = [{"bucket": "b", "key": key} for key in ("a.csv", "b.csv", "c.csv")]
    world.source.append(orjson.dumps({"objects": names}))
    await killed_in_the_middle(world)
    assert world.source.committed[0].metadata.startswith("p1:0;1.300.")
    world.objects.opened.clear()
    await run_to_end(world, 1)
    assert rows(world) == [(index, row) for index in range(3) for row in range(400)]
    assert [location.key for location in world.objects.opened] == ["b.csv", "c.csv"]


@virtual_time
async def test_an_object_that_changed_begins_at_its_first_row() -> None:
    world = World()
    world.announce("a.csv", csv(ROWS))
    await killed_in_the_middle(world)
    world.objects.put("b", "a.csv", csv(ROWS, start=5))
    await run_to_end(world, 1)
    again = world.records()[700:]
    assert [record["row"] for record in again] == list(range(ROWS))
    assert again[0]["prediction"] == {"sum": 10}


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        (
            RowOptions(own=(CsvOptions(header="no"),)),
            RowOptions(own=(CsvOptions(header="yes"),)),
            3,
        ),
        (RowOptions(columns=[0]), RowOptions(columns=[1]), 1),
    ],
)
def test_under_other_row_settings_an_object_begins_at_its_first_row(
    before: RowOptions, after: RowOptions, first: int
) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World().with_settings(rows=before)
        world.announce("a.csv", b"".join(b"%d,%d\n" % (row, row + 1) for row in range(ROWS)))
        await killed_in_the_middle(world)
        world.with_settings(rows=after)
        await run_to_end(world, 1)
        again = world.records()[700:]
        assert [record["row"] for record in again] == list(range(len(again)))
        assert again[0]["prediction"] == {"sum": first}

    scenario()


@virtual_time
async def test_another_member_of_an_archive_begins_at_its_first_row() -> None:
    """The row that was row 700 of one member would be skipped in the other."""
    world = World().with_settings(rows=RowOptions(member="a.csv"))
    world.announce("x.tar", tar({"a.csv": csv(ROWS), "b.csv": csv(ROWS, start=5_000)}))
    await killed_in_the_middle(world)
    world.with_settings(rows=RowOptions(member="b.csv"))
    await run_to_end(world, 1)
    again = [record["prediction"]["sum"] for record in world.records()[700:]]
    assert again == [2 * (5_000 + row) for row in range(ROWS)]


@virtual_time
async def test_limits_may_change_without_repeating_rows() -> None:
    world = World()
    world.announce("a.csv", csv(ROWS))
    await killed_in_the_middle(world)
    world.with_settings(rows=RowOptions(fail_on_bad_row=True, members=7, expansion_ratio=3))
    await run_to_end(world, 1)
    assert rows(world) == [(0, row) for row in range(ROWS)]


def tar(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


@pytest.mark.parametrize("metadata", ["nonsense", "p9:1.2.3", "p1:0;0.700.0000000000000000"])
def test_foreign_metadata_repeats_work_and_skips_none(metadata: str) -> None:
    @virtual_time
    async def scenario() -> None:
        world = World()
        world.announce("a.csv", csv(1_000))
        world.source.committed[0] = Commit(0, metadata)
        await run_to_end(world, 1)
        assert rows(world) == [(0, row) for row in range(1_000)]

    scenario()


@virtual_time
async def test_a_group_that_was_moved_with_its_metadata_skips_nothing() -> None:
    world = World()
    for _ in range(2):
        world.announce("a.csv", csv(ROWS), stream="s")
    await killed_in_the_middle(world)
    world.source.committed[0] = Commit(1, world.source.committed[0].metadata)
    await run_to_end(world, 2)
    assert [record["row"] for record in world.records()[700:]] == list(range(ROWS))


@virtual_time
async def test_the_cursor_is_only_for_the_record_it_was_made_for() -> None:
    world = World()
    world.announce("a.csv", csv(ROWS), stream="s")
    world.announce("b.csv", csv(ROWS), stream="s")
    await killed_in_the_middle(world)
    metadata = world.source.committed[0].metadata
    world.source.committed[0] = Commit(1, metadata)
    await run_to_end(world, 2)
    assert [record["row"] for record in world.records()[700:]] == list(range(ROWS))


@virtual_time
async def test_a_row_selection_is_resumed_inside_it() -> None:
    world = World()
    world.announce("a.csv", csv(ROWS), rows=[[100, 600], [900, 1500]])
    await killed_in_the_middle(world)
    await run_to_end(world, 1)
    assert rows(world) == [(0, row) for row in [*range(100, 600), *range(900, 1500)]]


@virtual_time
async def test_inline_rows_are_resumed_too() -> None:
    world = World()
    world.source.append(orjson.dumps({"stream": "s", "inline": [[n, n] for n in range(ROWS)]}))
    await killed_in_the_middle(world)
    assert world.source.committed[0].metadata.startswith("p1:0;0.700.")
    await run_to_end(world, 1)
    assert rows(world) == [(0, row) for row in range(ROWS)]


@virtual_time
async def test_a_finished_record_leaves_no_cursor_behind() -> None:
    world = World()
    world.announce("a.csv", csv(10))
    await run_to_end(world, 1)
    assert world.source.committed[0] == Commit(1, "")
