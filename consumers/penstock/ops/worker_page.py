"""The worker's HTTP page: `/healthz`, `/readyz`, `/metrics` and `/api/status` for machines, `/` for
people.

Rule: the page changes nothing, and answers at once even if a service is away. No request waits for
Kafka, a store or a model, because `ServiceAnswers` asks them in the background. All other figures
are collected at each request. Owner: the application.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from penstock import config
from penstock.ops.http_server import (
    as_json,
    exposition,
    inherited_listener,
    paths,
    serving,
)
from penstock.ops.page.actions import Actions
from penstock.ops.page.html_document import page
from penstock.ops.page.live import Live
from penstock.ops.page.partitions import GroupPartitions
from penstock.ops.page.peers import Peers
from penstock.ops.page.samples import sample_pages
from penstock.ops.page.way import way_page
from penstock.ops.readiness import Readiness
from penstock.ops.service_answers import ServiceAnswers
from penstock.ops.status import Status
from penstock.pipeline.life import Pipeline
from penstock.ports import Model
from penstock.telemetry.worker import Telemetry


@asynccontextmanager
async def serve_health(
    settings: config.Http,
    pipeline: Pipeline,
    model: Model,
    telemetry: Telemetry,
    kafka: config.Kafka,
    actions: Actions | None = None,
) -> AsyncIterator[str]:
    """Serve while the body runs; yields the page's URL. A worker under a supervisor uses the socket
    that the supervisor made for it. `kafka`: where the page asks for the partitions of the whole
    group.
    """

    services = ServiceAnswers(pipeline, model)
    readiness = Readiness(pipeline, services, kafka.session_ms / 1000)

    async def readyz(_: web.Request) -> web.Response:
        if (why_not := readiness.why_not()) is not None:
            return web.Response(status=503, text=why_not)
        return web.Response(text=f"ready: {pipeline!r}\n")

    async def metrics(request: web.Request) -> web.Response:
        budget, figures, gauges = pipeline.wiring.budget, status.flow.look(), telemetry.status_gauges
        gauges.show(figures.flow, figures.backlog.objects, figures.streams)
        gauges.show_problems(status.look()["problems"])
        gauges.buffer_bytes.set(budget.spent_bytes)
        gauges.buffer_limit.set(budget.limit_bytes)
        gauges.lines_stopped.set(len(pipeline.stopped))
        gauges.backlog.set(figures.backlog.age_s)
        gauges.lag.set(sum(services.lags.values()))
        gauges.lag_age.set(services.lag_age_s)
        return exposition(telemetry.registry, request.headers.get("Accept", ""))

    status = Status(pipeline, telemetry, services, kafka.group)

    async def api_status(_: web.Request) -> web.Response:
        return as_json(status.look())

    group, peers = GroupPartitions(kafka), Peers(settings)
    handlers = {} if actions is None or not settings.token else actions.handlers

    async def update() -> dict[str, Any]:
        return {
            "status": status.look(),
            "group": group.look(),
            "actions": list(handlers),
            "peers": peers.look(),
            "samples": bool(samples),
        }

    live, samples = Live(update), sample_pages(pipeline, status.flow)
    pages = paths(page, readyz, metrics, api_status, live=live.serve) | samples
    pages |= way_page(telemetry.ways, pipeline.wiring.settings.labels)
    with status.sampling():
        async with (
            readiness.watching(),
            services.watching(),
            group.watching(),
            peers.watching(),
            serving(settings, pages, inherited_listener(), actions=handlers) as url,
            live.open(),
        ):
            yield url
