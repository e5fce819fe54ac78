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
data; all else needs the token, if there is one. Texts stay JSON strings; a picture's headers let a
browser show it, but never run it.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock import config
from penstock.ops.http_server import as_json, serving, serving_beside
from penstock.ops.page.live_page import DOCUMENT, Live, handler_of

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
