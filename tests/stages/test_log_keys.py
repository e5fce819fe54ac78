"""Lines of the log about a stream or an object carry where that is as keys, for machines."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from penstock.core.progress.line_stop import LineLimits
from penstock.core.rows.payload import Payload
from penstock.errors import Fatal
from penstock.logs import JsonFormatter, TextFormatter
from penstock.ports import Answers, Commit, Location
from penstock.tools.simulation.virtual_time import virtual_time
from tests.support.pipelines import BUCKET, World, csv, run_to_end

HERE = {"stream": "cam-7", "topic": "refs", "partition": 0}


class Lines(logging.Handler):
    """What a machine reads of the log, and what a person does."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.read.append(orjson.loads(JsonFormatter().format(record)))
        self.texts.append(TextFormatter("%(levelname)s %(message)s").format(record))

    def about(self, text: str) -> list[dict[str, Any]]:
        return [line for line in self.read if text in line["message"]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("penstock")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def has(line: dict[str, Any], **keys: object) -> bool:
    return keys.items() <= line.items()


@virtual_time
async def test_a_rejection_and_a_stop_carry_stream_place_and_object(lines: Lines) -> None:
    world = World().with_settings(line=LineLimits(0.0, 1))
    for number in range(3):
        world.announce(f"missing-{number}.csv", stream="cam-7")
    with pytest.raises(Fatal):
        async with asyncio.timeout(600.0):
            await world.pipeline().run()
    [rejected] = lines.about("rejected: ")
    assert has(rejected, **HERE, offset=0, object=f"{BUCKET}/missing-0.csv", code="not_found")
    [stopped] = lines.about("line stopped: ")
    assert has(stopped, **HERE, offset=1, object_index=0, level="error")
    assert all(text.isprintable() and "object_index" not in text for text in lines.texts)


@virtual_time
async def test_a_line_about_an_object_carries_the_id_of_its_trace(lines: Lines) -> None:
    world = World().with_traces(sample=0.0)
    trace = "0af7651916cd43dd8448eb211c80319c"
    world.announce("gone.csv", stream="cam-7", traceparent=f"00-{trace}-b7ad6b7169203331-00")
    await run_to_end(world, 1)
    [rejected] = lines.about("rejected: ")
    assert has(rejected, **HERE, trace_id=trace)


@virtual_time
async def test_what_nobody_foresaw_carries_the_object_that_was_at_work(lines: Lines) -> None:
    world = World(forgives=True)

    async def trap(location: Location) -> None:
        if location.key == "bad.csv":
            raise ZeroDivisionError

    world.objects.on_open = trap
    world.announce("good.csv", csv(2), stream="cam-6")
    world.announce("bad.csv", csv(2), stream="cam-7")
    await run_to_end(world, 2)
    [line] = lines.about("nobody foresaw this ZeroDivisionError")
    assert has(line, **HERE, offset=1, object=f"{BUCKET}/bad.csv")
    assert "traceback" in line


@virtual_time
async def test_rows_that_are_asked_again_and_again_carry_their_object(lines: Lines) -> None:
    world = World()

    async def refuses(payloads: Sequence[Payload]) -> Answers | None:
        rows = sum(payload.rows for payload in payloads)
        return Answers([b"null"] * rows, dict.fromkeys(range(rows), "too large")) if rows else None

    world.model.script = refuses
    world.announce("a.csv", csv(3), stream="cam-7")
    await run_to_end(world, 1)
    [rejected] = lines.about("rejected: ")
    assert has(rejected, **HERE, offset=0, object=f"{BUCKET}/a.csv", row=0, code="model_rejected")


@virtual_time
async def test_a_commit_that_cannot_be_read_carries_its_place(lines: Lines) -> None:
    world = World()
    world.announce("a.csv", csv(1))
    world.source.committed[0] = Commit(0, "not ours")
    await run_to_end(world, 1)
    [line] = lines.about("not all of the commit's metadata")
    assert has(line, topic="refs", partition=0, offset=0)
    assert "stream" not in line
