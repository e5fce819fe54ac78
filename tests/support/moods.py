"""A model server and a way to the store whose moods a test changes while a worker runs.

Rule: the model is a JSON server; the store is the real one, behind a proxy that passes everything
on, some objects later than others. Keys are asked for as the real store has them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.worker import own_port

PATIENCE_S = 0.05
PASSED_ON = ("Content-Type", "Content-Length", "ETag", "Last-Modified", "x-amz-version-id")


class MoodyModel:
    """It hangs up on bodies that it `dislikes`; each row's answer is `answer(row)`, and takes
    `takes_s(row)`, one after the other. `delay_s` of an answer to rows: a change holds for those
    that wait already.
    """

    def __init__(self) -> None:
        self.dislikes: Callable[[bytes], bool] = lambda _: False
        self.answer: Callable[[Any], Any] = lambda _: 1.0
        self.takes_s: Callable[[Any], float] = lambda _: 0.0
        self.delay_s = 0.0
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.dislikes(body):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        began_s = monotonic()
        while body and (left_s := began_s + self.delay_s - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(PATIENCE_S, left_s))
        rows = json.loads(body or b"[]")
        await asyncio.sleep(sum(map(self.takes_s, rows)))
        return web.json_response([self.answer(row) for row in rows])

    async def come(self) -> None:
        if self._runner.server is None:
            await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def leave(self) -> None:
        await self._runner.cleanup()


class SlowStore:
    """`delay_s`: of an object, by its path. A change holds for those that wait already."""

    def __init__(self, target: str) -> None:
        self.delay_s: Callable[[str], float] = lambda _: 0.0
        self.url = ""
        self._target = target

    async def pass_on(self, request: web.Request) -> web.Response:
        began_s = monotonic()
        while monotonic() - began_s < self.delay_s(request.path):  # noqa: ASYNC110
            await asyncio.sleep(PATIENCE_S)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            # The signature is of the host that the worker asked.
            session.request(
                request.method,
                self._target + request.raw_path,
                headers=request.headers,
                data=await request.read(),
            ) as answer,
        ):
            headers = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)


@asynccontextmanager
async def moody_model() -> AsyncIterator[MoodyModel]:
    model = MoodyModel()
    await model.come()
    try:
        yield model
    finally:
        await model.leave()


@asynccontextmanager
async def slow_store(target: str) -> AsyncIterator[SlowStore]:
    store = SlowStore(target)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", store.pass_on)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        store.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield store
    finally:
        await runner.cleanup()
