"""Which stream an object belongs to: of a reference, of a notification, of rows in the message."""

import asyncio
from typing import Any

import orjson
import pytest

from penstock.core.progress.line_stop import LineLimits
from penstock.ports import Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.messages.test_notifications import FORMS
from tests.support.partitions import P0
from tests.support.pipelines import BUCKET, World, csv, run_to_end, running, until

BY_CAMERA = r"^cam-(?P<stream>[0-9]+)/"


def event(key: str) -> bytes:
    """As MinIO sends it."""
    created = {"s3": {"bucket": {"name": BUCKET}, "object": {"key": key}}}
    return orjson.dumps(
        {
            "EventName": "s3:ObjectCreated:Put",
            "Key": f"{BUCKET}/{key}",
            "Records": [{"eventName": "s3:ObjectCreated:Put", **created}],
        }
    )


def happen(world: World, key: str, data: bytes | None = None) -> None:
    """An object is stored (unless `data` is None) and announced by its store, under its name."""
    if data is not None:
        world.objects.put(BUCKET, key, data)
    world.source.append(event(key), key=f"{BUCKET}/{key}".encode())


async def streams_of(world: World, *messages: tuple[bytes, bytes | None]) -> list[str]:
    world.with_settings(line=LineLimits(0.0, 0))
    for value, key in messages:
        world.source.append(value, key=key)
    await run_to_end(world, len(messages))
    return [record["stream"] for record in world.records()]


@pytest.mark.parametrize("form", FORMS)
@virtual_time
async def test_the_key_of_a_notification_is_no_stream(form: str) -> None:
    named = orjson.dumps(FORMS[form])
    assert await streams_of(World(), (named, b"cams/site 1/cam+3/1.csv")) == ["site 1/cam+3"]


@pytest.mark.parametrize(
    ("fields", "kafka_key", "stream"),
    [
        ({"key": "cam-7/1.csv", "stream": "mine"}, b"key", "mine"),
        ({"key": "cam-7/1.csv"}, b"key", "7"),
        ({"key": "cam-7/1.csv"}, None, "7"),
        ({"key": "x/1.csv"}, b"key", "key"),
        ({"key": "x/1.csv"}, None, "x"),
        ({"key": "x/y//1.csv"}, None, "x/y"),
        ({"key": "1.csv"}, None, "b"),
    ],
)
@virtual_time
async def test_of_a_reference_the_key_says_less_than_what_the_operator_configured(
    fields: dict[str, Any], kafka_key: bytes | None, stream: str
) -> None:
    value = orjson.dumps({"bucket": BUCKET, **fields})
    assert await streams_of(World(stream_from=BY_CAMERA), (value, kafka_key)) == [stream]


@virtual_time
async def test_a_notification_goes_by_what_was_configured_else_by_its_folder() -> None:
    world = World(stream_from=BY_CAMERA)
    assert await streams_of(
        world, (event("cam-7/1.csv"), b"b/cam-7/1.csv"), (event("x/1.csv"), b"b/x/1.csv")
    ) == ["7", "x"]


@virtual_time
async def test_the_time_in_the_key_is_the_time_of_the_answers() -> None:
    world = World(time_from="(?P<time>[0-9]+)[.]csv$")
    world.source.append(event("cam-7/1795208217412.csv"))
    world.source.append(orjson.dumps({"bucket": BUCKET, "key": "x/1795208217.csv"}))
    world.source.append(orjson.dumps({"bucket": BUCKET, "key": "x/y.csv"}))
    await run_to_end(world, 3)
    times = [record.get("event_time") for record in world.records()]
    assert times == [1_795_208_217_412, 1_795_208_217_000, None]


@virtual_time
async def test_rows_in_the_message_go_by_the_kafka_key() -> None:
    world = World(stream_from=BY_CAMERA)
    rows = b'{"inline":[[1,2]]}'
    assert await streams_of(world, (rows, b"cam-7/"), (rows, None)) == ["cam-7/", "partition-0"]


@virtual_time
async def test_a_folder_s_events_that_all_fail_stop_their_line() -> None:
    world = World(partitions=2).with_settings(line=LineLimits(0.0, 5))
    for number in range(20):
        happen(world, f"cam-7/{number}.csv")
    async with running(world) as pipeline:
        await until(
            lambda: P0 in pipeline.wiring.lanes and pipeline.wiring.lanes[P0].stopped is not None
        )
    assert world.next_offset() == 5


@virtual_time
async def test_events_of_one_folder_are_in_order_and_overtake_another_that_is_stuck() -> None:
    world = World().with_settings(order_by_stream=True)
    free = asyncio.Event()

    async def wait(location: Location) -> None:
        if location.key == "cam-1/0.csv":
            await free.wait()

    world.objects.on_open = wait
    for number in range(3):
        for camera in (1, 2):
            happen(world, f"cam-{camera}/{number}.csv", csv(1))
    async with running(world):
        await until(lambda: world.published() == 3)
        assert [record["source"]["offset"] for record in world.records()] == [1, 3, 5]
        free.set()
        await until(lambda: world.next_offset() == 6)
    assert [record["source"]["offset"] for record in world.records()][3:] == [0, 2, 4]
