"""A proxy in front of the model server that keeps the rows of every request and can hold them back.

Rule: changes nothing of what passes. It understands requests of the form float32 only. A request
without rows is a probe: a worker that starts waits for its answer before it joins the group.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import numpy as np
from aiohttp import web

from tests.support.http_server import http_server
from tests.support.reference_model import Rows


class ModelProxy:
    """`url` is what a worker gets as `model.url`."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self.requests: list[Rows] = []
        self.held = 0
        self._target = target
        self._passes: float = float("inf")
        self._passed_rows = 0
        self._open = asyncio.Event()
        self._answers_probes = asyncio.Event()
        self._answers_probes.set()

    def hold_after(self, rows: int) -> None:
        """Once so many rows have passed, requests with rows wait until `release`."""
        self._passes = rows

    @property
    def passed(self) -> list[Rows]:
        """The requests that were not held."""
        return self.requests[: len(self.requests) - self.held]

    def release(self) -> None:
        self._open.set()

    def hold_probes(self) -> None:
        """Until `release_probes`."""
        self._answers_probes.clear()

    def release_probes(self) -> None:
        self._answers_probes.set()

    async def forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        rows = int(request.headers.get("X-Rows", "0"))
        if rows:
            self.requests.append(np.frombuffer(body, "<f4").reshape(rows, -1))
            if self._passed_rows >= self._passes:
                self.held += 1
                await self._open.wait()
            self._passed_rows += rows
        else:
            await self._answers_probes.wait()
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._target + request.path, data=body, headers=_told(request)) as answer,
        ):
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )


def _told(request: web.Request) -> dict[str, str]:
    return {
        name: request.headers[name]
        for name in ("Content-Type", "X-Rows")
        if name in request.headers
    }


@asynccontextmanager
async def proxy_of(model_url: str) -> AsyncIterator[ModelProxy]:
    proxy = ModelProxy(model_url)
    async with http_server(proxy.forward) as proxy.url:
        try:
            yield proxy
        finally:
            proxy.release()
            proxy.release_probes()
