"""A bucket's notifications lie in all partitions; behind the rekeyer each camera is in order."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest

from tests.integration.conftest import MakeTopics
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, Record, broker_of
from tests.support.waiting import until
from tests.support.worker import Worker, environment, penstock, running_worker

CAMERAS = 8
FRAMES = 24
ROW = ",".join(["0.5"] * 16) + "\n"


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services, "read_committed") as broker:
        yield broker


@pytest.fixture
async def between(make_topics: MakeTopics) -> str:
    """The topic between the input topic and the worker."""
    return (await make_topics(4)).input


def rekeying(
    services: Services, topics: Topics, between: str, arrive_on: str, **changes: object
) -> dict[str, str]:
    return environment(
        services,
        topics,
        None,
        KAFKA__INPUT_TOPIC=arrive_on,
        KAFKA__GROUP=topics.input,
        KAFKA__REKEY=between,
        **changes,
    )


def announced_by_its_store(services: Services, s3: Any, bucket: str) -> None:
    events = [{"QueueArn": services.events_arn, "Events": ["s3:ObjectCreated:*"]}]
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": events}
    )


def stream_of(bucket: str, camera: int) -> str:
    """Of this test alone: tests that run beside each other have their buckets on one topic."""
    return f"site-{bucket}/cam-{camera}"


async def film(s3: Any, bucket: str, camera: int, frames: range) -> None:
    """Each frame is there before the next one is put."""
    for frame in frames:
        key = f"{stream_of(bucket, camera)}/{frame:06}.csv"
        await asyncio.to_thread(s3.put_object, Bucket=bucket, Key=key, Body=ROW.encode())


def frames(records: list[Record]) -> dict[str, list[str]]:
    """By stream the objects that answers are about, as often as they are."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        document = record.document
        found[document["stream"]].append(document["object"]["key"])
    return found


def keys_of(records: list[Record]) -> dict[str, list[str]]:
    """By key the objects that notifications are about."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        found[record.key.decode()].append(record.document["Records"][0]["s3"]["object"]["key"])
    return found


def once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


async def leader(workers: list[Worker]) -> Worker:
    """The one that rekeys, as soon as there is one."""
    found: list[Worker] = []

    async def one_leads() -> bool:
        for worker in workers:
            with suppress(aiohttp.ClientError):
                if "penstock_rekey_leads 1.0" in (await worker.get("/metrics"))[1]:
                    found.append(worker)
        return bool(found)

    await until(one_leads, lambda: f"one that rekeys; the last one says {workers[-1].said}")
    return found[0]


@pytest.mark.parametrize(("guarantee", "kills"), [("at_least_once", 1), ("exactly_once", 2)])
async def test_frames_of_eight_cameras_that_a_bucket_announces_are_answered_in_order(
    services: Services,
    topics: Topics,
    between: str,
    bucket: str,
    s3: Any,
    broker: Broker,
    guarantee: str,
    kills: int,
) -> None:
    """And the worker that rekeys is killed."""
    announced_by_its_store(services, s3, bucket)
    # The workers read the topic until now: the rekeyer goes on where they were.
    await broker.skip_to_the_end(topics.input, services.input_topic)
    own = {
        "OBJECTS__ALLOW": f"{bucket}/",
        "DELIVERY__GUARANTEE": guarantee,
        # Longer than a broker on a busy machine stays silent.
        "KAFKA__REKEY_WAIT_MS": 20_000,
    }
    total = CAMERAS * FRAMES
    expected = {
        stream: [f"{stream}/{frame:06}.csv" for frame in range(FRAMES)]
        for stream in (stream_of(bucket, camera) for camera in range(CAMERAS))
    }

    def another() -> dict[str, str]:
        return rekeying(services, topics, between, services.input_topic, **own)

    async with AsyncExitStack() as cleanup:
        workers = [await cleanup.enter_async_context(running_worker(another())) for _ in range(2)]
        for worker in workers:
            await worker.ready()
        # A store connects to Kafka at its first event, and others may overtake that.
        s3.put_object(Bucket=bucket, Key="first/0.csv", Body=ROW.encode())
        await broker.until_answered(between, 1)
        each = FRAMES // kills
        for part in (range(n * each, (n + 1) * each) for n in range(kills)):
            first = await leader(workers)
            async with asyncio.TaskGroup() as tasks:
                for camera in range(CAMERAS):
                    tasks.create_task(film(s3, bucket, camera, part))
                await broker.until_answered(between, CAMERAS * (part.start + 2))
                await first.kill()
            workers.remove(first)
            workers.append(await cleanup.enter_async_context(running_worker(another())))

        async def all_answered() -> bool:
            answers = (await broker.records(topics.output)).values()
            ours = [one for part in answers for one in part if one.document["stream"] in expected]
            return len({our.document["id"] for our in ours}) >= total

        await until(all_answered, lambda: f"{total} answers; {workers[-1].said}")
        for worker in workers:
            assert await worker.stop() == 0, worker.said
    passed_on = await broker.records(between)
    announced = [one for part in passed_on.values() for one in part]
    ours = {s: k for s, k in keys_of(announced).items() if s in expected}
    assert {s: [k.replace("%2F", "/") for k in keys] for s, keys in ours.items()} == expected
    answers = [one for part in (await broker.records(topics.output)).values() for one in part]
    answered = {s: keys for s, keys in frames(answers).items() if s in expected}
    if guarantee == "exactly_once":
        assert answered == expected
    assert {stream: once(keys) for stream, keys in answered.items()} == expected
    judged = await penstock("verify", "--json", environ=another())
    # What others announced at the end, nobody has answered.
    places = {(n, r.offset) for n, part in passed_on.items() for r in part if is_of(r, expected)}
    wrong = json.loads(judged.stdout)["violations"]
    assert not [one for one in wrong if (one["partition"], one["offset"]) in places], judged


def is_of(record: Record, streams: Collection[str]) -> bool:
    return record.key is not None and record.key.decode() in streams


async def test_alone_it_passes_on_whole_messages_and_workers_read_what_is_committed(
    services: Services, topics: Topics, between: str, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="site/cam-1/1.csv", Body=ROW.encode())
    value = b'{"bucket": "%s", "key": "site/cam-1/1.csv"}' % bucket.encode()
    await broker.publish(topics.input, [Message(value, 2), Message(b"no reference", 1, b"k")])
    environ = rekeying(services, topics, between, topics.input)
    looked = await penstock("doctor", environ=environ)
    topics_line = next(line for line in looked.stdout.decode().splitlines() if "topics" in line)
    assert topics_line.startswith("ok"), looked
    assert topics.input in topics_line
    assert between in topics_line
    behind = environment(
        services, topics, None, KAFKA__INPUT_TOPIC=between, KAFKA__ISOLATION="read_committed"
    )
    async with (
        running_worker(environ, command="rekey") as rekeyer,
        running_worker(behind) as worker,
    ):
        await broker.until_answered(topics.output, 2)
        seen = (0, "")

        async def is_counted() -> bool:
            # What it has passed on may be answered before it hears that it is there.
            nonlocal seen
            seen = await rekeyer.get("/api/status")
            return '"passed":2' in seen[1]

        await until(is_counted, lambda: f"2 passed on; {seen}; {rekeyer.said}")
        status, page = seen
        assert status == 200
        assert '"leads":true' in page
        assert await rekeyer.stop() == 0, rekeyer.said
        assert await worker.stop() == 0, worker.said
    passed = {
        one.key: one.value for part in (await broker.records(between)).values() for one in part
    }
    assert passed == {b"site/cam-1": value, b"k": b"no reference"}
    answers = [one for part in (await broker.records(topics.output)).values() for one in part]
    assert {answer.document["stream"] for answer in answers} == {"site/cam-1", "k"}
    await broker.until_committed(f"{between}.rekey", topics.input, {1: 1, 2: 1})
    assert await broker.committed(f"{between}.rekey", topics.input) == {1: 1, 2: 1}
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged
