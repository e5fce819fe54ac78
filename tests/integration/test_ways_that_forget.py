"""All connections to Kafka, store and model are forgotten on their way, and nobody is told.

What is announced then is answered within seconds, and no life ends. `Way.forget` stands for the
load balancer's timer; that connections are forgotten while they carry something is the harder case.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.integration.test_scenes_lives import IMPATIENT, each_engine, said, yard
from tests.support.broker_stage import CLIENTS
from tests.support.forgetful_way import Way, way_to
from tests.support.kafka_proxy import proxy_before
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message, broker_of
from tests.support.waiting import until
from tests.support.worker import environment, running_worker

PARTITIONS = 4
ROWS = 5
# One wait for a dead connection is 4 s. The rest is for a busy machine.
BOUND_S = 20.0


class Ways(NamedTuple):
    services: Services  # as they are seen from behind the ways
    kafka: Way
    others: list[Way]

    def forget(self) -> None:
        assert self.kafka.forget() > 0
        for way in self.others:
            way.forget()


@asynccontextmanager
async def ways_to(services: Services) -> AsyncIterator[Ways]:
    """The broker tells its address, so a proxy before it tells the way's instead."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(proxy_before(services.bootstrap_servers))
        kafka = await stack.enter_async_context(way_to(proxy.address))
        proxy.port = kafka.port
        store, model = [
            await stack.enter_async_context(way_to(urlsplit(url).netloc))
            for url in (services.endpoint_url, services.model_url)
        ]
        seen = replace(
            services,
            bootstrap_servers=kafka.address,
            endpoint_url=f"http://{store.address}",
            model_url=f"http://{model.address}",
        )
        yield Ways(seen, kafka, [store, model])


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services, "read_committed") as broker:
        yield broker


@pytest.fixture
async def ways(services: Services) -> AsyncIterator[Ways]:
    async with ways_to(services) as ways:
        yield ways


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_what_comes_after_a_silence_is_answered_within_seconds(
    ways: Ways,
    topics: Topics,
    bucket: str,
    s3: Any,
    broker: Broker,
    guarantee: str,
    client: str,
) -> None:
    now_s = asyncio.get_running_loop().time
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(ROWS)))
    messages = [Message({"bucket": bucket, "key": "a.csv"}, n) for n in range(PARTITIONS)]
    environ = environment(
        ways.services, topics, DELIVERY__GUARANTEE=guarantee, KAFKA__CLIENT=client
    )
    async with running_worker(environ) as worker:
        await worker.ready(partitions=PARTITIONS)
        for silence in range(3):
            if silence:
                ways.forget()
            began_s = now_s()
            await broker.publish(topics.input, messages)
            rows = (silence + 1) * ROWS * PARTITIONS

            async def are_there(rows: int = rows) -> bool:
                read = await broker.records(topics.output)
                return sum(map(len, read.values())) >= rows

            await until(are_there, lambda: worker.said)
            assert not silence or now_s() - began_s < BOUND_S, worker.said
        assert await worker.stop() == 0, worker.said
    read = await broker.records(topics.output)
    ids = [each.document["id"] for records in read.values() for each in records]
    assert len(set(ids)) == 3 * ROWS * PARTITIONS
    assert guarantee == "at_least_once" or len(ids) == len(set(ids))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_a_connection_that_dies_under_load_ends_no_life(
    ways: Ways, topics: Topics, bucket: str, s3: Any, broker: Broker, guarantee: str
) -> None:
    """Requests are under way on all of them."""
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(ROWS)))
    s3.put_object(Bucket=bucket, Key="large.csv", Body=csv(random_rows(200_000)))
    environ = environment(ways.services, topics, DELIVERY__GUARANTEE=guarantee)
    async with running_worker(environ) as worker:
        await worker.ready(partitions=PARTITIONS)
        large = Message({"bucket": bucket, "key": "large.csv"}, 0)
        small = [Message({"bucket": bucket, "key": "a.csv"}, n) for n in range(1, PARTITIONS)]
        await broker.publish(topics.input, [large, *small * 200])
        await broker.until_answered(topics.output, 1_000)
        ways.forget()
        await broker.until_committed(topics.input, topics.input, {0: 1, 1: 200, 2: 200, 3: 200})
        assert await worker.stop() == 0, worker.said


@each_engine
async def test_scenes_are_told_after_a_silence(
    ways: Ways, topics: Topics, broker: Broker, tmp_path: Path, engine: str
) -> None:
    now_s = asyncio.get_running_loop().time
    changes = IMPATIENT | {"SCENES__ENGINE": engine}
    async with (
        yard(ways.services, topics, broker, tmp_path, **changes) as site,
        site.life("ab"),
    ):
        await site.say([said("a", 0), said("b", 0)])
        await site.until_there("complete", [0])
        ways.kafka.forget()
        began_s = now_s()
        await site.say([said("a", 1), said("b", 1)])
        await site.until_there("complete", [1])
        assert now_s() - began_s < BOUND_S
