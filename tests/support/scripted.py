"""What servers that fail on request have in common: the script of their faults.

Rule: each fault is used for one answer, in the order in which they were asked for. Owner: the model
servers of the tests.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from aiohttp import web

from penstock.tools.embedded.model_server import Served

F = TypeVar("F")


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


class ScriptedHttp(Scripted[F], Served):
    """`async with` it: it then listens at `url`, each time on the same port."""

    def __init__(self) -> None:
        Scripted.__init__(self)
        Served.__init__(self)

    async def close(self) -> None:
        await Served.__aexit__(self)


def hang_up(request: web.Request) -> web.Response:
    """Break off the connection."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
