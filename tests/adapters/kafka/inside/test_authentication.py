"""A broker that refuses a token, as the connection and who minds the login learn of it."""

import asyncio
import base64
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import client
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from penstock import config
from penstock.adapters.kafka.client import connection
from penstock.adapters.kafka.identity.identity import identity_of
from tests.adapters.kafka.inside.fake_broker import (
    API_VERSIONS,
    FakeBroker,
    listening,
    versions,
)
from tests.support.waiting import DEADLINE_S

HANDSHAKE, AUTHENTICATE = 17, 36
VERSIONS = versions((HANDSHAKE, 1, 1), (AUTHENTICATE, 1, 1))
MECHANISMS = struct.pack(">hi", 0, 1) + struct.pack(">h11s", 11, b"OAUTHBEARER")
REFUSES = struct.pack(">hh8siq", 58, 8, b"no such!", 0, 0)
TAKES = struct.pack(">hhiq", 0, -1, 0, 0)


class Broker(FakeBroker):
    """Takes the tokens of `takes`, and looks at each for so many seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.takes: set[str] = set()

    async def answer(self, number: int, kind: int, request: bytes) -> bytes:
        if kind in (API_VERSIONS, HANDSHAKE):
            return VERSIONS if kind == API_VERSIONS else MECHANISMS
        token = request.partition(b"Bearer ")[2].partition(b"\x01")[0].decode()
        await asyncio.sleep(self.pause_s)
        return TAKES if token in self.takes else REFUSES


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with listening(Broker()) as broker:
        yield broker


@pytest.fixture
def kafka(tmp_path: Path) -> config.Kafka:
    (tmp_path / "token").write_text("first")
    return config.Kafka(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        oauth=config.OAuth(provider="file", token_file=str(tmp_path / "token")),
    )


async def connected(broker: Broker, kafka: config.Kafka) -> AIOKafkaConnection:
    arguments = connection(kafka)
    del arguments["bootstrap_servers"], arguments["connections_max_idle_ms"]
    made: Any = client.create_conn
    return await made("127.0.0.1", broker.port, **arguments)


async def test_a_token_that_a_broker_refuses_is_not_shown_again(
    broker: Broker, kafka: config.Kafka, tmp_path: Path
) -> None:
    refused = asyncio.create_task(identity_of(kafka).refused())
    with pytest.raises(SaslAuthenticationFailed, match="no such!"):
        await connected(broker, kafka)
    async with asyncio.timeout(DEADLINE_S):
        await refused
    (tmp_path / "token").write_text("second")
    broker.takes.add("second")
    (await connected(broker, kafka)).close()


async def test_a_token_that_ended_on_its_way_was_not_refused(
    broker: Broker, kafka: config.Kafka, tmp_path: Path
) -> None:
    broker.pause_s = 1.0
    claims = base64.b64encode(b'{"exp": %f}' % (time.time() + broker.pause_s)).decode()
    (tmp_path / "token").write_text(f"head.{claims}.signature")
    with pytest.raises(KafkaConnectionError, match="ended on its way"):
        await connected(broker, kafka)
