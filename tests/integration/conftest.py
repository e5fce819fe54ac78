"""Fixtures of the tests on real services: the services, fresh topics, a fresh bucket.

Rule: every test in this folder carries the marker `stack`. The services are brought up before the
clock of the first such test starts; model servers beside TorchServe only if a chosen test names
them by the marker `model_servers`.
"""

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from penstock.adapters.kafka.topics import controller_known, topics_known
from realstack.minio import s3_client
from tests.support.job import Job
from tests.support.lanes import ON_SERVICES
from tests.support.loads import Load
from tests.support.model_proxy import ModelProxy, proxy_of
from tests.support.services import Services, Topics, Unavailable, find
from tests.support.topic_tools import Broker, broker_of

FOUND = pytest.StashKey[Services | Exception]()
CLEANUP = pytest.StashKey[ExitStack]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ON_SERVICES):
            item.add_marker("stack")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Before the test's clock starts: the services."""
    if not item.get_closest_marker("stack"):
        return (yield)
    config = item.config
    if FOUND not in config.stash:
        cleanup = config.stash[CLEANUP] = ExitStack()
        # Building the services takes minutes the first time: their progress is to be seen.
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            try:
                config.stash[FOUND] = find(cleanup, _model_servers(item.session))
            except (Unavailable, RuntimeError) as error:
                config.stash[FOUND] = error
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if CLEANUP in session.config.stash:
        session.config.stash[CLEANUP].close()


def _model_servers(session: pytest.Session) -> set[str]:
    """Those that the chosen tests name in their marker."""
    markers = (item.get_closest_marker("model_servers") for item in session.items)
    return {name for marker in markers if marker for name in marker.args}


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Services:
    """The real services; without them the test is skipped, or fails where they are required."""
    found = pytestconfig.stash[FOUND]
    if isinstance(found, Services):
        return found
    if isinstance(found, Unavailable) and os.environ.get("PENSTOCK_REQUIRE_STACK") != "1":
        pytest.skip(f"no real services: {found}")
    pytest.fail(f"no real services: {found}")


class MakeTopics(Protocol):
    def __call__(self, partitions: int, **settings: str) -> Awaitable[Topics]: ...


@pytest_asyncio.fixture(loop_scope="function")
async def make_topics(services: Services) -> AsyncIterator[MakeTopics]:
    """Makes input, output and dead-letter topics of their own, with this many partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=services.bootstrap_servers)
    await admin.start()
    made: list[str] = []

    async def make(partitions: int, **settings: str) -> Topics:
        """`settings`: Kafka's own, of the output topics, with _ for the dots."""
        unique = uuid.uuid4().hex[:12]
        topics = Topics(f"in-{unique}", f"out-{unique}", f"out-{unique}.dlq")
        of_output = {name.replace("_", "."): value for name, value in settings.items()}
        await controller_known(admin)
        answer = await admin.create_topics(
            [
                NewTopic(
                    name, partitions, 1, topic_configs={} if name == topics.input else of_output
                )
                for name in topics
            ]
        )
        assert all(code == 0 for _, code, *_ in answer.topic_errors), answer
        made.extend(topics)
        await topics_known(admin, topics)
        return topics

    try:
        yield make
    finally:
        if made:
            await controller_known(admin)
            await admin.delete_topics(made)
        await admin.close()


@pytest_asyncio.fixture(loop_scope="function")
async def topics(make_topics: MakeTopics) -> Topics:
    """Fresh topics of four partitions."""
    return await make_topics(4)


@pytest_asyncio.fixture(loop_scope="function")
async def broker(services: Services) -> AsyncIterator[Broker]:
    """What the test itself says to Kafka."""
    async with broker_of(services) as broker:
        yield broker


@pytest_asyncio.fixture(loop_scope="function")
async def proxy(services: Services) -> AsyncIterator[ModelProxy]:
    """Stands before the model server, counts and holds calls."""
    async with proxy_of(services.model_url) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def s3(services: Services) -> Iterator[Any]:
    """A client of the object store that is none of ours."""
    client = s3_client(services.endpoint_url, services.key, services.secret, services.region)
    yield client
    client.close()


@pytest.fixture
def bucket(s3: Any) -> Iterator[str]:
    """A fresh bucket, versions and all removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    yield name
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        versions = page.get("Versions", []) + page.get("DeleteMarkers", [])
        if versions:
            named = [
                {"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions
            ]
            s3.delete_objects(Bucket=name, Delete={"Objects": named, "Quiet": True})
    s3.delete_bucket(Bucket=name)


@pytest.fixture
def job(
    services: Services, topics: Topics, bucket: str, s3: Any, broker: Broker, load: Load
) -> Job:
    """The module's `load`, stored; nothing of it is announced yet."""
    load.store(s3, bucket)
    return Job(services, topics, bucket, broker, load)
