"""`penstock scenes` on the real Kafka: a worker that goes contradicts nothing and loses nothing."""

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.process.children import running
from penstock.scenes.judge import ScenesReport
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

MEMBERS, STEPS, PARTITIONS = 4, 60, 4
LISTED = {f"site-{site}": [f"cam-{n:02}" for n in range(MEMBERS)] for site in range(2)}
EPOCH = 1_795_208_217_400


def predictions(topic: str, steps: range, members: int = MEMBERS, sites: int = 2) -> list[Message]:
    """On a grid; in every tenth instant all rows are rejected."""
    messages, each = [], sites * members
    for step in steps:
        for number in range(each):
            partition, offset = (
                number % PARTITIONS,
                step * each // PARTITIONS + number // PARTITIONS,
            )
            stream = f"site-{number // members}/cam-{number % members:02}"
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


def scenes_environment(
    services: Services,
    topics: Topics,
    source: str,
    members: dict[str, list[str]],
    **changes: object,
) -> dict[str, str]:
    """A scenes worker that waits for everybody, so that nothing depends on its pace."""
    name = f"scenes-{uuid.uuid4().hex[:12]}"
    environ = environment(
        services,
        topics,
        SCENES__MEMBERS=msgspec.json.encode(members).decode(),
        SCENES__PATIENCE_MS=600_000,
        SCENES__DEADLINE_MS=900_000,
        SCENES__LEASE_MS=900_000,
        SCENES__INPUT_TOPIC=source,
        SCENES__TOPIC=name,
        SCENES__LATE_TOPIC=f"{name}.late",
        SCENES__GROUP=name,
    )
    return environ | {f"PENSTOCK_{key}": str(value) for key, value in changes.items()}


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
    environ = scenes_environment(services, topics, topics.output, LISTED, SCENES__ENGINE=engine)
    name = environ["PENSTOCK_SCENES__TOPIC"]
    created = await penstock("topics", "create", "--scenes", "--partitions", "4", environ=environ)
    assert created.code == 0, created.stderr
    log = tmp_path / "log"
    half = STEPS // 2

    async def worked_off(topic: str, group: str) -> None:
        async def is_committed() -> bool:
            ends = {each: end for each, end in (await broker.ends(topic)).items() if end}
            return bool(ends) and await broker.committed(group, topic) == ends

        await until(is_committed, lambda: f"{topic} worked off: {log.read_text()}")

    async def placed() -> None:
        """All predictions have their place: a scene is published before they are committed."""
        await worked_off(topics.output, name)
        deciding = name if engine == "faust" else f"{name}-sites"
        await worked_off(f"{name}-by-site", deciding)

    try:
        async with running("scenes", "penstock", log, arguments=["scenes"], environ=environ) as one:
            await broker.publish(topics.output, predictions(topics.input, range(half)))
            await placed()
            await broker.publish(topics.output, predictions(topics.input, range(half, half + 5)))
            os.kill(one.pid, number)
            assert await one.wait() == code, log.read_text()
        async with running("scenes", "penstock", log, arguments=["scenes"], environ=environ):
            rest = predictions(topics.input, range(half + 5, STEPS))
            await broker.publish(topics.output, rest)
            await placed()
        judged = await penstock("verify", "--scenes", environ=environ)
        report = msgspec.json.decode(judged.stdout, type=ScenesReport)
        assert judged.code == 0, report.examples
        assert report.predictions == 2 * MEMBERS * STEPS
        assert report.closed_by == {"complete": 2 * STEPS}
    finally:
        await remove(broker, name)


async def remove(broker: Broker, name: str) -> None:
    theirs = {name, f"{name}.late", f"{name}-by-site", f"{name}-sites-changelog"}
    await broker.delete(theirs & await broker.topics())


async def test_a_picture_goes_to_a_second_model_and_leads_back_to_its_frames(
    services: Services, topics: Topics, broker: Broker, tmp_path: Path
) -> None:
    members, steps = 16, 20  # the stack's model takes rows of 16 numbers
    listed = {"site-0": [f"cam-{n:02}" for n in range(members)]}
    first = scenes_environment(
        services,
        topics,
        topics.input,
        listed,
        SCENES__INLINE="/score",
        SCENES__FILL=0,
        # These cameras have a common clock, by which the scenes are named here.
        SCENES__ANCHOR="grid",
        SCENES__PERIOD_MS=50,
    )
    name, log = first["PENSTOCK_SCENES__TOPIC"], tmp_path / "log"
    created = await penstock("topics", "create", "--scenes", "--partitions", "4", environ=first)
    assert created.code == 0, created.stderr
    second = environment(
        services,
        Topics(name, topics.output, topics.dlq),
        MODEL__REQUEST="float32",
        SCENES__TOPIC=name,
    )

    async def answered() -> bool:
        return sum((await broker.ends(topics.output)).values()) >= steps

    try:
        async with (
            running("scenes", "penstock", log, arguments=["scenes"], environ=first),
            running_worker(second) as worker,
        ):
            frames = predictions("frames", range(steps), members, sites=1)
            await broker.publish(topics.input, frames)
            await until(answered, lambda: f"{steps} pictures; {log.read_text()}; {worker.said}")
        read = [
            each for of_part in (await broker.records(topics.output)).values() for each in of_part
        ]
        pictures = [each.document for each in read]
        assert [each["event_time"] for each in pictures] == [
            EPOCH + 50 * step for step in range(steps)
        ]
        assert all("label" in each["prediction"] for each in pictures)
        wanted = [
            {each.value["id"] for each in frames[members * step : members * (step + 1)]}
            for step in range(steps)
        ]
        assert await frames_of(broker, name, pictures) == wanted
        traced = second | {"PENSTOCK_SCENES__INPUT_TOPIC": topics.input}
        for id in (pictures[3]["id"], pictures[3]["attributes"]["scene"]):
            answer = await penstock("trace", "--json", id, environ=traced)
            assert answer.code == 0, answer.stderr
            decoded = msgspec.json.decode(answer.stdout)
            assert {frame["answer"]["record"]["id"] for frame in decoded["frames"]} == wanted[3]
            assert decoded["scene"]["record"]["id"] == pictures[3]["attributes"]["scene"]
        assert (await penstock("trace", "nothing", environ=traced)).code == 2
    finally:
        await remove(broker, name)


async def frames_of(broker: Broker, topic: str, pictures: list[dict[str, Any]]) -> list[set[str]]:
    """From a picture's own record by its source to the scene, and to the ids in it."""
    scenes = await broker.records(topic)
    found = []
    for picture in pictures:
        source = picture["source"]
        assert source["topic"] == topic
        scene = scenes[source["partition"]][source["offset"]].document
        assert picture["attributes"]["scene"] == scene["id"]
        found.append({seat["id"] for seat in scene["members"].values()})
    return found
