"""A few rows are kept beside their predictions, for people who look, and none for nobody."""

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.rows.payload import BytesRows, Columns, JsonRows, Matrix
from penstock.pipeline.life import Pipeline
from penstock.stages.samples import EVERY_S, LAST, LOOKED_S, MOST_CHARS, Samples, in_words
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, running, until


def _answered(world: World, offset: int) -> bool:
    return world.next_offset() == offset


def samples_of(pipeline: Pipeline) -> Samples:
    found = pipeline.wiring.samples
    assert found is not None
    return found


@virtual_time
async def test_the_first_row_of_a_batch_is_kept_with_its_answer_once_a_second() -> None:
    world = World().with_settings(samples=True)
    async with running(world) as pipeline:
        samples = samples_of(pipeline)
        world.announce("before.csv", csv(1), stream="cam-1")
        await until(lambda: world.next_offset() == 1)
        assert samples.look({"cam-1"}) == []
        for number in range(1, 7):
            for stream in ("cam-1", "cam-2"):
                world.announce(f"{number}.{stream}", csv(3, start=number), stream=stream)
            await until(partial(_answered, world, 1 + 2 * number))
            await asyncio.sleep(EVERY_S)
            kept = samples.look({"cam-1"})
            assert len(kept) == min(number, LAST)
        newest = kept[0]
        assert (newest.stream, newest.object, newest.row) == ("cam-1", "b/6.cam-1", 0)
        assert (newest.input, newest.prediction, newest.error) == ("6, 6", '{"sum":12}', None)


@virtual_time
async def test_nothing_is_taken_when_nobody_has_looked_for_a_while() -> None:
    world = World().with_settings(samples=True)
    async with running(world) as pipeline:
        samples = samples_of(pipeline)
        samples.look({"cam-1"})
        world.announce("a.csv", csv(1), stream="cam-1")
        await until(lambda: world.next_offset() == 1)
        await asyncio.sleep(LOOKED_S)
        world.announce("b.csv", csv(1), stream="cam-1")
        await until(lambda: world.next_offset() == 2)
        assert samples.look({"cam-1"}) == []


@virtual_time
async def test_of_a_stream_that_is_no_longer_in_view_nothing_stays() -> None:
    world = World().with_settings(samples=True)
    async with running(world) as pipeline:
        samples = samples_of(pipeline)
        samples.look({"cam-1"})
        world.announce("a.csv", csv(1), stream="cam-1")
        await until(lambda: world.next_offset() == 1)
        assert len(samples.look({"cam-1"})) == 1
        assert samples.look({"cam-2"}) == []


async def test_without_the_setting_there_is_nothing_to_ask() -> None:
    assert World().settings.samples is False
    async with running(World()) as pipeline:
        assert pipeline.wiring.samples is None


def columns(values: dict[str, list[Any]]) -> Columns:
    return Columns(pa.record_batch(values), "")


def test_a_row_is_a_short_text() -> None:
    assert in_words(Matrix(np.array([[1.5, 2.0]], "<f4"))) == "1.5, 2"
    assert in_words(Matrix(np.zeros((1, 40), "<f4"))).endswith(", 0 and 8 more")
    assert in_words(JsonRows.of([b'{"a": 1}'])) == '{"a": 1}'
    assert len(in_words(JsonRows.of([b'"' + b"x" * 10_000 + b'"']))) == MOST_CHARS + 2
    assert in_words(columns({"a": [1], "b": ["x"]})) == '{"a":1,"b":"x"}'
    assert in_words(columns({"a": [[0] * 9_000]})) == "72,004 bytes"
    assert in_words(BytesRows.of([b"a document"])) == "a document"
    assert in_words(BytesRows.of([b"\xff\xd8\xff\x00"])) == "4 bytes"
