"""A way to the store on which some objects come later than others, or none comes, as a test chooses
while a worker runs. Keys are asked for as the real store has them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

import aiohttp
from aiohttp import web

from tests.support.http_server import http_server

PATIENCE_S = 0.05
PASSED_ON = ("Content-Type", "Content-Length", "ETag", "Last-Modified", "x-amz-version-id")


class SlowStore:
    """`delay_s`: of an object, by its path. A change holds for those that wait already.
    `status`: what it says of each object that is there, instead of sending it.
    """

    def __init__(self, target: str) -> None:
        self.delay_s: Callable[[str], float] = lambda _: 0.0
        self.status: int | None = None
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
            if answer.ok and self.status is not None:
                return web.Response(status=self.status)
            headers = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)


@asynccontextmanager
async def slow_store(target: str) -> AsyncIterator[SlowStore]:
    store = SlowStore(target)
    async with http_server(store.pass_on) as store.url:
        yield store
