"""A traced request tells the model server its trace, and no other request does."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock import config
from penstock.adapters.model_servers.protocols import open_model
from penstock.core.rows.payload import Matrix
from penstock.ports import outgoing_traceparent
from tests.support.oip_grpc_server import OipGrpcServer
from tests.support.reference_model import random_rows

TRACED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NUMBERS = random_rows(4)


@contextmanager
def traced() -> Iterator[None]:
    told = outgoing_traceparent.set(TRACED)
    try:
        yield
    finally:
        outgoing_traceparent.reset(told)


@asynccontextmanager
async def told_over_http() -> AsyncIterator[tuple[str, list[str | None]]]:
    told: list[str | None] = []

    async def predict(request: web.Request) -> web.Response:
        told.append(request.headers.get("traceparent"))
        return web.json_response([1, 2, 3, 4])

    app = web.Application()
    app.router.add_post("/{path:.*}", predict)
    async with TestServer(app) as server:
        yield str(server.make_url("")), told


async def ask(url: str, protocol: str) -> None:
    settings = {"url": url, "protocol": protocol, "request": "float32"}
    model = open_model(config.Config(model=msgspec.convert(settings, config.Model)))
    try:
        with traced():
            await model.predict([Matrix(NUMBERS)])
        await model.predict([Matrix(NUMBERS)])
    finally:
        await model.aclose()


async def test_over_http() -> None:
    async with told_over_http() as (url, told):
        await ask(url, "torchserve")
    assert told == [TRACED, None]


async def test_over_grpc() -> None:
    async with OipGrpcServer() as server:
        await ask(server.url, "oip-grpc")
    assert server.asked[-2:] == ["ModelInfer"] * 2
    assert server.traceparents[-2:] == [TRACED, None]
