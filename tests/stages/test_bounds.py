"""What is held at a time has a limit, whatever is slow."""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from penstock.core.rows.blocks import Ticket
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.errors import Poison
from penstock.failures.unexpected_errors import Guards
from penstock.formats.reading import Turn
from penstock.formats.runs import RowOptions, Run
from penstock.messages.reference import Reference
from penstock.ports import Answers, Record
from penstock.stages.expand import Expand, InlineReading, Repeated
from penstock.telemetry.worker import Telemetry
from penstock.tools.simulation.virtual_time import VirtualClock, virtual_time
from tests.core.builders import StubLane
from tests.support.partitions import P0
from tests.support.pipelines import World, csv, running, until


@virtual_time
async def test_downloads_go_on_while_the_model_is_busy() -> None:
    world = World().with_settings(window=WindowLimits(4, 1 << 20, 0.0), callers=1)
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(10):
        world.announce(f"{number}.csv", csv(4))
    async with running(world):
        await until(lambda: len(world.objects.opened) == 10)
        assert len(world.model.calls) == 1
        release.set()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_the_byte_budget_stops_the_transfer_and_nothing_locks_up() -> None:
    world = World(partitions=2).with_settings(
        buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0)
    )
    world.objects.chunk_bytes = 512
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(12):
        world.announce(f"{number}.csv", csv(400), partition=number % 2)
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        # Both heads may overdraw, one chunk at a time; the others stop.
        assert pipeline.wiring.budget.peak_bytes < 400 * 264 * 2 + 20_000 + 16 * 512 * 17
        release.set()
        await until(lambda: world.next_offset(0) == 6 and world.next_offset(1) == 6)
        assert pipeline.wiring.budget.spent_bytes == 0
    assert world.published(0) == world.published(1) == 6 * 400


@virtual_time
async def test_inline_rows_wait_for_the_byte_budget_too() -> None:
    world = World(partitions=8).with_settings(
        buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0)
    )
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    for number in range(8 * 64):
        rows = {"stream": f"s{number}", "inline": [[row, row] for row in range(20)]}
        world.source.append(orjson.dumps(rows), partition=number % 8)
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        # Each head may overdraw by its 20 rows of 264 bytes.
        assert pipeline.wiring.budget.peak_bytes < 20_000 + 8 * 20 * 264
        release.set()
        await until(lambda: all(world.next_offset(number) == 64 for number in range(8)))


@virtual_time
async def test_of_a_lane_that_is_over_nothing_more_is_decoded() -> None:
    decoded = 0

    def endless() -> Iterator[Turn]:
        nonlocal decoded
        while True:
            decoded += 1
            yield Turn([], is_last=False)

    lane = SimpleNamespace(alive=True, emit=lambda runs: None)
    rows: Any = lane
    guard = Guards(Telemetry(), VirtualClock(), raises=True).at("decode")

    async def next_step() -> None:
        lane.alive = decoded < 3

    await InlineReading(endless(), rows, guard).read(next_step)
    assert decoded <= 4


@virtual_time
async def test_a_huge_object_behind_a_slow_broker_is_held_by_the_byte_budget_too() -> None:
    world = World().with_settings(buffer_bytes=20_000, window=WindowLimits(16, 1 << 20, 0.0))
    world.objects.chunk_bytes = 512
    world.sink.hold = True
    world.announce("huge.csv", csv(5_000))
    async with running(world) as pipeline:
        await asyncio.sleep(60.0)
        # Above the limit: one chunk of about 30 rows of 264 bytes, and one that is not yet decided.
        assert pipeline.wiring.budget.peak_bytes < 20_000 + 2 * 100 * 264
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 1)
    assert world.published() == 5_000


@virtual_time
async def test_no_more_objects_of_a_partition_are_begun_than_allowed() -> None:
    world = World().with_settings(max_objects=3)
    world.sink.hold = True
    for number in range(10):
        world.announce(f"{number}.csv", csv(1))
    async with running(world):
        await asyncio.sleep(1.0)
        assert len(world.objects.opened) == 3
        world.sink.hold = False
        world.sink.deliver()
        await until(lambda: world.next_offset() == 10)


@virtual_time
async def test_no_more_rows_of_an_object_are_read_ahead_than_are_soon_needed() -> None:
    world = World().with_settings(buffer_bytes=1 << 30)
    world.objects.chunk_bytes = 4096
    release = asyncio.Event()

    async def stuck(payloads: Sequence[Payload]) -> Answers | None:
        await release.wait()
        return None

    world.model.script = stuck
    world.announce("huge.csv", csv(100_000))
    async with running(world) as pipeline:
        await asyncio.sleep(5.0)
        assert pipeline.wiring.budget.spent_bytes < 10_000 * 264
        release.set()
        await until(lambda: world.next_offset() == 1)


async def test_an_object_ends_where_its_records_would_repeat_too_much() -> None:
    """All records of an object may have 256 MiB, or 200 times the bytes of object and message."""
    attributes = {"about": "x" * 60_000}
    most = (256 << 20) // (len(orjson.dumps(attributes) + b'"a.csv""s"') - 256)

    async def next_step() -> None:
        return

    def reading(ticket: Ticket, rows: int) -> InlineReading:
        microbatch: Any = SimpleNamespace(add=lambda block: None)
        guards = Guards(Telemetry(), VirtualClock(), raises=True)
        expand = Expand(RowOptions(), microbatch, guards, 1 << 20)
        found = expand.begin_inline(ticket, expand.claim(ticket)[0], csv(rows))
        assert found is not None
        return found

    def ticket_of(**more: Any) -> Ticket:
        reference = Reference(bucket="b", key="a.csv", **more)
        return Ticket(StubLane(), Record(P0, 0, None, b"", 0), 0, "s", reference)

    # The second time it is a later try, which ends at the same row.
    for start in (0, most - 5):
        ticket = ticket_of(attributes=attributes)
        ticket.next_row = start
        with pytest.raises(Poison) as caught:
            await reading(ticket, most + 9).read(next_step)
        assert (caught.value.code, caught.value.stage) == ("too_large", "expand")
        assert ticket.next_row == most
        assert ticket.head is not None
        assert ticket.tail is not None
        assert (ticket.head.first_row, ticket.tail.first_row + ticket.tail.rows) == (start, most)
    # It fits, it repeats little, or nobody asked for all of its rows.
    for ticket, rows in (
        (ticket_of(attributes=attributes), most),
        (ticket_of(), most + 9),
        (ticket_of(attributes=attributes, rows=((9, None),)), most + 9),
    ):
        await reading(ticket, rows).read(next_step)
        assert ticket.next_row == rows


def test_the_names_of_members_count_for_each_row() -> None:
    def answered(size: int, *members: str | None) -> list[int]:
        reference = Reference(bucket="b", key="a.tar.gz")
        ticket = Ticket(StubLane(), Record(P0, 0, None, b"", 0), 0, "s", reference)
        repeated = Repeated(ticket, size, 200)
        return [repeated.add(100_000, member, None) for member in members]

    # Each row counts as 256 bytes already, so short names cost nothing more. A name of control
    # characters has six times as many bytes in JSON.
    assert answered(4_000, *["short"] * 11) == [100_000] * 11
    long = "\x01" * 4_096
    most = (256 << 20) // (len(long) * 6 + len(b'"s""a.tar.gz"""') - 256)
    assert answered(4_000, long, long, "short") == [most, 0, 100_000]
    # A large object may make more, and an object whose size is not known may make any amount.
    assert answered(20_000_000, long) == [100_000]
    assert answered(-1, long) == [100_000]


def test_why_rows_are_bad_counts_for_each_row() -> None:
    reference = Reference(bucket="b", key="a.csv")
    ticket = Ticket(StubLane(), Record(P0, 0, None, b"", 0), 0, "s", reference)
    repeated = Repeated(ticket, 4_000, 200)
    assert repeated.add(1_000_000, None, "a short reason") == 1_000_000
    long = "\x01" * 4_096  # as a column's name may be
    most = (256 << 20) // (len(long) * 6 + len(b'"s""a.csv"""') - 256)
    assert repeated.add(1_000_000, None, long) == most
    assert repeated.add(1_000_000, None, None) == 1_000_000


@pytest.mark.parametrize("is_good", [True, False])
async def test_the_name_of_a_member_is_in_the_budget(is_good: bool) -> None:
    async def next_step() -> None:
        return

    async def cost_of(member: str) -> int:
        reference = Reference(bucket="b", key="a.tar")
        ticket = Ticket(StubLane(), Record(P0, 0, None, b"", 0), 0, "s", reference)
        microbatch: Any = SimpleNamespace(add=lambda block: None)
        guards = Guards(Telemetry(), VirtualClock(), raises=True)
        rows = Expand(RowOptions(), microbatch, guards, 1 << 20)._rows(ticket, 9)
        payload = Matrix(np.ones((1, 1), np.float32)) if is_good else None
        turns = iter([Turn([Run(1, payload, None if is_good else "bad", member)], is_last=True)])
        await InlineReading(turns, rows, guards.at("decode")).read(next_step)
        assert ticket.head is not None
        return ticket.head.cost_bytes

    least = await cost_of("m")
    assert await cost_of("m" * 4_096) >= least + 4_095
    assert await cost_of("\U0001f600" * 4_096) >= least + 4 * 4_095


@virtual_time
async def test_a_letter_of_a_letter_is_no_longer_than_the_first() -> None:
    world = World()
    attributes = {"about": "x" * 1_000}
    world.announce("gone.csv", stream="s", attributes=attributes)
    async with running(world):
        for letters in range(1, 4):
            await until(lambda: world.next_offset() == letters)  # noqa: B023
            world.source.append(orjson.dumps(world.dead_letters()[-1]["reference"]))
        await until(lambda: world.next_offset() == 4)
    lengths = [len(orjson.dumps(letter)) for letter in world.dead_letters()]
    assert lengths == [lengths[0]] * 4
