"""Who may ask a page: by the name that is asked for, and in what time.

Rule: a browser can be made to ask any address under a name of somebody else's, and to read the
answer; so a request for a name that is not ours is refused. An address as a number cannot be lent
like that: it is ours, as a probe of Kubernetes and a mapped port of a container use it, unless only
this machine is served. A connection that brings no whole request in time is closed. Owner: the
block that serves the page.
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

from consumers.adapters.http_connections import is_address

# A whole request comes within milliseconds, from the other end of the world within seconds.
REQUEST_S: Final = 10.0


def host_check(bound: str, hosts: Sequence[str]) -> Middleware:
    """`bound`: where it listens; `hosts`: globs of further names that are ours."""
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
        # Only programs leave it out: every browser says it.
        if asked is None or is_ours(asked):
            return await handler(request)
        text = "this is not the host that was asked for; add its name to http.hosts\n"
        return web.Response(status=421, text=text)

    return check


def _name(asked: str) -> str:
    """Without the port; an address of IPv6 without its brackets."""
    try:
        return (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    return is_address(name) and ipaddress.ip_address(name).is_loopback


class Patience:
    """With the connections of a page: `asked` by each request, `watching` while it is served."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._asked: set[web.RequestHandler] = set()
        self._since_s: dict[web.RequestHandler, float] = {}
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
        now_s = loop.time()
        open_now = server.connections
        self._asked.intersection_update(open_now)
        self._since_s = {one: self._since_s.get(one, now_s) for one in open_now}
        for connection, since_s in self._since_s.items():
            if connection not in self._asked and now_s - since_s >= self._most_s:
                connection.force_close()
        self._timer = loop.call_later(self._most_s / 10, self._look, server)
