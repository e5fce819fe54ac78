"""What is said of a server that does not know the model or the address: what it offers instead."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from penstock import config
from penstock.adapters.model_servers import offers
from penstock.adapters.model_servers.protocols import open_model
from penstock.core.rows.payload import JsonRows
from penstock.errors import EXIT_USAGE, Fatal
from tests.support.http_server import http_server

ROWS = JsonRows.of([b'"a"'])
MANY = {"models": [{"modelName": f"m{number}"} for number in range(20)]}
LISTED = [{"name": "rows", "state": "READY"}, {"name": "cats"}]
# What is configured; what the server answers beside 404; what is said of it.
CASES: list[tuple[dict[str, str], dict[str, Any], str]] = [
    (
        {"protocol": "torchserve"},
        {"GET /v2": {"name": "triton"}, "POST /v2/repository/index": LISTED},
        '. The server has the models rows, cats; for its protocol set model.protocol = "oip"',
    ),
    (
        {"protocol": "oip", "name": "roses"},
        {"GET /v2/models": {"models": ["rows"]}},
        ". The server has the model rows",
    ),
    (
        {"protocol": "http"},
        {"GET /v1/models": {"data": [{"id": "bge"}]}},
        'the model bge; for its protocol set model.protocol = "openai-chat" or "openai-embeddings"',
    ),
    (
        {"protocol": "openai-embeddings"},
        {"GET /v1/models": {"data": [{"id": "bge"}]}},
        ". The server has the model bge",
    ),
    (
        {"protocol": "torchserve"},
        {"GET /v1/models": {"models": ["digits"]}},
        'set model.protocol = "http" and model.preset = "kserve-v1"',
    ),
    ({"protocol": "torchserve"}, {"GET /models": MANY}, "models m0, m1, m2, m3, m4, m5, m6, m7, ."),
    (
        {"protocol": "oip"},
        {"GET /ping": {"status": "Healthy"}},
        'as TorchServe does: for its protocol set model.protocol = "torchserve"; its management',
    ),
    ({"protocol": "torchserve"}, {"GET /models": {"models": [7, {"name": None}]}}, "is loaded"),
    ({"protocol": "torchserve"}, {"GET /models": ["\x1b[31m"]}, "the model  [31m"),
    ({"protocol": "torchserve"}, {}, "is loaded"),
    # Only a server that knows the protocol gets the POST.
    ({"protocol": "torchserve"}, {"POST /v2/repository/index": LISTED}, "is loaded"),
]


def settings(url: str, keys: dict[str, str]) -> config.Config:
    return config.Config(model=msgspec.convert({"url": url, **keys}, config.Model))


@pytest.mark.parametrize("below", ["", "/gateway"])
@pytest.mark.parametrize(("keys", "answers", "said"), CASES)
async def test_a_server_without_the_model_is_asked_what_it_has(
    keys: dict[str, str], answers: dict[str, Any], said: str, below: str
) -> None:
    async def take(request: web.Request) -> web.Response:
        document = answers.get(f"{request.method} {request.path.removeprefix(below)}")
        return web.Response(status=404) if document is None else web.json_response(document)

    async with http_server(take) as url:
        model = open_model(settings(url + below, keys))
        with pytest.raises(Fatal) as caught:
            await model.predict([ROWS])
        await model.aclose()
    assert said in str(caught.value)
    assert "answered 404" in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


async def test_a_server_that_is_slow_with_its_list_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offers, "ASK_S", 0.05)
    is_over = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        if "predictions" not in request.path:
            await is_over.wait()
        return web.Response(status=404)

    async with http_server(take) as url:
        model = open_model(settings(url, {"protocol": "torchserve"}))
        with pytest.raises(Fatal, match="answered 404"):
            await model.predict([ROWS])
        is_over.set()
        await model.aclose()
