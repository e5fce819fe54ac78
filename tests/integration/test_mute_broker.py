"""A broker that falls silent: a worker ends with 3, and says in which step it waited.

It still accepts connections and says nothing: everything that can hang, hangs. The broker is the
real one, behind a proxy that can be mute, so that the tests beside these have theirs.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from penstock.adapters.kafka.client import COMMIT_S
from tests.support.kafka_proxy import KafkaProxy, proxy_before
from tests.support.loads import csv
from tests.support.model_proxy import proxy_of
from tests.support.reference_model import random_rows
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.waiting import until
from tests.support.worker import environment, running_worker

# Long enough for whatever answers at all on a busy machine.
SHORT_MS = 10_000
# Longer than that, so that the worker still takes itself for a member.
SESSION_MS = 45_000
ROWS = 5


@pytest_asyncio.fixture(loop_scope="function")
async def kafka(services: Services) -> AsyncIterator[KafkaProxy]:
    async with proxy_before(services.bootstrap_servers) as proxy:
        yield proxy


async def test_a_broker_that_falls_silent_before_a_delivery_ends_the_worker_with_3(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, kafka: KafkaProxy
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(5)))
    async with proxy_of(services.model_url) as proxy:
        proxy.hold_after(0)
        environ = environment(
            services,
            topics,
            MODEL__URL=proxy.url,
            MODEL__REQUEST="float32",
            KAFKA__BOOTSTRAP_SERVERS=kafka.address,
            KAFKA__TIMEOUT_MS=SHORT_MS,
            KAFKA__SESSION_MS=SESSION_MS,
        )
        async with running_worker(environ) as worker:
            await worker.ready(partitions=4)
            await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])

            async def is_held() -> bool:
                return len(proxy.requests) > 0

            await until(is_held, lambda: worker.said)
            with kafka.mute():
                proxy.release()
                worker.may_end()
                assert await worker.ended() == 3, worker.said
            message = f"Kafka did not answer the delivery of a batch to {topics.output} within 10 s"
            assert message in worker.said
            assert "Traceback" not in worker.said


async def test_a_broker_that_falls_silent_before_the_last_commit_ends_the_worker_with_3(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, kafka: KafkaProxy
) -> None:
    s3.put_object(Bucket=bucket, Key="a.csv", Body=csv(random_rows(ROWS)))
    environ = environment(
        services,
        topics,
        KAFKA__BOOTSTRAP_SERVERS=kafka.address,
        DELIVERY__COMMIT_INTERVAL_MS=3_600_000,
    )
    async with running_worker(environ) as worker:
        await worker.ready(partitions=4)
        await broker.publish(topics.input, [Message({"bucket": bucket, "key": "a.csv"})])

        async def is_acknowledged() -> bool:
            # Its answers are on the topic a moment before it hears so.
            page = (await worker.get("/metrics"))[1]
            return f"penstock_rows_delivered_total {ROWS:.1f}" in page

        await until(is_acknowledged, lambda: worker.said)
        with kafka.mute():
            assert await worker.stop() == 3, worker.said
        assert "the last commit failed" in worker.said
        assert f"Kafka did not answer the commit within {COMMIT_S:g} s" in worker.said
        assert "Traceback" not in worker.said


async def test_a_broker_that_is_silent_at_the_stop_ends_the_worker_with_3(
    services: Services, topics: Topics, kafka: KafkaProxy
) -> None:
    environ = environment(services, topics, KAFKA__BOOTSTRAP_SERVERS=kafka.address)
    async with running_worker(environ) as worker:
        await worker.ready(partitions=4)
        with kafka.mute():
            assert await worker.stop() == 3, worker.said
        assert "Kafka did not answer the end of the consumer within 2 s" in worker.said
        assert "Traceback" not in worker.said
