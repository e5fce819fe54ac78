"""References in every form that Kafka carries: packed by each codec, by another client than the one
that reads, with headers and times that mean nothing to us, a tombstone among them.
"""

import asyncio
from collections.abc import Sequence
from itertools import product

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.services import Services
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Enough that a batch is worth packing.
EACH = 200
# Of every second record: long ago. Kafka keeps them, as others beside them are new.
OLD_MS = 1


def references() -> Sequence[Message]:
    """With a tombstone among them."""
    found = [Message({"inline": [[number, *range(15)]], "stream": "s"}) for number in range(EACH)]
    return [*found[: EACH // 2], Message(None), *found[EACH // 2 + 1 :]]


async def by_librdkafka(servers: str, topic: str, partition: int, codec: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 100})
    for number, message in enumerate(references()):
        producer.produce(
            topic,
            message.encoded,
            key=b"k%d" % number,
            partition=partition,
            timestamp=OLD_MS if number % 2 else 0,
            headers=[("trace", b"x"), ("nothing", None)],
        )
    assert await asyncio.to_thread(producer.flush, 60) == 0


async def by_aiokafka(servers: str, topic: str, partition: int, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=100,
    )
    async with producer:
        sent = [
            await producer.send(
                topic,
                message.encoded,
                key=b"k%d" % number,
                partition=partition,
                timestamp_ms=OLD_MS if number % 2 else None,
                headers=[("trace", b"x")],
            )
            for number, message in enumerate(references())
        ]
        await asyncio.gather(*sent)


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_reference_is_answered_in_its_order(
    services: Services, make_topics: MakeTopics, broker: Broker, client: Client
) -> None:
    writers = list(product((by_librdkafka, by_aiokafka), CODECS))
    topics = await make_topics(len(writers))
    for partition, (write, codec) in enumerate(writers):
        await write(services.bootstrap_servers, topics.input, partition, codec)
    ends = await broker.ends(topics.input)
    assert ends == dict.fromkeys(range(len(writers)), EACH)
    environ = environment(services, topics, KAFKA__CLIENT=client)
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, ends)
        assert await worker.stop() == 0, worker.said
    judged = await penstock("verify", environ=environ)
    assert judged.code == 0, judged
    asked = await broker.records(topics.input)
    for partition, records in (await broker.records(topics.output)).items():
        documents = [record.document for record in records]
        assert [document["source"]["offset"] for document in documents] == list(range(EACH)), (
            writers[partition]
        )
        refused = [document["source"]["offset"] for document in documents if document.get("error")]
        # A producer that does not know the topic yet may put it one place off.
        empty = [record.offset for record in asked[partition] if not record.value]
        assert refused == empty != [], writers[partition]
