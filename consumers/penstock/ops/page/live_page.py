"""The live page for people: `/` is one HTML document that loads nothing else, `/api/live` sends its
updates.

Rule: the document holds no data of a worker. The scripts insert texts as text, never as HTML, and
headers limit what the browser may run and load. Memory does not grow with slow viewers.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.ops.http_server import ASKS

_HERE: Final = resources.files(__package__)
# The order matters: a script uses what the scripts before it define.
PARTS: Final = (
    "verdict",
    "figures",
    "flow",
    "streams",
    "partitions",
    "peers",
    "models",
    "actions",
    "letters",
    "samples",
    "stopped",
    "worker",
)


_HEADERS: Final = {
    "Content-Type": "application/x-ndjson",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def document_of(title: str, scripts: Sequence[Traversable]) -> str:
    """The whole document. These scripts come after the frame's own script. The last script must
    define the function `show`, which shows an update.
    """
    script = "".join(part.read_text() for part in (_part("frame"), *scripts, _part("start")))
    frame = _HERE.joinpath("frame.html").read_text()
    style = _HERE.joinpath("style.css").read_text()
    return frame.replace("@TITLE@", title).replace("@STYLE@\n", style).replace("@SCRIPT@\n", script)


def _part(name: str) -> Traversable:
    return _HERE.joinpath("parts", f"{name}.js")


DOCUMENT: Final = document_of("penstock", [_part(name) for name in PARTS])


def handler_of(shell: str) -> Handler:
    """The handler that answers with this document. Its headers allow only the document's own script
    and style, by their hashes.
    """
    asking = shell.replace("<body>", "<body data-asks>", 1)
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src {_hash_of(shell, 'script')}; "
            f"style-src {_hash_of(shell, 'style')}; "
            "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }

    async def page(request: web.Request) -> web.Response:
        text = asking if request.app[ASKS] else shell
        return web.Response(text=text, content_type="text/html", headers=headers)

    return page


def _hash_of(shell: str, tag: str) -> str:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", shell, re.DOTALL)
    assert match is not None
    digest = hashlib.sha256(match[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


EVERY_S: Final = 1.0
# At most this many viewers are served: enough for a wall of screens. For each viewer, some 100 kB
# of unread updates may be in memory.
MOST_VIEWERS: Final = 64


class Live:
    """The stream of updates, each a JSON document on one line. `look`: a function that makes an
    update. It is called at most once a second, and only while there is a viewer; all viewers get
    the same bytes. While the page is `open`, `serve` handles the request of a viewer. A viewer that
    reads slowly misses updates, and a viewer that does not read at all is disconnected
    (`page_guards`).
    """

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
        if request.method == "HEAD":  # which has no body, and this one has no end
            return web.Response(headers=_HEADERS)
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
        response = web.StreamResponse(headers=_HEADERS)
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
