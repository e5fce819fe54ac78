"""`/api/live`: one stream of updates for all viewers of a page, a JSON document a line.

Rule: an update is made and encoded once a second at most, by the viewer who asks first, and the
same bytes go to all; without a viewer nothing is made. A viewer who reads slowly misses updates,
and the server lets one go who does not read at all (doorkeeper.py), so no memory grows. Owner: the
page's server.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson
from aiohttp import web

EVERY_S: Final = 1.0
# Enough for a wall of screens; each may hold some 100 kB of what it has not read.
MOST_VIEWERS: Final = 64


class Live:
    """`look` makes an update. `serve` handles requests while the page is `open`."""

    def __init__(self, look: Callable[[], Awaitable[Any]]) -> None:
        self._look = look
        self._making = asyncio.Lock()
        self._made_s = -EVERY_S
        self._line = b""
        self._viewers = 0
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """At the end viewers are let go, so that a server's end waits for none of them."""
        try:
            yield
        finally:
            self._closing.set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self._viewers >= MOST_VIEWERS:
            text = f"{MOST_VIEWERS} viewers look already; /api/status answers everybody\n"
            return web.Response(status=503, text=text)
        self._viewers += 1
        try:
            return await self._serve(request)
        finally:
            self._viewers -= 1

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        line = await self._newest()
        headers = {
            "Content-Type": "application/x-ndjson",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with suppress(ConnectionError):  # the viewer left
            while True:
                await response.write(line)
                if await self._closes_before_the_next():
                    break
                line = await self._newest()
        return response

    async def _newest(self) -> bytes:
        async with self._making:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._made_s >= EVERY_S:
                self._line = orjson.dumps(await self._look()) + b"\n"
                self._made_s = now_s
            return self._line

    async def _closes_before_the_next(self) -> bool:
        pause_s = self._made_s + EVERY_S - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause_s)):
                await self._closing.wait()
        return self._closing.is_set()
