"""The embedded model server, failing on request, in ways that TorchServe was seen to fail."""

from typing import Literal

import orjson
from aiohttp import web

from penstock.tools.embedded.model_server import (
    NO_MODEL,
    TOO_LARGE,
    EmbeddedModelServer,
    error_response,
)
from penstock.tools.handlers import rows_model
from tests.support.scripted import Scripted, hang_up

Fault = Literal[
    "overloaded",
    "handler_raised",
    "worker_died",
    "worker_killed",
    "out_of_resources",
    "too_large",
    "no_model",
    "bad_token",
    "slow",  # answered only after `release`
    "disconnected",
    "cut",
    "one_too_few",
    "not_a_number",
]
# Status, type and message as TorchServe 0.12 sends them; its 413 has no body.
ERRORS: dict[Fault, tuple[int, str, str]] = {
    "overloaded": (
        503,
        "ServiceUnavailableException",
        f'Model "{rows_model.NAME}" has no worker to serve inference request.',
    ),
    "handler_raised": (503, "InternalServerException", "Prediction failed"),
    "worker_died": (500, "InternalServerException", "Worker died."),
    "worker_killed": (507, "InternalServerException", "Worker died."),
    "out_of_resources": (507, "InternalServerException", "Out of resources"),
    "too_large": TOO_LARGE,
    "no_model": NO_MODEL,
    "bad_token": (
        400,
        "InvalidKeyException",
        "Token Authorization failed. Token either incorrect, expired, or not provided correctly",
    ),
}


class FaultyTorchServe(Scripted[Fault], EmbeddedModelServer):
    """`fail_next` scripts the next answers. With `token` it wants that."""

    def __init__(self, *, token: str | None = None) -> None:
        Scripted.__init__(self)
        EmbeddedModelServer.__init__(self)
        self.token = token

    async def close(self) -> None:
        await EmbeddedModelServer.__aexit__(self)

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        fault = self._next_fault() or self._refusal(request)
        if fault in ERRORS:
            return error_response(*ERRORS[fault])
        if fault == "disconnected":
            return hang_up(request)
        if fault == "slow":
            await self._released.wait()
        response = await super()._predictions(request)
        if fault in (None, "slow"):
            return response
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        if fault == "one_too_few":
            return web.Response(body=orjson.dumps(orjson.loads(response.body)[:-1]))
        if fault == "not_a_number":
            first = orjson.dumps(orjson.loads(response.body)[0])
            return web.Response(body=response.body.replace(first, b'{"score":NaN}', 1))
        return await _cut_short(request, response.body)

    def _refusal(self, request: web.Request) -> Fault | None:
        expected = None if self.token is None else f"Bearer {self.token}"
        is_known = expected is None or request.headers.get("Authorization") == expected
        return None if is_known else "bad_token"


async def _cut_short(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    return hang_up(request)
