"""A JSON model server whose address, envelope, complaints and moods a test chooses, also while a
worker asks it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import orjson
from aiohttp import web

from tests.support.http_server import http_server
from tests.support.scripted import hang_up
from tests.support.worker import own_port

LOOK_S = 0.05


@dataclass
class JsonServer:
    """`answer` gets the document that was posted, and may refuse it by `Refused`; `path` is the
    only address, `health` another. `no_method`: the status for methods that it does not know.

    `refusals`: status and body of the next answers, one each. It hangs up on bodies that it
    `dislikes`. The answer to a document takes `takes_s`, and `delay_s` more: a change of that holds
    for those that wait already.
    """

    path: str
    answer: Callable[[Any], Any]
    health: str | None = None
    no_method: int = 405
    refusals: list[tuple[int, bytes]] = field(default_factory=list)
    dislikes: Callable[[bytes], bool] = lambda _: False
    takes_s: Callable[[Any], float] = lambda _: 0.0
    delay_s: float = 0.0
    url: str = ""
    posted: list[tuple[str, bytes]] = field(default_factory=list)
    accepts: list[str | None] = field(default_factory=list)
    _there: AsyncExitStack = field(default_factory=AsyncExitStack)
    _port: int = field(default_factory=own_port)

    async def come(self) -> None:
        """To the same port each time."""
        self.url = await self._there.enter_async_context(http_server(self._take, self._port))

    async def leave(self) -> None:
        await self._there.aclose()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.dislikes(body):
            return hang_up(request)
        if request.path == self.health and request.method == "GET":
            return web.Response(text="ok")
        if request.path != self.path:
            return web.json_response({"detail": "Not Found"}, status=404)
        if request.method != "POST":
            return web.Response(status=self.no_method)
        self.posted.append((request.content_type, body))
        self.accepts.append(request.headers.get("Accept"))
        if self.refusals:
            status, said = self.refusals.pop(0)
            return web.Response(status=status, body=said)
        is_lines = request.content_type == "application/jsonlines"
        document = (
            [orjson.loads(line) for line in body.splitlines()] if is_lines else orjson.loads(body)
        )
        await self._wait(self.takes_s(document))
        try:
            answer = self.answer(document)
        except Refused as refused:
            return web.json_response(refused.document, status=refused.status)
        return web.Response(body=answer if isinstance(answer, bytes) else orjson.dumps(answer))

    async def _wait(self, takes_s: float) -> None:
        began_s = monotonic()
        while (left_s := began_s + takes_s + self.delay_s - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(LOOK_S, left_s))


class Refused(Exception):
    def __init__(self, status: int, document: Any) -> None:
        super().__init__()
        self.status, self.document = status, document


@asynccontextmanager
async def json_server(
    path: str, answer: Callable[[Any], Any], health: str | None = None
) -> AsyncIterator[JsonServer]:
    server = JsonServer(path, answer, health)
    await server.come()
    try:
        yield server
    finally:
        await server.leave()
