"""Many rows of an object in one Kafka record, as Arrow: they say what JSON records would."""

from collections.abc import Sequence
from typing import Any, cast

import jsonschema
import orjson
import pyarrow as pa
import pytest

from penstock.core.records.output_records import Blocks
from penstock.core.rows.payload import Matrix, Payload
from penstock.core.window.window import WindowLimits
from penstock.encodings.arrow_blocks import HEAD, RECORD
from penstock.encodings.output_values import records_of
from penstock.errors import Rejected
from penstock.formats.runs import RowOptions
from penstock.messages.json_schemas import documents
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end

ARROW = Blocks(10, "arrow")
KEPT = b"at,id,a\n" + b"".join(b"%d,n%d,%d\n" % (1_700_000_000 + n, n, n) for n in range(25))


def values(world: World) -> list[bytes]:
    return [value for _, value in world.sink.topics["predictions"][0]]


def read(world: World) -> list[dict[str, Any]]:
    return [orjson.loads(record) for value in values(world) for record in records_of(value)]


def table(value: bytes) -> pa.Table:
    return pa.ipc.open_stream(value).read_all()


async def refuse(payloads: Sequence[Payload]) -> Answers | None:
    if any(13.0 in payload.values for payload in payloads):  # type: ignore[attr-defined]
        raise Rejected("model_rejected", "unlucky")
    return None


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_block_says_what_its_records_would_alone(*, exactly_once: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        alone, world = World(exactly_once=exactly_once), World(exactly_once=exactly_once)
        world.with_settings(blocks=ARROW)
        for one in (alone, world):
            one.model.script = refuse
            one.announce("a.csv", csv(25), stream="s", event_time=7, attributes={"x": [None]})
            one.announce("empty.csv", b"", stream="s")
            one.announce("bad.csv", b"1,2\n3\n\xff,x\n4,5\n", stream="t")
            one.announce("broken.csv.gz", b"no gzip", stream="t")
            await run_to_end(one, 4)
        assert read(world) == alone.records()
        letters = [one.dead_letters() for one in (world, alone)]
        for letter in [letter for found in letters for letter in found]:
            del letter["failed_at"]
        assert letters[0] == letters[1]
        keys = [key for key, _ in world.sink.topics["predictions"][0]]
        assert keys == [
            orjson.loads(records_of(value)[0])["stream"].encode() for value in values(world)
        ]
        assert max(table(value).num_rows for value in values(world)) == 10

    scenario()


@virtual_time
async def test_columns_and_times_of_rows_are_columns_of_the_block() -> None:
    rows = RowOptions(keep=("id",), time="at")
    alone, world = World(), World().with_settings(blocks=ARROW)
    for one in (alone, world):
        one.model.script = refuse
        one.with_settings(rows=rows, window=WindowLimits(7, 1 << 20, 0.01))
        one.announce("a.csv", KEPT, event_time=5)
        await run_to_end(one, 1)
    assert read(world) == alone.records()
    assert table(values(world)[0]).schema.field("event_time").type == pa.timestamp("ms", "UTC")


@virtual_time
async def test_a_column_stands_only_where_a_row_has_it_and_the_head_follows_its_schema() -> None:
    world = World().with_settings(blocks=ARROW)
    world.announce("a.csv", csv(3), stream="s")
    world.announce("empty.csv", b"", stream="s")
    await run_to_end(world, 2)
    block, marker = (table(value) for value in values(world))
    assert block.column_names == marker.column_names == ["row", "prediction"]
    assert marker.num_rows == 0
    head = orjson.loads(block.schema.metadata[HEAD])
    jsonschema.validate(head, documents()["block.v1.schema.json"])
    assert (head["id"], head["last"], head["rows"]) == ("refs/0/0/0", True, 3)
    record = orjson.loads(marker.schema.metadata[RECORD])
    jsonschema.validate(record, documents()["prediction.v1.schema.json"])


@virtual_time
async def test_no_block_is_larger_than_the_topic_takes_and_no_row_is_left_out() -> None:
    async def long_answers(payloads: Sequence[Payload]) -> Answers | None:
        numbers = [
            row[0] for payload in cast("Sequence[Matrix]", payloads) for row in payload.values
        ]
        texts = [b'"%b"' % (b"x" * (5_000 if number == 4 else 300)) for number in numbers]
        return Answers(texts, {})

    world = World().with_settings(blocks=ARROW)
    world.model.script = long_answers
    world.sink.record_bytes = 3_000
    world.announce("a.csv", csv(12), stream="s", attributes={"x": "y" * 2_500})
    world.announce("b.csv", csv(12), stream="s")
    world.announce("empty.csv", b"", stream="s", attributes={"x": "y" * 2_500})
    await run_to_end(world, 3)
    text = read(world)
    assert all(len(value) <= 3_000 for value in values(world))
    assert [record["row"] for record in text] == [*range(12), *range(12), None]
    codes = [record.get("error", {}).get("code") for record in text]
    assert codes[:12] == ["result_too_large"] * 12
    assert codes[12:] == [None] * 4 + ["result_too_large"] + [None] * 8
    failed = [span for letter in world.dead_letters() for span in letter["reference"]["rows"]]
    assert sum(stop - start for start, stop in failed) == 13


@pytest.mark.parametrize(
    "spoil", [lambda v: v[:200], lambda v: v[:4], lambda v: v[:8] + b"\xff" * 90]
)
def test_what_is_no_block_is_given_as_it_is(spoil: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([pa.field("row", pa.int64())])):
        pass
    value = spoil(bytes(sink.getvalue()))
    assert records_of(value) == [value]
