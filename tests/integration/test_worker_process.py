"""The worker as a process on the real services: how it stops, dies, shares, and what it tells."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.loads import (
    Load,
    assert_predicted,
    csv,
    first_of_each,
    places_of,
)
from tests.support.model_proxy import ModelProxy, proxy_of
from tests.support.reference_model import numpy_answers, random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.waiting import until
from tests.support.worker import Worker, environment, penstock, running_worker

# About half of the 40 archives' requests; the rest is held back.
PASSED_REQUESTS = 60


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services) as broker:
        yield broker


@pytest.fixture
async def proxy(services: Services) -> AsyncIterator[ModelProxy]:
    async with proxy_of(services.model_url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def load() -> Load:
    return Load(40, rows=100)


def slowly(services: Services, topics: Topics, proxy: ModelProxy) -> dict[str, str]:
    """Few objects and few rows at a time, so that much is left to do in the middle."""
    return environment(
        services,
        topics,
        MODEL__URL=proxy.url,
        MODEL__REQUEST="float32",
        WINDOW__MAX_ROWS=16,
        OBJECTS__CONCURRENCY=4,
        LIMITS__IN_FLIGHT_OBJECTS=2,
    )


async def held_in_the_middle(
    worker: Worker, proxy: ModelProxy, broker: Broker, topics: Topics
) -> None:
    """Until requests are held back, and something but not all is committed."""
    committed: dict[int, int] = {}

    async def is_held() -> bool:
        nonlocal committed
        committed = await broker.committed(topics.input, topics.input)
        return len(proxy.requests) > PASSED_REQUESTS and sum(committed.values()) > 0

    await until(is_held, lambda: f"a load in the middle: {committed}, {worker.said}")
    assert sum(committed.values()) < 40


def assert_all_predicted(load: Load, topics: Topics, output: Any) -> None:
    assert_predicted(output, load.answers(topics.input, numpy_answers(load.rows)))


async def finish(environ: dict[str, str], load: Load, broker: Broker, topics: Topics) -> None:
    """Another worker of the group does the rest."""
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, load.ends)
        assert await worker.stop() == 0, worker.said


async def test_a_stop_in_the_middle_delivers_what_was_begun_and_the_next_worker_does_the_rest(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    proxy: ModelProxy,
    load: Load,
) -> None:
    load.store(s3, bucket)
    await broker.publish(topics.input, load.messages(bucket))
    proxy.hold_after(PASSED_REQUESTS)
    environ = slowly(services, topics, proxy)
    async with running_worker(environ) as worker:
        await held_in_the_middle(worker, proxy, broker, topics)
        worker.terminate()
        proxy.release()
        assert await worker.ended() == 0, worker.said
    stopped_at = await broker.committed(topics.input, topics.input)
    assert sum(stopped_at.values()) < 40
    output = places_of(await broker.records(topics.output))
    assert output == load.places(topics.input, below=stopped_at)

    await finish(environ, load, broker, topics)
    records = await broker.records(topics.output)
    assert places_of(records) == load.places(topics.input)
    assert_all_predicted(load, topics, records)


async def test_after_a_kill_in_the_middle_only_what_was_not_committed_is_repeated(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    proxy: ModelProxy,
    load: Load,
) -> None:
    load.store(s3, bucket)
    await broker.publish(topics.input, load.messages(bucket))
    proxy.hold_after(PASSED_REQUESTS)
    environ = slowly(services, topics, proxy)
    async with running_worker(environ) as worker:
        await held_in_the_middle(worker, proxy, broker, topics)
        await worker.kill()
    committed = await broker.committed(topics.input, topics.input)
    before = places_of(await broker.records(topics.output))
    answered = load.places(topics.input, below=committed)
    assert all(before[number][: len(answered[number])] == answered[number] for number in before)

    proxy.release()
    await finish(environ, load, broker, topics)
    records = await broker.records(topics.output)
    output = places_of(records)
    assert first_of_each(output) == load.places(topics.input)
    assert_all_predicted(load, topics, records)
    for number, places in output.items():
        repeated = places[len(before[number]) :]
        again = {place.id for place in repeated} & {place.id for place in before[number]}
        assert not again & {place.id for place in answered[number]}


async def test_when_one_of_two_workers_stops_the_other_takes_over_its_partitions(
    services: Services,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    proxy: ModelProxy,
    load: Load,
) -> None:
    load.store(s3, bucket)
    proxy.hold_after(PASSED_REQUESTS)
    environ = slowly(services, topics, proxy)
    other = environment(services, topics)["PENSTOCK_HTTP__PORT"]
    async with (
        running_worker(environ) as leaving,
        running_worker(environ | {"PENSTOCK_HTTP__PORT": other}) as staying,
    ):
        await leaving.ready(partitions=2)
        await staying.ready(partitions=2)
        await broker.publish(topics.input, load.messages(bucket))
        await held_in_the_middle(leaving, proxy, broker, topics)
        leaving.terminate()
        proxy.release()
        assert await leaving.ended() == 0, leaving.said
        await staying.ready(partitions=4)
        await broker.until_committed(topics.input, topics.input, load.ends)
        assert await staying.stop() == 0, staying.said
    records = await broker.records(topics.output)
    assert places_of(records) == load.places(topics.input)
    assert_all_predicted(load, topics, records)


async def test_the_worker_tells_its_health_its_readiness_and_its_metrics(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    async with running_worker(environment(services, topics)) as worker:
        await worker.ready(partitions=4)
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
        await broker.until_committed(topics.input, topics.input, {0: 1})
        assert await worker.get("/healthz") == (200, "ok\n")
        status, metrics = await worker.get("/metrics")
        assert status == 200
        assert "penstock_rows_delivered_total 5.0" in metrics.splitlines()
        assert "penstock_partitions 4.0" in metrics.splitlines()
        assert await worker.stop() == 0


async def test_a_worker_whose_model_does_not_answer_is_alive_but_not_ready(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, MODEL__URL="http://127.0.0.1:1")
    async with running_worker(environ) as worker:

        async def is_assigned() -> bool:
            return "assigned partitions [0, 1, 2, 3]" in worker.said

        await until(is_assigned, lambda: worker.said)
        assert await worker.get("/healthz") == (200, "ok\n")
        assert await worker.get("/readyz") == (503, "the model does not answer\n")
        assert await worker.stop() == 0


async def test_topics_are_created_once_however_often_one_asks(
    services: Services, topics: Topics, broker: Broker
) -> None:
    fresh = Topics(*(f"{name}-more" for name in topics))
    environ = environment(services, fresh)
    first = await penstock("topics", "create", "--partitions", "3", environ=environ)
    again = await penstock("topics", "create", "--partitions", "3", environ=environ)
    try:
        assert first.stdout.decode().splitlines() == [f"{name}: created" for name in fresh]
        assert again.stdout.decode().splitlines() == [f"{name}: was there" for name in fresh]
        assert first.code == again.code == 0
        assert [len(await broker.ends(name)) for name in fresh] == [3, 3, 3]
    finally:
        await broker.delete(fresh)


async def test_the_configuration_is_shown_without_its_secrets(
    services: Services, topics: Topics
) -> None:
    environ = environment(services, topics, KAFKA__SASL_PASSWORD="open sesame")
    shown = await penstock("config", environ=environ)
    assert shown.code == 0
    document = json.loads(shown.stdout)
    assert document["kafka"]["input_topic"] == topics.input
    assert document["objects"]["endpoint_url"] == services.endpoint_url
    for secret in (services.secret, "open sesame"):
        assert secret not in shown.stdout.decode() + shown.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"OUTPUT__TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"OUTPUT__DLQ_TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"KAFKA__INPUT_TOPIC": "no-such-topic"}, ["no-such-topic", "penstock topics create"]),
        ({"KAFKA__INPUTTOPIC": "refs"}, ["kafka.inputtopic", "did you mean input_topic?"]),
        ({"WINDOW__MAX_ROWS": "many"}, ["max_rows"]),
        ({"MODEL__URL": "localhost"}, ["model.url", "http://"]),
    ],
)
async def test_a_wrong_setting_ends_the_start_with_the_mend(
    services: Services, topics: Topics, broker: Broker, wrong: dict[str, str], says: list[str]
) -> None:
    ended = await penstock("run", environ=environment(services, topics, **wrong))
    assert ended.code == 2
    assert all(text in ended.stderr for text in says), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "no-such-topic" not in await broker.topics()


async def test_an_output_topic_with_fewer_partitions_than_the_input_is_refused(
    services: Services, topics: Topics, make_topics: Any
) -> None:
    narrow = await make_topics(2)
    ended = await penstock(
        "run", environ=environment(services, topics, OUTPUT__TOPIC=narrow.output)
    )
    assert ended.code == 2
    assert f"{narrow.output} has 2 partitions, {topics.input} has 4" in ended.stderr


async def test_a_model_that_is_not_there_stops_the_worker_with_its_name_and_place(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])
    ended = await penstock("run", environ=environment(services, topics, MODEL__NAME="rose"))
    assert ended.code == 2
    assert f"{services.model_url}/predictions/rose" in ended.stderr
    assert "model.name" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert await broker.committed(topics.input, topics.input) == {}
    assert sum((await broker.ends(topics.output)).values()) == 0
