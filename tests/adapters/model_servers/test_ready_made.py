"""Requests that are made beforehand are those that each protocol's server takes."""

from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from yarl import URL

from penstock import config
from penstock.adapters.model_servers.protocols import grpc_poster, ready_made, request_of
from penstock.core.rows.payload import Matrix
from penstock.errors import EXIT_USAGE, Fatal
from penstock.tools.embedded.model_server import EmbeddedModelServer
from tests.adapters.model_servers.contract import payload
from tests.support.json_server import json_server
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.oip_server import Manner, OipServer
from tests.support.reference_model import random_rows

ROWS = random_rows(6)


def made(**settings: Any) -> config.Model:
    return msgspec.convert(settings, config.Model)


async def statuses(settings: config.Model, form: str) -> list[int]:
    """Of three requests of two rows."""
    rows = [payload(ROWS[start : start + 2], form) for start in (0, 2, 4)]
    ready = await ready_made(settings, rows)
    found = []
    async with aiohttp.ClientSession() as session:
        for body in ready.bodies:
            url = URL(ready.url, encoded=True)
            async with session.post(url, data=body, headers=ready.headers) as answer:
                found.append(answer.status)
    return found


async def test_to_torchserve_they_are_what_the_adapter_posts() -> None:
    async with EmbeddedModelServer() as server:
        for form in ("float32", "json"):
            assert await statuses(made(url=server.url, request=form), form) == [200] * 3
        assert server.batch_rows == [2] * 6


@pytest.mark.parametrize("manner", get_args(Manner))
async def test_over_rest_each_has_the_headers_of_all(manner: Manner) -> None:
    async with OipServer(manner) as server:
        settings = made(url=server.url, request="float32", protocol="oip")
        assert await statuses(settings, "float32") == [200] * 3
        # The first finds out what the server takes.
        assert [rows for _, _, rows in server.requests] == [2] * 4
        assert {is_binary for is_binary, _, _ in server.requests} == {manner != "mlserver"}


async def test_over_grpc_they_are_messages() -> None:
    async with OipGrpcServer() as server:
        settings = made(url=server.url, request="float32", protocol="oip-grpc")
        ready = await ready_made(settings, [Matrix(ROWS[:2]), Matrix(ROWS[2:])])
        assert ready.is_grpc
        async with grpc_poster(ready) as post:
            for body in ready.bodies:
                await post(body)
        assert server.asked.count("ModelInfer") == 3


async def test_a_json_server_gets_its_own_envelope() -> None:
    async with json_server("/rows", lambda rows: rows) as server:
        settings = made(url=server.url, protocol="http", preset="litserve", path="/{name}")
        assert request_of(settings) == "json"
        assert await statuses(settings, "json") == [200] * 3


async def test_rows_of_numbers_are_no_texts() -> None:
    with pytest.raises(Fatal, match="texts") as caught:
        await ready_made(made(protocol="openai-embeddings"), [Matrix(ROWS)])
    assert caught.value.exit_code == EXIT_USAGE
