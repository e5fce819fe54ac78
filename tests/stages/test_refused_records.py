"""A topic that takes records of this size and form, but refuses some by their content."""

from typing import Any

import orjson
import pytest

from penstock.core.records.output_records import Blocks
from penstock.encodings.output_values import records_of
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import World, csv, run_to_end
from tests.support.refusing_sink import RefusingSink

BLOCKS = {"arrays": Blocks(10), "blocks": Blocks(10, "arrow")}
FORMS = {"rows": None} | BLOCKS


def read(world: World) -> list[dict[str, Any]]:
    values = [value for _, value in world.sink.topics["predictions"][0]]
    return [orjson.loads(record) for value in values for record in records_of(value)]


def says(value: bytes, key: str, row: int | None) -> bool:
    """True if the value answers this row or, with None, tells the end of an object without rows."""
    return any(
        record["object"]["key"] == key and record["row"] == row and "error" not in record
        for record in map(orjson.loads, records_of(value))
    )


@pytest.mark.parametrize("form", FORMS)
@virtual_time
async def test_only_the_row_that_the_topic_refuses_is_answered_by_an_error(form: str) -> None:
    def refuses(value: bytes) -> bool:
        return any(
            says(value, *which) for which in (("a.csv", 13), ("a.csv", 24), ("empty.csv", None))
        )

    alone, world = World(), World().with_settings(blocks=FORMS[form])
    world.sink = RefusingSink("predictions", refuses)
    for one in (alone, world):
        one.announce("a.csv", csv(25), stream="s", event_time=7, attributes={"x": "y"})
        one.announce("empty.csv", b"", stream="s")
        one.announce("b.csv", csv(14), stream="t")
        await run_to_end(one, 3)
    expected = alone.records()
    refused = [record for record in expected if refuses(orjson.dumps(record))]
    assert len(refused) == 3
    for record in refused:
        record.pop("attributes", None)
        message = "predictions refused it: no such content"
        record |= {"prediction": None, "error": {"code": "result_refused", "message": message}}
    assert read(world) == expected
    letters = world.dead_letters()
    assert [letter["code"] for letter in letters] == ["result_refused"] * 3
    assert [letter["rows"] for letter in letters] == [[[13, 14]], [[24, 25]], None]


@pytest.mark.parametrize("form", BLOCKS)
@virtual_time
async def test_a_topic_that_takes_less_by_now_gets_smaller_records(form: str) -> None:
    alone, world = World(), World().with_settings(blocks=BLOCKS[form]._replace(rows=100))
    most = 1_500
    world.sink = RefusingSink("predictions", lambda value: len(value) > most)
    for one in (alone, world):
        one.announce("a.csv", csv(100), stream="s")
        await run_to_end(one, 1)
    assert read(world) == alone.records()
    assert not world.dead_letters()
    assert len(world.sink.topics["predictions"][0]) > 1
