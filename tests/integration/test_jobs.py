"""A backlog as a job, on the real services: announced from a list, and worked off to its end."""

import gzip
import json
from collections import Counter
from typing import Any

import pytest

from penstock.errors import EXIT_FATAL, EXIT_STOPPED
from tests.support.job import Job
from tests.support.kafka_proxy import Api, hold, proxy_before, refuse
from tests.support.loads import Load
from tests.support.model_proxy import ModelProxy
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker

STREAMS = 40
# Requests of a `produce` that Kafka takes: far fewer than its references need.
PASSED = 3
NOT_LEADER = 6  # a broker's code, for which its clients ask again


def inventory(s3: Any, bucket: str, rows: int) -> str:
    """The URL of an S3 Inventory of two files with so many objects each, none of which is there."""
    files = []
    for number in range(2):
        key = f"inventory/data/{number}.csv.gz"
        text = "".join(
            f'"{bucket}","site-{n % STREAMS}/{number}-{n}.csv","true","false","12"\n'
            for n in range(rows)
        )
        s3.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text.encode(), 1))
        files.append({"key": key, "size": 1, "MD5checksum": ""})
    manifest = {
        "sourceBucket": bucket, "destinationBucket": f"arn:aws:s3:::{bucket}",
        "version": "2016-11-30", "creationTimestamp": "1788220801000", "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, IsLatest, IsDeleteMarker, Size", "files": files,
    }  # fmt: skip
    s3.put_object(Bucket=bucket, Key="inventory/manifest.json", Body=json.dumps(manifest).encode())
    return f"s3://{bucket}/inventory/manifest.json"


async def test_a_list_killed_twice_is_announced_once_and_in_order(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows = 20_000
    url = inventory(s3, bucket, rows)
    environ = environment(services, topics)
    options = ("--manifest", url, "--resume")
    sent = 0
    for _ in range(2):
        async with proxy_before(services.bootstrap_servers) as kafka:
            # Only its first requests pass, so that it is not done before it is killed.
            kafka.plan(Api.PRODUCE, *[hold(0.0)] * PASSED, *[refuse(NOT_LEADER)] * 10_000)
            between = environ | {"PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": kafka.address}
            async with running_worker(between, *options, command="produce") as producing:

                async def goes_on(before: int = sent) -> bool:
                    return sum((await broker.ends(topics.input)).values()) > before

                await until(goes_on, "more references".__str__)
                await producing.kill()
        sent = sum((await broker.ends(topics.input)).values())
    assert 0 < sent < 2 * rows
    ended = await penstock("produce", *options, environ=environ)
    again = await penstock("produce", *options, environ=environ)
    assert ended.code == again.code == 0, ended.stderr + again.stderr
    assert f" objects on {topics.input} (" in ended.stdout.decode()
    assert f"all {2 * rows:,} objects were announced" in again.stdout.decode()
    places: list[tuple[int, int]] = []
    for records in (await broker.records(topics.input)).values():
        last = dict.fromkeys(range(STREAMS), (-1, -1))
        for record in records:
            stream, _, name = record.document["key"].partition("/")
            number, _, row = name.removesuffix(".csv").partition("-")
            place = int(number), int(row)
            assert last[int(stream.removeprefix("site-"))] < place
            last[int(stream.removeprefix("site-"))] = place
            places.append(place)
    assert len(places) == 2 * rows
    assert max(Counter(places).values()) == 1


async def told(environ: dict[str, str]) -> dict[str, Any]:
    """What penstock progress says."""
    ended = await penstock("progress", "--json", environ=environ)
    assert ended.code == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.fixture(scope="module")
def load() -> Load:
    """Some 2,000 rows of 60 archives."""
    return Load(60, rows=60)


async def test_two_workers_end_when_all_is_answered_though_one_was_killed(
    job: Job, proxy: ModelProxy
) -> None:
    """What is announced later is not theirs. The one that is started again has nothing to do."""
    await job.announce()
    changes = {"MODEL__URL": proxy.url, "MODEL__REQUEST": "float32"}
    changes["DELIVERY__GUARANTEE"] = "exactly_once"
    first, second = (job.environment(**changes) for _ in range(2))
    proxy.hold_after(0)
    assert (await told(first))["workers"] == 0
    async with running_worker(first, "--until-end") as one:
        await one.ready()
        await job.broker.publish(job.topics.input, [Message({"bucket": job.bucket, "key": "x"})])
        async with running_worker(second, "--until-end", "--strict") as other:
            await other.ready()
            await one.kill()
            held = await told(first)
            assert (held["references"], held["answered"]) == (60, 0)
            assert (held["left"], held["left_s"], held["errors"]) == (60, None, {})
            assert held["workers"] > 0
            proxy.release()
            other.may_end()
            assert await other.ended() == 0, other.said
    await job.done()
    assert await job.committed() == job.load.ends
    assert await job.places() == job.expected()
    ends = await job.broker.ends(job.topics.input)
    assert ends[0] == job.load.ends[0] + 1
    ended = await penstock("run", "--until-end", "--strict", environ=first)
    assert (ended.code, "1 of 1 references" in ended.stderr) == (1, True), ended.stderr
    assert "not_found 1" in ended.stderr
    lines = await told(first)
    assert (lines["references"], lines["answered"], lines["left_s"]) == (1, 1, 0.0)
    assert (lines["answered_by_errors"], lines["errors"]) == (1, {"not_found": 1})
    nothing = await penstock("run", "--until-end", "--strict", environ=first)
    assert nothing.code == 0


async def test_a_job_that_is_asked_to_end_before_its_end_is_not_done(
    job: Job, proxy: ModelProxy
) -> None:
    await job.announce()
    proxy.hold_after(0)
    environ = job.environment(
        MODEL__URL=proxy.url, MODEL__REQUEST="float32", DELIVERY__DRAIN_MS=100
    )
    async with running_worker(environ, "--until-end") as worker:
        await worker.ready()
        assert await worker.stop() == EXIT_STOPPED, worker.said
    proxy.release()
    ended = await penstock("run", "--until-end", "--processes", "2", environ=environ)
    assert ended.code == 0, ended.stderr
    assert await job.committed() == job.load.ends


async def test_a_job_ends_though_the_lines_that_stopped_are_in_several_workers(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, proxy: ModelProxy
) -> None:
    """Else each would wait for the partitions of the other."""
    s3.put_object(Bucket=bucket, Key="s/0.csv", Body=(",".join(["0.5"] * 16) + "\n").encode())
    keys = ["s/0.csv", *(f"s/missing-{n}.csv" for n in range(4))]
    await broker.publish(
        topics.input,
        [Message({"bucket": bucket, "key": key}, part) for part in range(4) for key in keys],
    )
    own = {"MODEL__URL": proxy.url, "MODEL__REQUEST": "float32", "LIMITS__DLQ_CONSECUTIVE": "2"}
    first, second = (environment(services, topics, None, **own) for _ in range(2))
    proxy.hold_after(0)
    async with (
        running_worker(first, "--until-end") as one,
        running_worker(second, "--until-end") as other,
    ):
        for worker in (one, other):
            await worker.ready()
            worker.may_end()
        proxy.release()
        for worker in (one, other):
            assert await worker.ended() == EXIT_FATAL, worker.said
            assert "every line " in worker.said
