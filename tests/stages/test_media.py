"""Rows with times of their own, through the pipeline: answered, refused, the last; and damage."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from penstock.core.rows.payload import Payload
from penstock.decoders.protocol import Decoder
from penstock.decoders.simulated import DecodersAtHand
from penstock.errors import Rejected
from penstock.formats.pictures.pixels import PictureOptions, PixelOptions, png
from penstock.formats.runs import RowOptions
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.formats.recordings import recording, tone
from tests.support.pipelines import World, run_to_end

DATA = recording(tone(40_000))  # 5 s


async def refuses_the_third(payloads: Sequence[Payload]) -> Answers:
    """The row after 2 s; alone, so that nobody else is blamed."""
    rows = sum(payload.rows for payload in payloads)
    third = tone(40_000)[16_000, 0]
    if any(third in payload.values[:, 0] for payload in payloads):  # type: ignore[attr-defined]
        raise Rejected("model_rejected", "not this one")
    return Answers([b"1"] * rows, {})


@pytest.mark.parametrize(
    ("event_time", "begin_ms"),
    [
        (1_700_000_000_000, 1_700_000_000_000),
        ("2026-11-21T12:00:00.5Z", 1_795_262_400_500),
        ("2026-11-21T12:00:00.5", 1_795_262_400_500),
        (None, None),
    ],
)
@virtual_time
async def test_each_row_has_the_references_time_and_its_place(
    event_time: object, begin_ms: int | None
) -> None:
    world = World().with_settings(rows=RowOptions())
    world.model.script = refuses_the_third
    world.announce("a.wav", DATA, event_time=event_time, attributes={"room": "100 %d"})
    await run_to_end(world, 1)
    records = world.records()
    assert [record["row"] for record in records] == list(range(5))
    assert [record.get("event_time") for record in records] == [
        begin_ms and begin_ms + 1000 * row for row in range(5)
    ]
    assert [record["prediction"] for record in records] == [1, 1, None, 1, 1]
    assert records[4]["rows"] == 5
    assert all(record["attributes"] == {"room": "100 %d"} for record in records)


@virtual_time
async def test_a_recording_that_breaks_off_costs_nobody_else() -> None:
    world = World()
    world.announce("a.wav", DATA[:50_000], event_time=0)
    world.announce("b.csv", b"1,2\n")
    await run_to_end(world, 2)
    records = world.records()
    assert [(record["row"], (record.get("error") or {}).get("code")) for record in records] == [
        (0, None), (1, None), (2, None), (None, "bad_format"), (0, None),
    ]  # fmt: skip
    assert [record["event_time"] for record in records[:3]] == [0, 1000, 2000]


class SlowDecoders(DecodersAtHand):
    @asynccontextmanager
    async def lent(self, *asked: Any, **how: Any) -> AsyncIterator[Decoder]:
        async with super().lent(*asked, **how) as decoder:
            await asyncio.sleep(1)
            yield decoder


@virtual_time
async def test_a_picture_is_fetched_once_although_others_have_all_seats() -> None:
    own = (PictureOptions(image=PixelOptions(4, 3)),)
    world = World(decoders=SlowDecoders()).with_settings(rows=RowOptions(own=own), fetchers=1)
    names = [f"{number}.png" for number in range(6)]
    for name in names:
        world.announce(name, png(np.zeros((30, 40, 3), np.uint8)).body)
    await run_to_end(world, len(names))
    assert [one.key for one in world.objects.opened] == names
