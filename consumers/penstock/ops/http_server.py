"""The HTTP server of all our pages, and which requests it refuses.

Rule: light to import, because a supervisor imports little else. By DNS rebinding a foreign page can
make a browser ask our address under the foreign name and read the answers, so a Host that is no
name of ours is refused. Numeric addresses are accepted, because rebinding needs a name and probes
of Kubernetes use numbers; if we listen on loopback, only those of loopback.
"""

import asyncio
import fnmatch
import hmac
import ipaddress
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock import config
from penstock.adapters.http.connections import is_address
from penstock.adapters.http.running_worker import is_proof
from penstock.errors import Fatal, usage

log = logging.getLogger(__name__)

# A client has this long for a request, or for the next piece of an answer. Even from the other side
# of the world, each takes far less.
REQUEST_S: Final = 10.0
# Paths that need no token: `/healthz` and `/readyz` only say that we live and work, and the probes
# of Kubernetes have no token; the page at `/` holds no data and asks for the token.
OPEN: Final = ("/", "/healthz", "/readyz")


def host_check(bound: str, hosts: Sequence[str]) -> Middleware:
    """A middleware that refuses a request whose Host is not a name of ours. `bound`: the address
    that we listen on. `hosts`: globs; a name that matches one of them is ours, too.
    """
    known = ["localhost", *map(str.lower, hosts)]
    is_local = bound == "localhost" or _is_loopback(bound)
    if not is_local:
        known += [socket.gethostname().lower(), bound.lower()]

    def is_ours(asked: str) -> bool:
        name = _name(asked)
        if any(fnmatch.fnmatchcase(name, glob) for glob in known):
            return True
        return _is_loopback(name) or (not is_local and is_address(name))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.get("Host")
        # Every browser sends Host. A request without it comes from a program, which DNS rebinding
        # cannot trick.
        if asked is None or is_ours(asked):
            return await handler(request)
        text = "this is not the host that was asked for; add its name to http.hosts\n"
        return web.Response(status=421, text=text)

    return check


def _name(asked: str) -> str:
    """The host of a Host header, without the port and without the brackets of an IPv6 address."""
    try:
        return (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    return is_address(name) and ipaddress.ip_address(name).is_loopback


def token_check(token: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token and request.path not in OPEN and not _is_right(request, token):
            return web.Response(status=401, text="give the token: Authorization: Bearer ...\n")
        return await handler(request)

    return check


def _is_right(request: web.Request, token: str) -> bool:
    given = request.headers.get("Authorization", "")
    # aiohttp decodes a header's bytes with `surrogateescape`, so `given` may be any text.
    sent = given.removeprefix("Bearer ").encode(errors="surrogateescape")
    return hmac.compare_digest(sent, token.encode()) or (
        request.method == "GET" and is_proof(given, token, request.raw_path, time.time())
    )


class SlowClients:
    """Closes two kinds of connections: those that have brought no complete request within `most_s`,
    and those whose client has taken nothing of an answer for `most_s`. The second kind is closed
    because an answer stays in memory until the client takes it. The middleware `note_request` notes
    the connections that have brought a request. `watching` closes connections while the body runs.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._asked: set[web.RequestHandler] = set()
        self._since_s: dict[web.RequestHandler, float] = {}
        # For each connection: how many bytes of its answer the client has not taken, and since when
        # this number has not changed.
        self._unread: dict[web.RequestHandler, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def note_request(self) -> Middleware:
        @web.middleware
        async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._asked.add(request.protocol)
            return await handler(request)

        return noted

    @contextmanager
    def watching(self, server: web.Server) -> Iterator[None]:
        self._look(server)
        try:
            yield
        finally:
            assert self._timer is not None
            self._timer.cancel()

    def _look(self, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        open_now = server.connections
        self._close_silent(open_now, loop.time())
        self._close_unread(open_now, loop.time())
        self._timer = loop.call_later(self._most_s / 10, self._look, server)

    def _close_silent(self, open_now: Sequence[web.RequestHandler], now_s: float) -> None:
        self._asked.intersection_update(open_now)
        self._since_s = {
            connection: self._since_s.get(connection, now_s) for connection in open_now
        }
        for connection, since_s in self._since_s.items():
            if connection not in self._asked and now_s - since_s >= self._most_s:
                connection.force_close()

    def _close_unread(self, open_now: Sequence[web.RequestHandler], now_s: float) -> None:
        before, self._unread = self._unread, {}
        for connection in open_now:
            transport = connection.transport
            nbytes = transport.get_write_buffer_size() if transport is not None else 0
            if transport is None or not nbytes:
                continue
            was, since_s = before.get(connection, (nbytes, now_s))
            self._unread[connection] = nbytes, since_s if nbytes == was else now_s
            if nbytes == was and now_s - since_s >= self._most_s:
                # Not `close`, which would wait until the client has taken the answer.
                transport.abort()


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


async def _bind(site: web.TCPSite, settings: config.Http) -> None:
    try:
        await site.start()
    except OSError as error:
        raise usage(
            f"http.host:port {settings.host}:{settings.port} cannot be used: "
            f"{error.strerror or error}. Set http.port to a free one, or to 0."
        ) from error
