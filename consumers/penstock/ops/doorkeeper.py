"""Refuses requests to our pages that are for another host name, and clients that do not get on.

Rule: by DNS rebinding, a foreign web page can make a browser send requests to our address under
that page's own host name, and read the answers. So a request whose Host is not a name of ours is
refused. A numeric address is accepted, since rebinding needs a name, and probes of Kubernetes and
mapped ports of containers use numbers; but if we listen on loopback, only loopback's. A connection
without a complete request in time is closed, and so is one that takes nothing of its answer for as
long, as the answer stays in memory. Owner: the block that serves the page.
"""

import asyncio
import fnmatch
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.adapters.http.connections import is_address

# Far more than a complete request, or the next piece of an answer, needs from the other side of the
# world.
REQUEST_S: Final = 10.0


def host_check(bound: str, hosts: Sequence[str]) -> Middleware:
    """`bound`: the address that we listen on. `hosts`: globs of further names that are ours."""
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
        # Every browser sends Host, so a request without it comes from a program and is harmless.
        if asked is None or is_ours(asked):
            return await handler(request)
        text = "this is not the host that was asked for; add its name to http.hosts\n"
        return web.Response(status=421, text=text)

    return check


def _name(asked: str) -> str:
    """The host without its port, an IPv6 address without its brackets."""
    try:
        return (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    return is_address(name) and ipaddress.ip_address(name).is_loopback


class Patience:
    """Closes connections that bring no complete request in time, or take nothing of an answer. The
    middleware `check` notes each request; `watching` closes connections while the page is served.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._asked: set[web.RequestHandler] = set()
        self._since_s: dict[web.RequestHandler, float] = {}
        # How much of its answer each has not taken, and since when that is so.
        self._unread: dict[web.RequestHandler, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def check(self) -> Middleware:
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
        self._since_s = {one: self._since_s.get(one, now_s) for one in open_now}
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
                # A close would wait until it is read.
                transport.abort()
