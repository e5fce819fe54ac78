"""A plain JSON server whose address, envelope and complaints a test chooses."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web


@dataclass
class JsonServer:
    """`answer` gets the document that was posted; `path` is the only address, `health` another.
    `refusals` are status and body of the next answers, one each; `no_method` is the status for
    methods that it does not know.
    """

    path: str
    answer: Callable[[Any], Any]
    health: str | None = None
    no_method: int = 405
    url: str = ""
    posted: list[tuple[str, bytes]] = field(default_factory=list)
    accepts: list[str | None] = field(default_factory=list)
    refusals: list[tuple[int, bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        if request.path == self.health and request.method == "GET":
            return web.Response(text="ok")
        if request.path != self.path:
            return web.json_response({"detail": "Not Found"}, status=404)
        if request.method != "POST":
            return web.Response(status=self.no_method)
        body = await request.read()
        self.posted.append((request.content_type, body))
        self.accepts.append(request.headers.get("Accept"))
        if self.refusals:
            status, said = self.refusals.pop(0)
            return web.Response(status=status, body=said)
        is_lines = request.content_type == "application/jsonlines"
        document = (
            [orjson.loads(one) for one in body.splitlines()] if is_lines else orjson.loads(body)
        )
        answer = self.answer(document)
        return web.Response(body=answer if isinstance(answer, bytes) else orjson.dumps(answer))


@asynccontextmanager
async def json_server(
    path: str, answer: Callable[[Any], Any], health: str | None = None
) -> AsyncIterator[JsonServer]:
    server = JsonServer(path, answer, health)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", server.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
