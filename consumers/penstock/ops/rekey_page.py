"""The page of `penstock rekey`: `/healthz`, `/readyz`, `/metrics` and `/api/status` for machines.

Rule: the page changes nothing, and its figures are collected at each request. `/` shows the status,
too. Owner: the command.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from penstock import config
from penstock.ops.http_server import as_json, exposition, paths, serving_beside
from penstock.telemetry.rekey import RekeyTelemetry


@asynccontextmanager
async def serve_rekeyer(cfg: config.Config, telemetry: RekeyTelemetry) -> AsyncIterator[str]:
    """Serve while the body runs; yields the URL."""

    async def readyz(_: web.Request) -> web.Response:
        # A rekeyer that stands by counts as ready, because it takes over by itself.
        return web.Response(text=f"ready: {'rekeys' if telemetry.leads else 'stands by'}\n")

    async def metrics(request: web.Request) -> web.Response:
        return exposition(telemetry.registry, request.headers.get("Accept", ""))

    async def status(_: web.Request) -> web.Response:
        topics = {"input_topic": cfg.kafka.input_name, "topic": cfg.kafka.rekey}
        return as_json({"v": 1, **topics, **telemetry.status})

    async with serving_beside(cfg.http, paths(status, readyz, metrics, status)) as url:
        yield url
