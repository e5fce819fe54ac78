"""What servers that fail on request have in common: the script of their faults, and HTTP.

Rule: each fault is used for one answer, in the order in which they were asked for. Owner: the model
servers of the demo and of the tests.
"""

import asyncio
from collections import deque
from typing import Final, Generic, Self, TypeVar

from aiohttp import web

F = TypeVar("F")
HOST: Final = "127.0.0.1"


class Scripted(Generic[F]):
    """A server whose next answers a test can choose."""

    def __init__(self) -> None:
        self._faults: deque[F] = deque()
        self._released = asyncio.Event()

    def fail_next(self, *faults: F) -> None:
        """Let the next requests fail like this, one each; later ones are answered."""
        self._faults.extend(faults)

    def release(self) -> None:
        """Answer the requests that the fault `slow` holds back."""
        self._released.set()

    async def close(self) -> None:
        """Called when the `async with` block ends."""
        raise NotImplementedError

    async def __aexit__(self, *_: object) -> None:
        self.release()
        await self.close()

    def _next_fault(self) -> F | None:
        return self._faults.popleft() if self._faults else None


class ScriptedHttp(Scripted[F]):
    """`async with` it: it then listens at `url`, each time on the same port."""

    most_bytes = 64 << 20

    def __init__(self, port: int = 0, host: str = HOST) -> None:
        super().__init__()
        self.url = ""
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    def add_routes(self, router: web.UrlDispatcher) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=self.most_bytes)
        self.add_routes(app.router)
        # How long open requests may take to end: nobody reads their answers any more.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://{self._host}:{self._port}"
        return self

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


def hang_up(request: web.Request) -> web.Response:
    """Break off the connection."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
