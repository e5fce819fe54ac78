"""The topics and the bucket of one measurement, on services of this machine.

Rule: all names are unique, and removed at the end, whatever happened. Services that are not on
loopback are refused: the bench would load a network that others use, and measure it.
"""

import asyncio
import ipaddress
import logging
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import botocore.session
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from botocore.exceptions import BotoCoreError, ClientError

from penstock import config
from penstock.adapters.kafka.client import connection, opened, within
from penstock.adapters.kafka.topics import TopicShape, create_topics, delete_topics
from penstock.errors import Fatal, Unreachable, usage

PARTITIONS = 4
# Kafka's default limit for the size of a message.
MESSAGE_BYTES = 1 << 20
# The broker stamps every record, so that all times are of one clock. Files of removed topics are
# deleted after a second, because the records of a round take up to 0.5 GB.
TOPIC_SETTINGS = {"message.timestamp.type": "LogAppendTime", "file.delete.delay.ms": "1000"}
# We wait this long for the broker's answer. A broker on this machine answers within milliseconds,
# or within seconds if it is busy.
ANSWER_S = 30.0
# A DeleteObjects request of S3 may name at most this many objects.
DELETE_KEYS = 1_000


class Topics(NamedTuple):
    input: str
    output: str
    dead_letters: str


def check_local(cfg: config.Config) -> None:
    """Raises `Fatal` unless Kafka, the object store and the model server are on this machine."""
    if cfg.objects.endpoint_url is None:
        raise _not_here("objects.endpoint_url is not set")
    servers = [f"//{server.strip()}" for server in cfg.kafka.bootstrap_servers.split(",")]
    for url in (*servers, cfg.objects.endpoint_url, cfg.model.url):
        host = urlsplit(url).hostname or ""
        if not _is_loopback(host):
            raise _not_here(f"{host or url} is not this machine")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _not_here(why: str) -> Fatal:
    return usage(
        f"the bench loads what it measures, and takes only services of this machine: {why}.\n"
        'Start and name them: scripts/stack up && eval "$(scripts/stack env)"'
    )


@asynccontextmanager
async def fresh_topics(
    settings: config.Kafka, *, most_bytes: int | None = None
) -> AsyncIterator[Topics]:
    """Make the topics of one measurement. A shadow topic is among them, because the caller's
    configuration may have a shadow. `most_bytes`: the topics' limit for the size of a message;
    None: Kafka's default.
    """
    unique = uuid.uuid4().hex[:12]
    topics = Topics(f"bench-{unique}", f"bench-{unique}.out", f"bench-{unique}.dlq")
    # Clients warn about topics that do not exist yet or do not exist any more. Here both cases are
    # expected.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    more = {"max.message.bytes": str(most_bytes)} if most_bytes else {}
    shape = TopicShape(PARTITIONS, settings=TOPIC_SETTINGS | more)
    made = (*topics, f"{topics.output}.shadow")
    await create_topics(settings, made, shape)
    try:
        yield topics
    finally:
        await delete_topics(settings, made)


@asynccontextmanager
async def end_watcher(settings: config.Kafka) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that is only used by `count_records`, to ask for offsets."""
    consumer = AIOKafkaConsumer(**connection(settings))
    async with opened(consumer, settings, "the watching of the output topic"):
        yield consumer


async def count_records(watcher: AIOKafkaConsumer, topic: str, partitions: int = PARTITIONS) -> int:
    """How many records were ever written to the first partitions of a topic of the bench."""
    async with within("a question about the end of the output topic", ANSWER_S):
        ends = await watcher.end_offsets(
            [TopicPartition(topic, number) for number in range(partitions)]
        )
    return sum(ends.values())


async def publish(
    settings: config.Kafka,
    topic: str,
    messages: Iterable[tuple[int, bytes, bytes]],
    most_bytes: int = MESSAGE_BYTES,
) -> None:
    """Publish all messages and wait until they are acknowledged. A message is its partition, its
    key and its value.
    """
    producer = AIOKafkaProducer(
        **connection(settings), linger_ms=5, max_batch_size=1_000_000, max_request_size=most_bytes
    )
    what = "the publishing of references"
    async with opened(producer, settings, what), within(what, settings.timeout_ms / 1000):
        for partition, key, value in messages:
            await producer.send(topic, value, key=key, partition=partition)
        await producer.flush()


class BenchBucket:
    """The bench's own bucket, which sends no notifications."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        self._keys: list[str] = []

    async def put(self, bodies: Mapping[str, bytes]) -> None:
        self._keys += bodies
        with _translated():
            await asyncio.to_thread(self._put_all, bodies)

    def _put_all(self, bodies: Mapping[str, bytes]) -> None:
        for key, body in bodies.items():
            self._client.put_object(Bucket=self.name, Key=key, Body=body)

    def remove(self) -> None:
        for start in range(0, len(self._keys), DELETE_KEYS):
            doomed = [{"Key": key} for key in self._keys[start : start + DELETE_KEYS]]
            self._client.delete_objects(Bucket=self.name, Delete={"Objects": doomed, "Quiet": True})
        self._client.delete_bucket(Bucket=self.name)


@asynccontextmanager
async def fresh_bucket(settings: config.Objects) -> AsyncIterator[BenchBucket]:
    client = botocore.session.Session(profile=settings.profile).create_client(
        "s3",
        endpoint_url=settings.endpoint_url,
        region_name=settings.region or "us-east-1",
        aws_access_key_id=settings.key,
        aws_secret_access_key=settings.secret,
        verify=settings.ssl_cafile,
    )
    bucket = BenchBucket(client, f"bench-{uuid.uuid4().hex[:12]}")
    with _translated():
        await asyncio.to_thread(client.create_bucket, Bucket=bucket.name)
    try:
        yield bucket
    finally:
        with _translated():
            await asyncio.to_thread(bucket.remove)
        client.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unreachable(f"the object store refused what the bench needs: {error}") from error
