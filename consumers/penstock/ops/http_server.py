"""The HTTP server of all our pages: where it listens, which paths it has, and how it answers.

Rule: this module is light to import, because a supervisor imports little else. `page_guards`
decides which requests and connections are refused. Owner of the server: the block that entered the
context.
"""

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock import config
from penstock.errors import Fatal, usage
from penstock.ops.page_guards import REQUEST_S, SlowClients, host_check, token_check

log = logging.getLogger(__name__)

# The environment variable with the number of the listening socket that a supervisor made for this
# process. The variable's name has no `__`, so the configuration does not read the variable as a
# key.
HTTP_FD: Final = "PENSTOCK_HTTP_FD"
# What `/readyz` answers while the worker has no partition. The supervisor's page looks for this
# text in the answers of its members.
NO_PARTITION: Final = "no partition is assigned yet\n"
# The key of a value in the application: True if a token is configured, so that the page at `/` must
# ask the viewer for the token.
ASKS: Final = web.AppKey("asks", bool)
_OPENMETRICS: Final = "application/openmetrics-text"


def inherited_listener() -> socket.socket | None:
    """The socket that a supervisor made for this process; None without a supervisor."""
    number = os.environ.get(HTTP_FD)
    return socket.socket(fileno=int(number)) if number else None


def as_json(document: Any, status: int = 200) -> web.Response:
    """A JSON answer. Whatever texts are in the answer, its headers keep a browser from treating it
    as a page.
    """
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return web.Response(
        body=orjson.dumps(document),
        status=status,
        content_type="application/json",
        headers=headers,
    )


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
    """The paths that every server has, each with its handler: a page for people, probes for
    Kubernetes, metrics for Prometheus, and the status for programs. `live`: the handler that sends
    the updates of the page for people, if it has updates.
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
    """Serve while the body runs; yields the URL. `listener`: the socket to use instead of
    `http.host` and `http.port`. If `http.port` is 0, a free port is taken. `actions`: paths that
    change something. They are reached by POST, and exist only if `http.token` is set.
    """
    host = settings.host if listener is None else listener.getsockname()[0]
    slow_clients = SlowClients(request_s)
    checks = (
        slow_clients.note_request,
        host_check(host, settings.hosts or ()),
        token_check(settings.token),
    )
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
        with slow_clients.watching(runner.server):
            yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_beside(settings: config.Http, pages: Mapping[str, Handler]) -> AsyncIterator[str]:
    """Like `serving`, for a process that may have the same configuration as a worker on this
    machine. If another process already uses `http.port`, a free port is used.
    """
    async with AsyncExitStack() as cleanup:
        try:
            url = await cleanup.enter_async_context(serving(settings, pages))
        except Fatal as error:
            log.warning("%s; a free port is taken", error)
            anywhere = msgspec.structs.replace(settings, port=0)
            url = await cleanup.enter_async_context(serving(anywhere, pages))
        yield url


@asynccontextmanager
async def serve_figures(
    settings: config.Http,
    registry: CollectorRegistry,
    ready: Callable[[], str],
    status: Callable[[], Mapping[str, Any]],
) -> AsyncIterator[str]:
    """Serve the figures of a process that has no page for people and is ready from its start on.
    The status is at `/`, too. `ready`: a function that gives the text of `/readyz`.
    """

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text=f"ready: {ready()}\n")

    async def metrics(request: web.Request) -> web.Response:
        return exposition(registry, request.headers.get("Accept", ""))

    async def figures(_: web.Request) -> web.Response:
        return as_json({"v": 1, **status()})

    async with serving_beside(settings, paths(figures, readyz, metrics, figures)) as url:
        yield url


async def _bind(site: web.TCPSite, settings: config.Http) -> None:
    try:
        await site.start()
    except OSError as error:
        raise usage(
            f"http.host:port {settings.host}:{settings.port} cannot be used: "
            f"{error.strerror or error}. Set http.port to a free one, or to 0."
        ) from error
