"""What a message is answered by, and in which order."""

import asyncio
from collections.abc import Sequence

import orjson

from penstock.core.rows.payload import Payload
from penstock.core.window.window import WindowLimits
from penstock.ports import Answers
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import SETTINGS, World, csv, rows_and_sums, run_to_end


@virtual_time
async def test_one_object_is_answered_row_by_row_and_committed() -> None:
    world = World()
    world.announce("a.csv", csv(3))
    await run_to_end(world, 1)
    first, second, third = world.records()
    assert first == {
        "v": 1,
        "id": "refs/0/0/0/0",
        "stream": "a.csv",
        "source": {"topic": "refs", "partition": 0, "offset": 0},
        "object": {"bucket": "b", "key": "a.csv", "version": '"1"'},
        "row": 0,
        "model": "rows",
        "prediction": {"sum": 0},
    }
    assert [second["row"], second.get("last")] == [1, None]
    assert [third["row"], third["last"], third["rows"]] == [2, True, 3]
    assert world.next_offset() == 1


@virtual_time
async def test_a_row_that_no_line_end_follows_is_answered_too() -> None:
    world = World()
    world.announce("a.csv", b"1,1\n2,2")
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, 0, 2.0), (0, 1, 4.0)]


@virtual_time
async def test_the_output_is_in_input_order_whatever_finishes_first() -> None:
    world = World().with_settings(window=WindowLimits(8, 1 << 20, 0.010))
    for number in range(20):
        world.announce(f"{number}.csv", csv(1 + number * 7 % 11, start=100 * number))

    async def later_calls_answer_first(payloads: Sequence[Payload]) -> Answers | None:
        await asyncio.sleep(0.5 / (1 + len(world.model.calls)))
        return None

    world.model.script = later_calls_answer_first
    await run_to_end(world, 20)
    assert rows_and_sums(world) == [
        (number, row, 2.0 * (100 * number + row))
        for number in range(20)
        for row in range(1 + number * 7 % 11)
    ]


@virtual_time
async def test_several_objects_in_one_message_are_answered_in_their_order() -> None:
    world = World()
    world.objects.put("b", "x.csv", csv(2, start=10))
    world.objects.put("b", "y.csv", csv(2, start=20))
    names = [{"bucket": "b", "key": key} for key in ("y.csv", "x.csv")]
    world.source.append(orjson.dumps({"objects": names}), key=b"cam")
    await run_to_end(world, 1)
    assert [(record["id"], record["prediction"]["sum"]) for record in world.records()] == [
        ("refs/0/0/0/0", 40),
        ("refs/0/0/0/1", 42),
        ("refs/0/0/1/0", 20),
        ("refs/0/0/1/1", 22),
    ]


@virtual_time
async def test_inline_rows_need_no_object() -> None:
    world = World()
    world.source.append(orjson.dumps({"stream": "s", "inline": [[1, 2], [3, 4]], "event_time": 7}))
    await run_to_end(world, 1)
    assert [
        (record["stream"], record["object"], record["event_time"]) for record in world.records()
    ] == [("s", None, 7)] * 2
    assert rows_and_sums(world) == [(0, 0, 3.0), (0, 1, 7.0)]


@virtual_time
async def test_an_event_time_is_milliseconds_on_every_topic_whoever_wrote_it() -> None:
    world = World()
    world.announce("ours.csv", b"1,2\n", event_time="2026-11-21T12:00:00.5+01:00")
    world.announce("gone.csv", event_time=1_795_258_800_500)
    world.objects.put("b", "theirs.csv", b"1,2\n")
    world.source.append(orjson.dumps({"Records": [THEIRS]}))
    world.source.append(b'{"inline":[[1]],"event_time":"2026-11-21T11:00:00.5"}')
    await run_to_end(world, 4)
    said = [record["event_time"] for record in world.records()]
    assert said == [1_795_258_800_500] * 4
    (letter,) = world.dead_letters()
    assert letter["event_time"] == letter["reference"]["event_time"] == 1_795_258_800_500


THEIRS = {
    "eventVersion": "2.1",
    "eventSource": "aws:s3",
    "eventName": "ObjectCreated:Put",
    "eventTime": "2026-11-21T11:00:00.500Z",
    "s3": {"bucket": {"name": "b"}, "object": {"key": "theirs.csv", "size": 4}},
}


@virtual_time
async def test_selected_rows_keep_their_numbers() -> None:
    world = World()
    world.announce("a.csv", csv(10), rows=[[2, 4], [8, 10]])
    await run_to_end(world, 1)
    assert rows_and_sums(world) == [(0, 2, 4.0), (0, 3, 6.0), (0, 8, 16.0), (0, 9, 18.0)]
    assert (world.records()[-1]["last"], world.records()[-1]["rows"]) == (True, 10)


@virtual_time
async def test_an_object_without_rows_is_answered_by_a_marker() -> None:
    world = World()
    world.announce("empty.csv", b"")
    world.announce("next.csv", csv(1))
    await run_to_end(world, 2)
    marker, _ = world.records()
    assert (marker["row"], marker["last"], marker["rows"], "error" in marker) == (
        None,
        True,
        0,
        False,
    )
    assert world.dead_letters() == []


@virtual_time
async def test_markers_can_be_turned_off() -> None:
    labels = type(SETTINGS.labels)("refs", "predictions", "rows", None, markers=False)
    world = World().with_settings(labels=labels)
    world.announce("empty.csv", b"")
    world.announce("missing.csv")
    await run_to_end(world, 2)
    assert world.records() == []
    assert [letter["code"] for letter in world.dead_letters()] == ["not_found"]


@virtual_time
async def test_an_event_that_announces_nothing_is_answered_by_nothing() -> None:
    world = World()
    world.source.append(b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}')
    world.announce("a.csv", csv(1))
    await run_to_end(world, 2)
    assert world.published() == 1
    assert world.dead_letters() == []
