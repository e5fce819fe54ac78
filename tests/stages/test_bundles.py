"""Many rows of an object in one Kafka record."""

from typing import Any

import orjson
import pytest

from penstock.core.records.output_records import Blocks, bundled
from penstock.tools.simulation.virtual_time import virtual_time
from penstock.tools.verify.records_and_open_objects import each_record
from tests.support.pipelines import World, csv, run_to_end


def arrays(world: World) -> list[list[dict[str, Any]]]:
    return [orjson.loads(value) for _, value in world.sink.topics["predictions"][0]]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_rows_of_an_object_stand_in_arrays_as_they_would_alone(*, exactly_once: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        alone, world = World(exactly_once=exactly_once), World(exactly_once=exactly_once)
        world.with_settings(blocks=Blocks(10))
        for one in (alone, world):
            one.announce("a.csv", csv(25), stream="s")
            one.announce("empty.csv", b"", stream="s")
            one.announce("b.csv", csv(3), stream="t")
            await run_to_end(one, 3)
        found = arrays(world)
        assert [record for array in found for record in array] == alone.records()
        assert all(len({record["object"]["key"] for record in array}) == 1 for array in found)
        assert max(map(len, found)) == 10
        keys = [key for key, _ in world.sink.topics["predictions"][0]]
        assert keys == [array[0]["stream"].encode() for array in found]

    scenario()


def test_an_array_is_no_larger_than_the_topic_takes() -> None:
    values = [b"1" * 30, b"2" * 30, b"3" * 70, b"4", b"5"]
    found = list(bundled(values, 10, lambda nbytes: nbytes <= 75))
    assert all(len(array) <= 75 for array in found)
    assert b"".join(array[1:-1] + b"," for array in found) == b",".join(values) + b","


@virtual_time
async def test_a_record_that_is_too_large_with_its_brackets_is_answered_by_an_error() -> None:
    world = World().with_settings(blocks=Blocks(10))
    world.sink.record_bytes = 400
    world.announce("a.csv", csv(8), stream="s")
    await run_to_end(world, 1)
    assert sum(map(len, arrays(world))) == 8
    assert all(len(value) <= 400 for _, value in world.sink.topics["predictions"][0])


def test_the_judge_reads_arrays_and_records_alike() -> None:
    seen: list[tuple[int, bytes | None]] = []
    take = each_record(lambda _partition, offset, _key, value: seen.append((offset, value)))
    take(0, 1, None, b'{"row":1}')
    take(0, 2, None, b'[{"row":2},{"row":3}]')
    take(0, 3, None, None)
    take(0, 4, None, b"[nonsense")
    assert seen == [
        (1, b'{"row":1}'),
        (2, b'{"row":2}'),
        (2, b'{"row":3}'),
        (3, None),
        (4, b"[nonsense"),
    ]
