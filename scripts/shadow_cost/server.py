"""A model server that is ten times slower than the live one, as a process of its own.

Rule: it is nice, because what a second model takes of this machine's processors is no cost of the
shadow's: the live services get them first. It says how many rows it answered when it ends. Started
by `shadow_cost`.
"""

import asyncio
import os
import sys

from aiohttp import web

from penstock.embedded.model_server import EmbeddedModelServer
from penstock.process.service import serve

NICE = 19


class SlowServer(EmbeddedModelServer):
    """Answers each request so late."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self._delay_s)
        return await super()._predictions(request)


async def _main(delay_s: float) -> None:
    os.nice(NICE)
    async with SlowServer(delay_s) as server:
        await serve(server.url)
        print(sum(server.batch_rows))


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
