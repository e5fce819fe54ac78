"""What is held is charged to the byte budget, and what is not read yet waits: messages, rows that
cannot be read, answers that are long.
"""

import asyncio
from collections.abc import Sequence

import orjson

from penstock.core.rows.payload import Payload
from penstock.ports import Answers, Location
from penstock.stages.encode import RELEASE_BYTES
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, running, until

MIB = 1 << 20


def stick(world: World, key: str) -> asyncio.Event:
    """The store does not give this object before the event is set."""
    free = asyncio.Event()

    async def wait(location: Location) -> None:
        if location.key == key:
            await free.wait()

    world.objects.on_open = wait
    return free


@virtual_time
async def test_bad_rows_that_differ_are_charged_and_stop_their_reader() -> None:
    world = World()
    free = stick(world, "first.csv")
    world.announce("first.csv", csv(1))
    world.announce("bad.csv", b"".join(b"x%06d,y\n" % number for number in range(200_000)))
    world.objects.chunk_bytes = 1 << 16
    async with running(world) as pipeline:
        await asyncio.sleep(30.0)
        assert MIB < pipeline.wiring.budget.spent_bytes < 2 * MIB
        free.set()
        await until(lambda: world.next_offset() == 2, within_s=600)
        assert not pipeline.wiring.budget.spent_bytes
    assert world.published() == 1 + 199_999  # the first line is a header


@virtual_time
async def test_bad_rows_between_good_ones_are_answered_in_their_places() -> None:
    world = World()
    lines = [b"%d,%d" % (row, row) if row % 3 else b"no%d" % (row % 2) for row in range(1, 3_001)]
    world.announce("a.csv", b"\n".join(lines) + b"\n")
    async with running(world):
        await until(lambda: world.next_offset() == 1)
    for number, record in enumerate(world.records()):
        row = number + 1
        assert record["row"] == number
        if row % 3:
            assert record["prediction"] == {"sum": 2 * row}
        else:
            assert record["error"]["code"] == "bad_row"


@virtual_time
async def test_long_answers_are_charged_while_they_wait_for_others() -> None:
    world = World()
    free = stick(world, "first.csv")

    async def long(payloads: Sequence[Payload]) -> Answers:
        rows = sum(payload.rows for payload in payloads)
        return Answers([b'"%b"' % (b"x" * 10_000)] * rows, {})

    world.model.script = long
    world.announce("first.csv", csv(1))
    for number in range(100):
        world.announce(f"{number}.csv", csv(100))
    async with running(world) as pipeline:
        await asyncio.sleep(30.0)
        assert MIB < pipeline.wiring.budget.spent_bytes < 64 * MIB
        free.set()
        await until(lambda: world.next_offset() == 101, within_s=600)
        assert not pipeline.wiring.budget.spent_bytes


@virtual_time
async def test_no_release_is_larger_than_its_bytes_whatever_each_record_repeats() -> None:
    world = World(partitions=2)
    largest = 0
    send = world.sink.send

    async def measured(outgoing):  # type: ignore[no-untyped-def]
        nonlocal largest
        largest = max(largest, sum(map(len, outgoing.values)))
        return await send(outgoing)

    world.sink.send = measured  # type: ignore[method-assign]
    world.announce("a.csv", csv(500), attributes={"pad": "x" * 60_000})
    async with running(world):
        await until(lambda: world.next_offset() == 1, within_s=600)
    assert 60_000 < largest <= RELEASE_BYTES
    assert [record["row"] for record in world.records()] == list(range(500))


@virtual_time
async def test_long_messages_wait_on_the_topic_while_a_quarter_of_the_budget_is_theirs() -> None:
    world = World(partitions=2)
    free = stick(world, "first.csv")
    world.announce("first.csv", csv(1))
    rows = orjson.dumps({"inline": [[1, 2]], "attributes": {"pad": "x" * 20_000}})
    for _ in range(40):
        world.source.append(rows)
    world.source.append(rows, partition=1)
    async with running(world) as pipeline:
        await asyncio.sleep(30.0)
        assert pipeline.wiring.lanes[P0].ledger.owed == 2
        assert pipeline.wiring.budget.messages_bytes < MIB
        assert world.next_offset(1) == 1
        free.set()
        await until(lambda: world.next_offset() == 41)
        assert not pipeline.wiring.budget.messages_bytes
