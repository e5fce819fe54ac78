"""Kafka keys that are no text, such as those of Java's LongSerializer: each is a stream of its own,
and its answers have its bytes as their key.
"""

import json
import struct
import uuid
from typing import Any

import pytest

from tests.integration.conftest import MakeTopics
from tests.support.broker_stage import CLIENTS, Client
from tests.support.loads import csv
from tests.support.reference_model import random_rows
from tests.support.services import Services
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker

ROWS = csv(random_rows(3))
# The bytes of Java's LongSerializer, of a UUID, of Confluent's Avro serializer; and of texts.
KEYS = [
    struct.pack(">q", 200),
    struct.pack(">q", 201),
    struct.pack(">q", 1),
    uuid.UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479").bytes,
    b"\0\0\0\0\x07\x0ccam-11",
    b"cam-12",
    "ü/0xff".encode(),
]


def name_of(key: bytes) -> str:
    return key.decode() if key in KEYS[-2:] else f"0x{key.hex()}"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("partitioning", ["same", "stream"])
async def test_each_binary_key_is_a_stream_and_the_key_of_its_answers(
    services: Services,
    make_topics: MakeTopics,
    bucket: str,
    s3: Any,
    broker: Broker,
    client: Client,
    partitioning: str,
) -> None:
    topics = await make_topics(2)
    s3.put_object(Bucket=bucket, Key="f/a.csv", Body=ROWS)
    s3.put_object(Bucket=bucket, Key="f/bad.csv", Body=b"1,2\n")
    good, bad = ({"bucket": bucket, "key": f"f/{name}.csv"} for name in ("a", "bad"))
    messages = [Message(good, 0, key) for key in KEYS for _ in range(2)]
    await broker.publish(topics.input, [*messages, Message(bad, 0, KEYS[0])])
    environ = environment(services, topics, KAFKA__CLIENT=client, OUTPUT__PARTITIONING=partitioning)
    async with running_worker(environ) as worker:
        await broker.until_committed(topics.input, topics.input, {0: len(messages) + 1})
        redriven = await penstock("dlq", "redrive", environ=environ)
        assert "sent 1 of them back" in redriven.stdout.decode(), redriven.stdout.decode()
        await broker.until_committed(topics.input, topics.input, {0: len(messages) + 2})
        assert await worker.stop() == 0, worker.said
    records = [one for of in (await broker.records(topics.output)).values() for one in of]
    by_key = {key: [record.document for record in records if record.key == key] for key in KEYS}
    assert sum(map(len, by_key.values())) == len(records), "no other keys"
    for key, answers in by_key.items():
        assert {answer["stream"] for answer in answers} == {name_of(key)}
        assert len([answer for answer in answers if answer["prediction"]]) == 6
    errors = [one for one in by_key[KEYS[0]] if one["prediction"] is None]
    assert len(errors) == 2, "the row that was refused, and again after its redrive"
    judged = await penstock("verify", "--json", environ=environ)
    assert judged.code == 0, judged.stdout.decode()
    assert json.loads(judged.stdout)
