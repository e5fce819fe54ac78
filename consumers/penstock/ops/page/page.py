"""One `Page`, which every process of ours serves. What it shows is told by a `PageSource`, of which
each kind of process has one.

    /                        for people: one document, which loads nothing else
    /api/live                the updates that the document shows
    /healthz, /readyz        for probes; they need no token
    /metrics                 for Prometheus
    /api/status              for programs
    /api/way                 the way that an answer's object took (?id=ID)
    /api/samples, …/NUMBER   rows beside their predictions, and their pictures; with `http.samples`
    POST                     the actions, each at its path; with `http.token`

Rule: a page changes nothing, but for its actions. The document and the answers to probes hold no
data; all else needs the token, if there is one. Texts stay JSON strings, and the scripts insert
them as text, never as HTML; headers limit what the browser may run and load, and let it show a
picture, but never run it. Memory does not grow with slow viewers.
"""

import asyncio
import base64
import hashlib
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple, Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock import config
from penstock.ops.http_server import ASKS, as_json, serving, serving_beside

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


WAY: Final = "/api/way"
SAMPLES: Final = "/api/samples"
_OPENMETRICS: Final = "application/openmetrics-text"


class Probe(NamedTuple):
    """The answer to a probe; `text` says why it is good, or why not."""

    good: bool
    text: str


ALIVE: Final = Probe(True, "ok\n")


class Picture(NamedTuple):
    type: str
    body: bytes


class PageSource(ABC):
    """What one kind of process tells on its page. A process that delivers no objects has no ways
    and no samples.
    """

    # Are the metrics shown as OpenMetrics to a reader that asks for it?
    openmetrics = True

    async def alive(self) -> Probe:
        return ALIVE

    @abstractmethod
    async def ready(self) -> Probe: ...

    @abstractmethod
    async def metrics(self) -> Collector: ...

    @abstractmethod
    async def status(self) -> dict[str, Any]: ...

    async def way(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        """None: no object of this id was delivered here of late."""
        return None

    async def samples(self) -> Sequence[dict[str, Any]]:
        """`picture` of each: the numbers that `picture` takes, joined by "/"; None: it has none."""
        return ()

    async def picture(self, numbers: Sequence[int]) -> Picture | None:
        """None: it is no longer kept."""
        return None

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Runs as long as the page is served."""
        return nullcontext()


class Surroundings(Protocol):
    """What else an update of the document shows, by its key."""

    def look(self) -> dict[str, Any]: ...

    def watching(self) -> AbstractAsyncContextManager[None]: ...


class Page:
    """`document`: None if people get the status, too. `actions`: for each path, its handler."""

    def __init__(
        self,
        settings: config.Http,
        source: PageSource,
        *,
        document: str | None = DOCUMENT,
        around: Surroundings | None = None,
        actions: Mapping[str, Handler] | None = None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._around = around
        self._actions = (actions or {}) if settings.token else {}
        self._live = Live(self._update)
        self._pages: dict[str, Handler] = {
            "/": self._root if document is None else handler_of(document),
            "/api/live": self._live.serve,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/api/status": self._api_status,
            WAY: self._way,
        }
        if settings.samples:
            self._pages[SAMPLES] = self._samples
            self._pages[SAMPLES + r"/{numbers:\d{1,15}(?:/\d{1,15})?}"] = self._picture

    @asynccontextmanager
    async def open(
        self, listener: socket.socket | None = None, *, beside: bool = False
    ) -> AsyncIterator[str]:
        """Serve while the body runs; yields the URL. `listener`: the socket to use instead of
        `http.host` and `http.port`. `beside`: a free port is used if `http.port` is taken.
        """
        served = (
            serving_beside(self._settings, self._pages)
            if beside
            else serving(self._settings, self._pages, listener, actions=self._actions)
        )
        around = nullcontext() if self._around is None else self._around.watching()
        async with self._source.watching(), around, served as url, self._live.open():
            yield url

    async def _healthz(self, _: web.Request) -> web.Response:
        return _probed(await self._source.alive())

    async def _root(self, request: web.Request) -> web.Response:
        # Nobody needs the token for `/`, so with one it shows nothing.
        if self._settings.token:
            raise web.HTTPSeeOther("/api/status")
        return await self._api_status(request)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _probed(await self._source.ready())

    async def _metrics(self, request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "") if self._source.openmetrics else ""
        return exposition(await self._source.metrics(), accept)

    async def _api_status(self, _: web.Request) -> web.Response:
        return as_json(await self._source.status())

    async def _update(self) -> dict[str, Any]:
        around = {} if self._around is None else self._around.look()
        return {
            "status": await self._source.status(),
            "actions": list(self._actions),
            "samples": self._settings.samples,
            **around,
        }

    async def _way(self, request: web.Request) -> web.Response:
        way = await self._source.way(request.query)
        if way is None:
            text = "no object of this id was delivered here of late\n"
            return web.Response(status=404, text=text)
        return as_json(way)

    async def _samples(self, _: web.Request) -> web.Response:
        samples = [
            sample | {"picture": sample["picture"] and f"{SAMPLES}/{sample['picture']}"}
            for sample in await self._source.samples()
        ]
        return as_json({"samples": samples})

    async def _picture(self, request: web.Request) -> web.Response:
        numbers = [int(number) for number in request.match_info["numbers"].split("/")]
        picture = await self._source.picture(numbers)
        if picture is None:
            return web.Response(status=404, text="this sample is no longer kept\n")
        headers = {
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            "Content-Security-Policy": "sandbox; default-src 'none'",
        }
        return web.Response(body=picture.body, content_type=picture.type, headers=headers)


def _probed(probe: Probe) -> web.Response:
    return web.Response(status=200 if probe.good else 503, text=probe.text)


def exposition(metrics: Collector, accept: str = "") -> web.Response:
    """The metrics in Prometheus' text format. If the reader's `Accept` header names OpenMetrics,
    the metrics have that format instead, because only OpenMetrics has exemplars.
    """
    if _OPENMETRICS in accept:
        encode, content_type = choose_encoder(accept)
        return web.Response(body=encode(metrics), headers={"Content-Type": content_type})
    return web.Response(
        body=generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )
