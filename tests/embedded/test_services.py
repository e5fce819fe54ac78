"""The embedded services as the demo runs them: child processes that leave nothing behind."""

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process

import aiohttp
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from penstock.errors import Fatal
from penstock.packages import install_command
from penstock.tools.embedded.broker import PARTITIONS, EmbeddedBroker
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.support.reference_model import numpy_answers, random_rows

MODULES = ["penstock.tools.embedded.model_server", "penstock.tools.embedded.broker"]


async def start(module: str) -> tuple[Process, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=PIPE, stdout=PIPE
    )
    assert child.stdout is not None
    return child, (await child.stdout.readline()).decode().strip()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_child_announces_itself_and_ends_on_a_signal(module: str, number: int) -> None:
    child, address = await start(module)
    port = int(address.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()
    child.send_signal(number)
    assert await child.wait() == 0


@pytest.mark.parametrize("module", MODULES)
async def test_a_child_ends_when_its_parent_is_gone(module: str) -> None:
    child, _ = await start(module)
    assert child.stdin is not None
    child.stdin.close()
    assert await child.wait() == 0


async def test_the_model_child_answers_like_the_example_model() -> None:
    child, url = await start(MODULES[0])
    rows = random_rows(20)
    async with aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/predictions/rows", json=rows.tolist())
        answers = orjson.loads(await answer.read())
    expected = numpy_answers(rows)
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in expected]
    scores = [one["score"] for one in expected]
    assert [answer["score"] for answer in answers] == pytest.approx(scores, abs=1e-6)
    child.terminate()
    assert await child.wait() == 0


async def test_two_model_servers_take_different_ports() -> None:
    async with EmbeddedModelServer() as one, EmbeddedModelServer() as other:
        assert one.url != other.url


async def test_the_broker_makes_topics_of_four_partitions_on_first_use() -> None:
    with EmbeddedBroker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        assert await producer.partitions_for("fresh") == set(range(PARTITIONS))
        await producer.send_and_wait("fresh", b"value", partition=PARTITIONS - 1)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "fresh", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        record = await consumer.getone()
        await consumer.stop()
    assert (record.partition, record.offset, record.value) == (PARTITIONS - 1, 0, b"value")


def test_without_its_library_the_broker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(Fatal, match=re.escape(install_command("demo"))), EmbeddedBroker():
        pass
