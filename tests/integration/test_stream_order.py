"""Order per stream on the real services: a stuck object, a kill, and what the next worker does."""

from typing import Any

from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, Record
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

ROWS = 40
OBJECTS = 30
LATE = "late.csv"


def sources(records: list[Record]) -> list[int]:
    return [record.document["source"]["offset"] for record in records]


async def test_a_late_object_holds_back_its_stream_alone_and_a_takeover_repeats_nothing_committed(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    keys = [LATE, *(f"{number}.csv" for number in range(1, OBJECTS))]
    for key in keys[1:]:
        s3.put_object(Bucket=bucket, Key=key, Body=csv(random_rows(ROWS)))
    await broker.publish(
        topics.input,
        [
            Message({"bucket": bucket, "key": key, "stream": f"s{number % 3}"})
            for number, key in enumerate(keys)
        ],
    )
    free = [number for number in range(OBJECTS) if number % 3]
    # What is not in the store yet is waited for: for longer than this test may last.
    environ = environment(
        services, topics, OUTPUT__ORDER="stream", OBJECTS__WAIT_FOR_OBJECT_MS=240_000
    )
    positions: dict[int, Any] = {}

    async def are_committed() -> bool:
        nonlocal positions
        positions = await broker.positions(topics.input, topics.input)
        # Two completed records behind each of the stuck stream, as bits: 011011 is a `b`.
        return 0 in positions and positions[0].metadata == all_marks

    all_marks = f"p1:0;0.0.;~{'b' * (OBJECTS // 6)}A;;"
    async with running_worker(environ) as worker:
        await broker.until_answered(topics.output, len(free) * ROWS)
        await until(
            are_committed, lambda: f"the marks of the other streams are not there: {positions}"
        )
        await worker.kill()
    assert positions[0].next_offset == 0
    assert sorted(set(sources((await broker.records(topics.output))[0]))) == free

    s3.put_object(Bucket=bucket, Key=LATE, Body=csv(random_rows(ROWS)))
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: OBJECTS})
        assert await worker.stop() == 0, worker.said
    records = (await broker.records(topics.output))[0]
    assert len({record.document["id"] for record in records}) == len(records) == OBJECTS * ROWS
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged.stdout.decode()
