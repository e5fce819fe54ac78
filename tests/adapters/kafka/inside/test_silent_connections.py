"""A connection to a broker on which nothing comes any more, and those that rested beside it."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import client
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import BrokerMetadata

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.inside.silent_connections import IN_USE_S, SILENCE_S
from tests.adapters.kafka.inside.fake_broker import (
    API_VERSIONS,
    FakeBroker,
    listening,
    versions,
)

METADATA, JOIN_GROUP = 3, 11
VERSIONS = versions((METADATA, 0, 0), (JOIN_GROUP, 0, 0))
NO_METADATA = struct.pack(">ii", 0, 0)


class Broker(FakeBroker):
    """Answers on each connection after so many seconds, but never on the `silent` ones, which are
    counted from 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[int] = set()

    async def answer(self, number: int, kind: int, request: bytes) -> bytes | None:
        if kind == API_VERSIONS:
            return VERSIONS
        if number in self.silent:
            return None
        await asyncio.sleep(self.pause_s)
        return NO_METADATA


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with listening(Broker()) as broker:
        yield broker


async def connected(broker: Broker) -> AIOKafkaConnection:
    """As every client of ours connects."""
    connection(config.Kafka())
    made: Any = client.create_conn
    return await made("127.0.0.1", broker.port)


async def test_a_silent_connection_ends_with_all_that_rested_as_long(broker: Broker) -> None:
    now_s = asyncio.get_running_loop().time
    one, sister, joining = [await connected(broker) for _ in range(3)]
    broker.silent = {0, 2}
    waits = asyncio.ensure_future(joining.send(JoinGroupRequest("g", 1, 1, "", None, "", [])))
    began_s = now_s()
    with pytest.raises(RequestTimedOutError):
        await one.send(MetadataRequest([]))
    assert now_s() - began_s < 2 * SILENCE_S
    assert not one.connected()
    assert not sister.connected()
    assert joining.connected(), "it waits for other members, and not for the broker"
    joining.close()
    with pytest.raises(KafkaConnectionError):
        await waits


async def test_all_that_wait_on_a_silent_connection_may_ask_again_at_once(broker: Broker) -> None:
    """Though the first that does so has nobody to connect to."""
    asking = client.AIOKafkaClient()
    asking._conns[0, client.ConnectionGroup.DEFAULT] = await connected(broker)
    broker.silent = {0}
    nobody = BrokerMetadata(0, "127.0.0.1", 1, None)
    asking.cluster.broker_metadata = lambda _: nobody

    async def ask_twice() -> None:
        for _ in range(2):
            with suppress(KafkaError):
                await asking.send(0, MetadataRequest([]))

    await asyncio.gather(ask_twice(), ask_twice())
    await asking.close()


async def test_a_connection_that_was_heard_since_stays(broker: Broker) -> None:
    one, sister = [await connected(broker) for _ in range(2)]
    broker.silent = {0}
    asked = asyncio.ensure_future(one.send(MetadataRequest([])))
    await asyncio.sleep(0)
    await sister.send(MetadataRequest([]))
    with pytest.raises(RequestTimedOutError):
        await asked
    assert not one.connected()
    assert sister.connected()
    sister.close()


async def test_a_slow_broker_gets_twice_the_time_after_a_silence_though_others_were_quick(
    broker: Broker,
) -> None:
    """Otherwise one slow answer in a thousand would each time cost the connection."""
    one = await connected(broker)
    broker.pause_s = 1.5 * SILENCE_S
    with pytest.raises(RequestTimedOutError):
        await one.send(MetadataRequest([]))
    one = await connected(broker)
    broker.pause_s = 0.0
    await one.send(MetadataRequest([]))
    broker.pause_s = 1.5 * SILENCE_S
    await one.send(MetadataRequest([]))
    assert one.connected()
    one.close()


async def test_a_way_that_forgets_costs_the_same_wait_each_time(broker: Broker) -> None:
    now_s = asyncio.get_running_loop().time
    for _ in range(2):
        one = await connected(broker)
        one._heard_s -= IN_USE_S
        broker.silent = {len(broker.tasks) - 1}
        began_s = now_s()
        with pytest.raises(RequestTimedOutError):
            await one.send(MetadataRequest([]))
        assert now_s() - began_s < 2 * SILENCE_S
        broker.silent = set()
        one = await connected(broker)
        await one.send(MetadataRequest([]))
        one.close()


async def test_a_request_without_an_answer_is_taken_back_from_the_wire(broker: Broker) -> None:
    """An EndTxn that came late would end the next transaction. The reset discards it."""
    broker.silent = {0}
    with pytest.raises(RequestTimedOutError):
        await (await connected(broker)).send(MetadataRequest([]))
    await asyncio.wait(broker.tasks)
    assert broker.was_reset == {0}
