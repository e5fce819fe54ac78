"""`/api/live`: the updates of a page, a JSON document a line, the same for all its viewers.

Rule: an update is made and encoded at most once a second, when the first viewer needs it, and all
viewers get the same bytes. While there is no viewer, no update is made. A viewer that reads slowly
misses updates, and a viewer that does not read at all is disconnected (`page_guards`), so memory
does not grow. Owner: the page's server.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson
from aiohttp import web

EVERY_S: Final = 1.0
# Enough for a wall of screens. For each viewer, some 100 kB of unread updates may be in memory.
MOST_VIEWERS: Final = 64


class Live:
    """`look` makes an update. `serve` handles the requests of viewers, while the page is `open`."""

    def __init__(self, look: Callable[[], Awaitable[Any]]) -> None:
        self._look = look
        self._making = asyncio.Lock()
        self._made_s = -EVERY_S
        self._line = b""
        self._viewers = 0
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve viewers while the body runs. When the body ends, all viewers are disconnected, so
        that the server's end does not wait for them.
        """
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
        with suppress(ConnectionError):  # raised when the viewer has left
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
