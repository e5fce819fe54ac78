"""The main job with its objects in other stores than S3, and with one store that is away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.clouds import SHELVES, AzureShelf, GcsShelf
from tests.support.job import Job
from tests.support.loads import Load
from tests.support.relay import relay_to
from tests.support.services import Services, Unavailable
from tests.support.topic_tools import Message
from tests.support.waiting import until
from tests.support.worker import running_worker

pytestmark = pytest.mark.model_servers("gcs", "azure")


@pytest.fixture(scope="module")
def load(services: Services) -> Load:
    """16 archives in 8 streams over 4 partitions: those of even partitions have even numbers."""
    return Load(16, rows=300)


def cloud(name: str) -> GcsShelf | AzureShelf:
    try:
        return SHELVES[name]()
    except Unavailable as missing:
        pytest.skip(str(missing))


def variables(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        f"STORES__{name.upper()}__{key.upper()}": value
        for key, value in settings.items()
        if value is not None and value != {}
    }


def of_store(messages: list[Message], store: str) -> list[Message]:
    return [message._replace(value={**message.value, "store": store}) for message in messages]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The files of a folder over HTTP, with entity tags and ranges; host and port."""
    app = web.Application()
    app.router.add_static("/", folder)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def place_of(
    kind: str, load: Load, tmp_path: Path
) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """The load is there; the settings of a store, and the bucket."""
    if kind in SHELVES:
        shelf = cloud(kind)
        for archive in load.archives:
            shelf.put(archive.key, archive.data)
        shelf.close()
        fields = {key: getattr(shelf.settings, key) for key in shelf.settings.__struct_fields__}
        yield {key: fields[key] for key in CHOSEN}, shelf.bucket
        return
    for archive in load.archives:
        path = tmp_path / "bucket" / archive.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.data)
    if kind == "folder":
        yield {"url": tmp_path.as_uri()}, "bucket"
        return
    async with served(tmp_path / "bucket") as address:
        yield {"url": "http://"}, address


CHOSEN = ("url", "endpoint_url", "account", "secret", "anon")


@pytest.mark.parametrize("kind", [*SHELVES, "folder", "fsspec"])
async def test_objects_of_any_store_are_predicted_in_order(
    job: Job, kind: str, tmp_path: Path
) -> None:
    async with place_of(kind, job.load, tmp_path) as (settings, bucket):
        environ = job.environment(**variables("there", settings))
        async with running_worker(environ) as worker:
            messages = of_store(job.load.messages(bucket), "there")
            await job.broker.publish(job.topics.input, messages)
            await job.finish(worker)
    await job.assert_answered()
    records = await job.broker.records(job.topics.output)
    stores = {one.document["object"]["store"] for of_part in records.values() for one in of_part}
    assert stores == {"there"}


async def test_a_store_that_is_away_keeps_nobody_from_the_others(job: Job, tmp_path: Path) -> None:
    """Azure's stand-in: Google's answers under its own address only, so that nothing may stand
    before it.
    """
    async with place_of("azure", job.load, tmp_path) as (settings, bucket):
        address = settings["endpoint_url"].split("/")[2]
        async with relay_to(address) as relay:
            settings["endpoint_url"] = settings["endpoint_url"].replace(address, relay.address)
            environ = job.environment(**variables("far", settings))
            near = job.load.messages(job.bucket)
            far = of_store(job.load.messages(bucket), "far")
            ends = job.load.ends
            async with running_worker(environ) as worker:
                both = [
                    far[n] if message.partition % 2 else message for n, message in enumerate(near)
                ]
                await job.broker.publish(job.topics.input, both)
                topic = job.topics.input
                await job.broker.until_committed(topic, topic, {n: ends[n] for n in (0, 2)})
                assert not (await job.committed()).keys() & {1, 3}

                async def is_told() -> bool:
                    return "the object store far does not answer" in worker.said

                # A client of a store asks several times before it says so.
                await until(is_told, lambda: worker.said)
                await relay.listen()
                await job.finish(worker)
    await job.assert_answered()


async def test_a_worker_that_is_killed_goes_on_where_it_was(job: Job, tmp_path: Path) -> None:
    """On a store without versions: the file's tag binds the cursor."""
    async with place_of("fsspec", job.load, tmp_path) as (settings, bucket):
        changes: dict[str, Any] = {"DELIVERY__COMMIT_INTERVAL_MS": 50, "WINDOW__MAX_ROWS": 64}
        environ = job.environment(**variables("there", settings), **changes)
        messages = of_store(job.load.messages(bucket), "there")
        async with running_worker(environ) as worker:
            await job.broker.publish(job.topics.input, messages)
            await job.broker.until_answered(job.topics.output, 500)
            await worker.kill()
        async with running_worker(environ) as worker:
            # On a busy machine the first one may have committed all, and be killed after that.
            await worker.alive()
            await job.finish(worker)
    found, wanted = await job.places(), job.expected()
    for partition, places in wanted.items():
        assert list(dict.fromkeys(found[partition])) == places
    await job.assert_predicted()


async def test_a_replica_takes_over_in_the_middle(job: Job) -> None:
    services = job.services
    async with relay_to(services.endpoint_url.partition("://")[2]) as relay:
        await relay.listen()
        us = {
            "url": "s3://",
            "endpoint_url": services.endpoint_url,
            "key": services.key,
            "secret": services.secret,
            "region": services.region,
        }
        changes = {"OBJECTS__ENDPOINT_URL": f"http://{relay.address}", "OBJECTS__REPLICAS": "us"}
        environ = job.environment(**changes, **variables("us", us))
        messages = job.load.messages(job.bucket)
        async with running_worker(environ) as worker:
            await job.broker.publish(job.topics.input, messages[:8])
            await job.broker.until_answered(job.topics.output, 200)
            await relay.close()
            await job.broker.publish(job.topics.input, messages[8:])
            await job.done()
            _, metrics = await worker.get("/metrics")
            assert await worker.stop() == 0, worker.said
    await job.assert_answered()
    counted = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[:1] != "#")
    for store in ("objects", "us"):
        assert float(counted[f'penstock_store_bytes_total{{store="{store}"}}']) > 0
    assert float(counted['penstock_store_failovers_total{store="objects"}']) > 0
