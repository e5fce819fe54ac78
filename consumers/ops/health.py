"""The worker's HTTP page for machines: `/healthz`, `/readyz`, `/metrics`.

Rule: it only looks, and answers at once; what it shows is collected when it is asked for. With a
token everything but `/healthz` asks for it.
"""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from consumers import config
from consumers.errors import EXIT_USAGE, Fatal
from consumers.pipeline import Pipeline
from consumers.ports import Model
from consumers.telemetry import Telemetry


@asynccontextmanager
async def serve_health(
    settings: config.Http, pipeline: Pipeline, model: Model, telemetry: Telemetry
) -> AsyncIterator[str]:
    """Serve while the body runs; yields the page's URL. Port 0 takes a free one."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if not pipeline.lanes:
            return web.Response(status=503, text="no partition is assigned yet\n")
        if not await model.ready():
            return web.Response(status=503, text="the model does not answer\n")
        return web.Response(text=f"ready: {pipeline!r}\n")

    async def metrics(_: web.Request) -> web.Response:
        telemetry.buffer_bytes.set(pipeline.budget.spent_bytes)
        telemetry.lag.set(await pipeline.lag())
        return web.Response(
            body=generate_latest(telemetry.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application(middlewares=[_token_check(settings.token)])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        await _bind(site, settings)
        yield f"http://{settings.host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _bind(site: web.TCPSite, settings: config.Http) -> None:
    try:
        await site.start()
    except OSError as error:
        raise Fatal(
            f"http.host:port {settings.host}:{settings.port} cannot be used: "
            f"{error.strerror or error}. Set http.port to a free one, or to 0.",
            exit_code=EXIT_USAGE,
        ) from error


def _token_check(token: str | None) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if (
            token
            and request.path != "/healthz"
            and not hmac.compare_digest(given.encode(), token.encode())
        ):
            return web.Response(status=401, text="give the token: Authorization: Bearer ...\n")
        return await handler(request)

    return check
