"""A model server that is ten times slower than the live one, in its own process.

Rule: it runs at the lowest priority, so that the live services get the CPU first. In production the
shadow's model has a machine of its own, so here the server's CPU must not count as a cost of the
shadow. At its end the server prints how many rows it answered. Owner: `shadow_cost`.
"""

import asyncio
import os
import sys

from aiohttp import web

from penstock.process.signals import serve_until_asked
from penstock.tools.embedded.model_server import EmbeddedModelServer

NICE = 19


class SlowServer(EmbeddedModelServer):
    """Answers each request after a delay."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    async def _predictions(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self._delay_s)
        return await super()._predictions(request)


async def _main(delay_s: float) -> None:
    os.nice(NICE)
    async with SlowServer(delay_s) as server:
        await serve_until_asked(server.url)
        print(sum(server.batch_rows))


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
