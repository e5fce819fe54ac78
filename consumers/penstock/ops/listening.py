"""Serves a small HTTP page: where it listens, and which requests are refused.

Rule: light to import, because a supervisor imports little else. Requests for another host, and
connections that do not get on, are refused (doorkeeper.py). If a token is configured, every path
that tells or does something requires it: `/healthz` only says that we live, and the page at `/`
holds no data and asks for the token. Owner of the server: the block that entered the context.
"""

import hmac
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock import config
from penstock.errors import Fatal, usage
from penstock.ops.doorkeeper import REQUEST_S, Patience, host_check

log = logging.getLogger(__name__)

# The variable with the number of an inherited, listening socket. As its name has no `__`, it is not
# read as a configuration key.
HTTP_FD: Final = "PENSTOCK_HTTP_FD"
# What `/readyz` answers for a worker without a partition; a supervisor looks for this text.
NO_PARTITION: Final = "no partition is assigned yet\n"
# Whether the pages ask for a token.
ASKS: Final = web.AppKey("asks", bool)
# What is answered without a token.
OPEN: Final = ("/", "/healthz")
_OPENMETRICS: Final = "application/openmetrics-text"


def inherited_listener() -> socket.socket | None:
    """The socket a supervisor bound for this process, if one did."""
    number = os.environ.get(HTTP_FD)
    return socket.socket(fileno=int(number)) if number else None


def as_json(document: Any, status: int = 200) -> web.Response:
    """A JSON answer that a browser never treats as a page, whatever texts are in it."""
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return web.Response(
        body=orjson.dumps(document),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def exposition(metrics: Collector, accept: str = "") -> web.Response:
    """Metrics in Prometheus' text format; as OpenMetrics, which shows exemplars, for a reader that
    accepts this.
    """
    if _OPENMETRICS in accept:
        encode, content_type = choose_encoder(accept)
        return web.Response(body=encode(metrics), headers={"Content-Type": content_type})
    return web.Response(
        body=generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


async def alive(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def paths(
    page: Handler,
    readyz: Handler,
    metrics: Handler,
    status: Handler,
    healthz: Handler = alive,
    *,
    live: Handler | None = None,
) -> dict[str, Handler]:
    """The paths of every page: for people, Kubernetes, Prometheus and programs; `live` feeds the
    page, where there is one for people.
    """
    found = {
        "/": page,
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": metrics,
        "/api/status": status,
    }
    return found if live is None else {**found, "/api/live": live}


@asynccontextmanager
async def serving(
    settings: config.Http,
    pages: Mapping[str, Handler],
    listener: socket.socket | None = None,
    *,
    actions: Mapping[str, Handler] | None = None,
    request_s: float = REQUEST_S,
) -> AsyncIterator[str]:
    """Serve while the body runs, on `listener` if there is one; yields the URL. Port 0 takes
    a free one. `actions` change something: each by POST, and only if there is a token.
    """
    host = settings.host if listener is None else listener.getsockname()[0]
    patience = Patience(request_s)
    checks = (patience.check, host_check(host, settings.hosts or ()), _token_check(settings.token))
    app = web.Application(middlewares=checks)
    app[ASKS] = bool(settings.token)
    for path, page in pages.items():
        app.router.add_get(path, page)
    if settings.token:
        for path, action in (actions or {}).items():
            app.router.add_post(path, action)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=request_s)
    await runner.setup()
    try:
        if listener is not None:
            await web.SockSite(runner, listener).start()
        else:
            await _bind(web.TCPSite(runner, host, settings.port), settings)
        assert runner.server is not None
        with patience.watching(runner.server):
            yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_beside(settings: config.Http, pages: Mapping[str, Handler]) -> AsyncIterator[str]:
    """`serving` for a process that may share its configuration with a worker: if `http.port` is
    taken, on a free port.
    """
    async with AsyncExitStack() as cleanup:
        try:
            url = await cleanup.enter_async_context(serving(settings, pages))
        except Fatal as error:
            log.warning("%s; a free port is taken", error)
            anywhere = msgspec.structs.replace(settings, port=0)
            url = await cleanup.enter_async_context(serving(anywhere, pages))
        yield url


async def _bind(site: web.TCPSite, settings: config.Http) -> None:
    try:
        await site.start()
    except OSError as error:
        raise usage(
            f"http.host:port {settings.host}:{settings.port} cannot be used: "
            f"{error.strerror or error}. Set http.port to a free one, or to 0."
        ) from error


def _token_check(token: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        # A header may be any bytes.
        is_right = not token or hmac.compare_digest(
            given.encode(errors="surrogateescape"), token.encode()
        )
        if not is_right and request.path not in OPEN:
            return web.Response(status=401, text="give the token: Authorization: Bearer ...\n")
        return await handler(request)

    return check
