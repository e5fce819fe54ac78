"""`penstock scenes` on the real Kafka: a worker that goes contradicts nothing and loses nothing."""

import os
import signal
import uuid
from pathlib import Path

import msgspec
import pytest

from consumers.process.children import running
from consumers.scenes.judge import Report
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock

MEMBERS, STEPS, PARTITIONS = 4, 60, 4
LISTED = {f"site-{site}": [f"cam-{n}" for n in range(MEMBERS)] for site in range(2)}
EPOCH = 1_795_208_217_400


def predictions(topic: str, steps: range) -> list[Message]:
    """Of two sites on a grid; one row in ten is rejected."""
    messages = []
    for step in steps:
        for number in range(2 * MEMBERS):
            partition, offset = number % PARTITIONS, 2 * step + number // PARTITIONS
            stream = f"site-{number // MEMBERS}/cam-{number % MEMBERS}"
            record = {
                "id": f"{topic}/{partition}/{offset}/0/0",
                "stream": stream,
                "source": {"topic": topic, "partition": partition, "offset": offset},
                "row": 0,
                "event_time": EPOCH + 50 * step + number,
                "prediction": {"score": 0.5} if step % 10 else None,
            }
            if step % 10 == 0:
                record["error"] = {"code": "bad_row", "message": "no number"}
            messages.append(Message(record, partition, stream.encode()))
    return messages


@pytest.mark.parametrize(
    ("engine", "number", "code"),
    [("penstock", signal.SIGKILL, -9), ("penstock", signal.SIGTERM, 0), ("faust", 15, 0)],
)
async def test_the_next_worker_goes_on_where_one_was_ended(
    services: Services,
    topics: Topics,
    broker: Broker,
    tmp_path: Path,
    engine: str,
    number: int,
    code: int,
) -> None:
    name = f"scenes-{uuid.uuid4().hex[:12]}"
    environ = environment(
        services,
        topics,
        SCENES__ENGINE=engine,
        SCENES__MEMBERS=msgspec.json.encode(LISTED).decode(),
        SCENES__PATIENCE_MS=30_000,
        SCENES__DEADLINE_MS=60_000,
        SCENES__INPUT_TOPIC=topics.output,
        SCENES__TOPIC=name,
        SCENES__LATE_TOPIC=f"{name}.late",
        SCENES__GROUP=name,
    )
    created = await penstock("topics", "create", "--scenes", "--partitions", "4", environ=environ)
    assert created.code == 0, created.stderr
    log = tmp_path / "log"
    half = STEPS // 2

    async def placed(least: int) -> None:
        async def are_there() -> bool:
            found = await broker.ends(name)
            return sum(found.values()) >= least

        await until(are_there, lambda: f"{least} scenes; {log.read_text()}")

    try:
        async with running(
            "scenes", "consumers", log, arguments=["scenes"], environ=environ
        ) as one:
            await broker.publish(topics.output, predictions(topics.input, range(half)))
            await placed(half)
            await broker.publish(topics.output, predictions(topics.input, range(half, half + 5)))
            os.kill(one.pid, number)
            assert await one.wait() == code, log.read_text()
        async with running("scenes", "consumers", log, arguments=["scenes"], environ=environ):
            rest = predictions(topics.input, range(half + 5, STEPS))
            await broker.publish(topics.output, rest)
            await placed(2 * STEPS)
        judged = await penstock("verify", "--scenes", environ=environ)
        report = msgspec.json.decode(judged.stdout, type=Report)
        assert judged.code == 0, report.examples
        assert report.predictions == 2 * MEMBERS * STEPS
        assert report.closed_by == {"complete": 2 * STEPS}
    finally:
        theirs = {name, f"{name}.late", f"{name}-by-site", f"{name}-sites-changelog"}
        await broker.delete(theirs & await broker.topics())
