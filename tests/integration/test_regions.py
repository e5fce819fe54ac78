"""Two regions, each with a MinIO: one is killed under load, and comes back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from realstack.minio import s3_client
from tests.support.job import Job
from tests.support.loads import Load
from tests.support.own_minio import OwnMinio
from tests.support.services import Services, stack_status
from tests.support.waiting import until
from tests.support.worker import Worker, running_worker


@pytest.fixture(scope="module")
def load(services: Services) -> Load:
    """24 archives in 8 streams over 4 partitions."""
    return Load(24, rows=300)


@pytest_asyncio.fixture(loop_scope="function")
async def near(services: Services, tmp_path: Path) -> AsyncIterator[OwnMinio]:
    """The worker's own region."""
    if stack_status()["how"] != "local":
        pytest.skip("MinIO is built for local processes only")
    minio = OwnMinio(tmp_path, services.bootstrap_servers)
    try:
        await minio.start()
        yield minio
    finally:
        minio.kill()


@asynccontextmanager
async def reading(job: Job, near: OwnMinio) -> AsyncIterator[Worker]:
    """A worker of the near region, with the far one behind it."""
    services = job.services
    settings: dict[str, Any] = {
        "OBJECTS__ENDPOINT_URL": near.url,
        "OBJECTS__REPLICAS": "far",
        "STORES__FAR__URL": "s3://",
        "STORES__FAR__ENDPOINT_URL": services.endpoint_url,
        "STORES__FAR__KEY": services.key,
        "STORES__FAR__SECRET": services.secret,
        "STORES__FAR__REGION": services.region,
    }
    async with running_worker(job.environment(**settings)) as worker:
        yield worker


async def bytes_by_store(worker: Worker) -> dict[str, float]:
    _, page = await worker.get("/metrics")
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[:1] != "#")
    name = "penstock_store_bytes_total"
    return {
        store: float(found.get(f'{name}{{store="{store}"}}', 0)) for store in ("objects", "far")
    }


async def test_a_region_that_dies_under_load_costs_no_row_and_is_used_again(
    job: Job, near: OwnMinio
) -> None:
    store = s3_client(near.url, job.services.key, job.services.secret, job.services.region)
    store.create_bucket(Bucket=job.bucket)
    job.load.store(store, job.bucket)
    store.close()
    messages, topic = job.load.messages(job.bucket), job.topics.input
    async with reading(job, near) as worker:
        await job.broker.publish(topic, messages[:8])
        await job.broker.until_answered(job.topics.output, 100)
        near.kill()
        await job.broker.publish(topic, messages[8:16])
        await job.broker.until_committed(topic, topic, ends_of(messages[:16]))
        cut_off = await bytes_by_store(worker)
        assert min(cut_off.values()) > 0
        await near.start()

        ends = ends_of(messages[:16])
        probe = messages[16]

        async def is_back() -> bool:
            """The replica is asked for 5 s more; then what is announced is read nearby again."""
            await job.broker.publish(topic, [probe])
            ends[probe.partition] += 1
            await job.broker.until_committed(topic, topic, ends)
            return (await bytes_by_store(worker))["objects"] > cut_off["objects"]

        await until(is_back, lambda: worker.said)
        assert await worker.stop() == 0, worker.said
    found, expected = await job.places(), job.expected(below=ends_of(messages[:16]))
    for partition, places in expected.items():
        assert found[partition][: len(places)] == places
    assert not any((await job.broker.records(job.topics.dlq)).values())


def ends_of(messages: list[Any]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for message in messages:
        ends[message.partition] = ends.get(message.partition, 0) + 1
    return ends
