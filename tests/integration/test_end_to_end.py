"""The main job on the real services: what is put into a bucket is answered on the output topic."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest

from penstock import predict
from tests.support.job import Job
from tests.support.loads import Load, csv, tar_gz
from tests.support.model_proxy import ModelProxy
from tests.support.reference_model import Rows, numpy_answers, random_rows, torch_answers
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, Record, broker_of
from tests.support.waiting import until
from tests.support.worker import environment, penstock, running_worker


@pytest.fixture(scope="module")
def load(services: Services) -> Load:
    """40 archives in 8 streams over 4 partitions."""
    return Load(40, rows=700)


@pytest.fixture(scope="module")
def answers(load: Load, services: Services) -> list[dict[str, Any]]:
    """By torch where it is at hand, else by numpy."""
    python = services.torch_python
    return torch_answers(load.rows, python) if python else numpy_answers(load.rows)


@pytest.mark.parametrize("key", ["a.csv", "site 1/cam+3/ü.csv", "100%/a&b=c/[1].csv"])
async def test_a_file_put_into_the_bucket_is_predicted_with_no_further_step(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, key: str
) -> None:
    events = [{"QueueArn": services.events_arn, "Events": ["s3:ObjectCreated:*"]}]
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": events}
    )
    wired = topics._replace(input=services.input_topic)
    group = f"events-{uuid.uuid4().hex[:12]}"
    # The topic is everybody's: only what comes from now on may be ours.
    await broker.skip_to_the_end(group, services.input_topic)
    rows = random_rows(3)

    async def ours() -> list[dict[str, Any]]:
        """The answers about this bucket; those of tests that run beside this one are there, too."""
        found = (await broker.records(topics.output)).values()
        documents = [record.document for records in found for record in records]
        return [
            document for document in documents if (document["object"] or {}).get("bucket") == bucket
        ]

    async def are_answered() -> bool:
        return len(await ours()) >= len(rows)

    async with running_worker(environment(services, wired, group)) as worker:
        await worker.ready()
        s3.put_object(Bucket=bucket, Key=key, Body=csv(rows))
        await until(are_answered, lambda: f"the rows of {key}: {worker.said}")
        assert await worker.stop() == 0, worker.said
    documents = await ours()
    assert [(document["object"]["key"], document["row"]) for document in documents] == [
        (key, 0), (key, 1), (key, 2)
    ]  # fmt: skip
    assert [document["prediction"]["score"] for document in documents] == pytest.approx(
        [answer["score"] for answer in numpy_answers(rows)], abs=1e-5
    )


async def test_changes_of_tags_and_legal_holds_are_no_new_objects(
    services: Services, topics: Topics, s3: Any, broker: Broker
) -> None:
    bucket = f"locked-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    events = [{"QueueArn": services.events_arn, "Events": ["s3:ObjectCreated:*"]}]
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": events}
    )
    wired = topics._replace(input=services.input_topic)
    group = f"tags-{uuid.uuid4().hex[:12]}"
    await broker.skip_to_the_end(group, services.input_topic)
    named = {"Bucket": bucket, "Key": "site 1/a.csv"}

    async def ours() -> list[dict[str, Any]]:
        found = (await broker.records(topics.output)).values()
        documents = [record.document for records in found for record in records]
        return [
            document for document in documents if (document["object"] or {}).get("bucket") == bucket
        ]

    async def is_last_answered() -> bool:
        return any(our["object"]["key"] == "last.csv" for our in await ours())

    async with running_worker(environment(services, wired, group)) as worker:
        await worker.ready()
        s3.put_object(**named, Body=csv(random_rows(1)))
        s3.put_object_tagging(**named, Tagging={"TagSet": [{"Key": "scan", "Value": "clean"}]})
        s3.delete_object_tagging(**named)
        s3.put_object_legal_hold(**named, LegalHold={"Status": "ON"})
        s3.put_object_legal_hold(**named, LegalHold={"Status": "OFF"})
        s3.copy_object(Bucket=bucket, Key="last.csv", CopySource=named)
        await until(is_last_answered, lambda: worker.said)
        metrics, said = (await worker.get("/metrics"))[1], worker.said
        assert await worker.stop() == 0, worker.said
    # The bucket's name decides which partition has which.
    assert sorted(our["object"]["key"] for our in await ours()) == ["last.csv", "site 1/a.csv"]
    for kind in ("PutTagging", "DeleteTagging", "PutLegalHold"):
        assert f'penstock_events_ignored_total{{kind="ObjectCreated:{kind}"}}' in metrics
        assert said.count(f"ObjectCreated:{kind} announce no new bytes") == 1
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    for listed in s3.list_object_versions(Bucket=bucket)["Versions"]:
        s3.delete_object(Bucket=bucket, Key=listed["Key"], VersionId=listed["VersionId"])
    s3.delete_bucket(Bucket=bucket)


@pytest.mark.parametrize(
    "changes",
    [
        {"MODEL__REQUEST": "float32"},
        {"MODEL__REQUEST": "json"},
        {"MODEL__REQUEST": "instances"},
        {"MODEL__REQUEST": "float32", "OBJECTS__CLIENT": "s3fs"},
        {"MODEL__REQUEST": "float32", "KAFKA__CLIENT": "confluent"},
    ],
    ids=["float32", "json", "instances", "s3fs", "confluent"],
)
async def test_every_row_of_40_archives_is_answered_once_in_order_and_committed(
    job: Job, answers: list[dict[str, Any]], changes: dict[str, str]
) -> None:
    async with running_worker(job.environment(**changes)) as worker:
        await job.announce()
        await job.finish(worker)
    await job.assert_answered(answers)
    assert await job.committed() == job.load.ends
    output = await job.broker.records(job.topics.output)
    assert {record.key for record in output[0]} == {b"site-0", b"site-4"}
    assert sum((await job.broker.ends(job.topics.dlq)).values()) == 0


async def test_no_offset_is_committed_before_its_answers_are_on_the_topic(
    job: Job, proxy: ModelProxy
) -> None:
    samples: list[tuple[dict[int, int], dict[int, int]]] = []

    async def sample_forever() -> None:
        async with broker_of(job.services) as observer:
            while True:
                committed = await job.committed(observer)
                samples.append((committed, await observer.ends(job.topics.output)))

    async def seen_in_the_middle() -> bool:
        return any(0 < sum(committed.values()) < 40 for committed, _ in samples)

    # Half of the requests pass until the commits in the middle are seen.
    proxy.hold_after(len(job.load.rows) // 2)
    environ = job.environment(
        MODEL__URL=proxy.url,
        MODEL__REQUEST="float32",
        WINDOW__MAX_ROWS=64,
        DELIVERY__COMMIT_INTERVAL_MS=5,
    )
    async with running_worker(environ) as worker:
        sampling = asyncio.create_task(sample_forever())
        await job.announce()
        await until(seen_in_the_middle, lambda: f"commits in the middle: {samples[-1:]}")
        proxy.release()
        await job.done()
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        assert await worker.stop() == 0
    output = await job.places()
    for committed, ends in samples:
        for number, places in job.expected(below=committed).items():
            assert output[number][: ends[number]][: len(places)] == places


async def test_rows_of_all_partitions_and_streams_share_one_model_request(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, proxy: ModelProxy
) -> None:
    rows = random_rows(16)
    messages = []
    for stream in range(8):
        key = f"{stream}.csv"
        s3.put_object(Bucket=bucket, Key=key, Body=csv(rows[2 * stream : 2 * stream + 2]))
        messages.append(Message({"bucket": bucket, "key": key, "stream": key}, stream % 4))
    # So long a wait that only the sixteenth row can have closed the batch.
    environ = environment(
        services,
        topics,
        MODEL__URL=proxy.url,
        MODEL__REQUEST="float32",
        WINDOW__MAX_ROWS=16,
        WINDOW__MAX_WAIT_MS=600_000,
    )
    async with running_worker(environ) as worker:
        await broker.publish(topics.input, messages)
        await broker.until_committed(topics.input, topics.input, dict.fromkeys(range(4), 2))
        assert await worker.stop() == 0
    (request,) = proxy.requests
    assert sorted(request.tolist()) == sorted(rows.tolist())


async def test_a_lone_row_is_answered_without_company(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, proxy: ModelProxy
) -> None:
    row = random_rows(1)
    s3.put_object(Bucket=bucket, Key="lone.csv", Body=csv(row))
    environ = environment(services, topics, MODEL__URL=proxy.url, MODEL__REQUEST="float32")
    async with running_worker(environ) as worker:
        await worker.ready()
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "lone.csv"})])
        await broker.until_answered(topics.output, 1)
        assert await worker.stop() == 0
    (request,) = proxy.requests
    np.testing.assert_array_equal(request, row)


async def test_several_objects_in_one_message_and_rows_inside_a_message_are_answered_in_order(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    rows = random_rows(4)
    for name, part in {"a.csv": rows[:1], "b.csv": rows[1:3]}.items():
        s3.put_object(Bucket=bucket, Key=name, Body=csv(part))
    objects = [{"bucket": bucket, "key": "a.csv"}, {"url": f"s3://{bucket}/b.csv"}]
    messages = [{"objects": objects}, {"stream": "cam-1", "inline": rows[3:].tolist()}]
    async with running_worker(environment(services, topics)) as worker:
        await broker.publish(topics.input, [Message(message) for message in messages])
        await broker.until_committed(topics.input, topics.input, {0: 2})
        assert await worker.stop() == 0
    documents = [record.document for record in (await broker.records(topics.output))[0]]
    ends = ["0/0/0", "0/1/0", "0/1/1", "1/0/0"]
    assert [answer["id"] for answer in documents] == [f"{topics.input}/0/{end}" for end in ends]
    assert [answer["prediction"]["score"] for answer in documents] == pytest.approx(
        [answer["score"] for answer in numpy_answers(rows)], abs=1e-5
    )


SIZES = (0, 1, 511, 512, 513, 1025)


def store_archive(s3: Any, bucket: str, rows: Rows) -> str:
    parts = np.array_split(rows, 2)
    data = tar_gz((f"{i}.csv", csv(part)) for i, part in enumerate(parts))
    s3.put_object(Bucket=bucket, Key=f"{len(rows)}.tar.gz", Body=data)
    return f"s3://{bucket}/{len(rows)}.tar.gz"


def point_at(services: Services, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library reads the environment; the URL of the model is an argument of its own."""
    for name in ("endpoint_url", "key", "secret", "region"):
        monkeypatch.setenv(f"PENSTOCK_OBJECTS__{name.upper()}", getattr(services, name))
    return f"{services.model_url}/predictions/{services.model_name}"


@pytest.mark.parametrize("count", SIZES)
async def test_the_library_gives_every_row_of_an_archive_in_order(
    services: Services, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    rows = random_rows(count)
    url = store_archive(s3, bucket, rows)
    results = [found async for found in predict(url, model=point_at(services, monkeypatch))]
    if not count:
        (marker,) = results
        assert (marker.row, marker.last, marker.rows, marker.error) == (None, True, 0, None)
        return
    assert [result.row for result in results] == list(range(count))
    assert [result.last for result in results] == [False] * (count - 1) + [True]
    assert [result.prediction["score"] for result in results] == pytest.approx(
        [answer["score"] for answer in numpy_answers(rows)], abs=1e-5
    )


async def test_leaving_the_library_call_early_ends_it(
    services: Services, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store_archive(s3, bucket, random_rows(1025))
    results = predict(url, model=point_at(services, monkeypatch))
    assert (await anext(results)).row == 0
    await results.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_predict_command_prints_every_row_of_all_archives_in_order(
    services: Services, topics: Topics, bucket: str, s3: Any
) -> None:
    for count in SIZES:
        store_archive(s3, bucket, random_rows(count))
    arguments = ("--model", f"{services.model_url}/predictions/{services.model_name}")
    done = await penstock(
        "predict", f"s3://{bucket}/*.tar.gz", *arguments, environ=environment(services, topics)
    )
    assert done.code == 0, done.stderr
    documents = [Record(0, None, line).document for line in done.stdout.splitlines()]
    assert [(line["object"]["key"], line["row"]) for line in documents] == [
        (f"{count}.tar.gz", row)
        for count in sorted(SIZES, key=str)
        for row in (range(count) if count else (None,))
    ]
    assert orjson.loads(done.stdout.splitlines()[0])["rows"] == 0
