"""The worker's HTTP page (`/healthz`, `/readyz`, `/metrics` and `/api/status` are for machines, `/`
is for people), and the decision whether the worker is ready.

Rule: the page changes nothing, and answers at once even if a service is away. No request waits for
Kafka, a store or a model, because `ServiceAnswers` asks them in the background. All other figures
are collected at each request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from aiohttp import web

from penstock import config
from penstock.core.order.stall import Stall, Stalled
from penstock.failures.outage import MODEL, STORE
from penstock.ops.http_server import (
    NO_PARTITION,
    as_json,
    exposition,
    inherited_listener,
    paths,
    serving,
)
from penstock.ops.page.actions import Actions
from penstock.ops.page.live_page import Live, page
from penstock.ops.page.one_object import sample_pages, way_page
from penstock.ops.page.whole_group import GroupPartitions, Peers
from penstock.ops.service_answers import SILENT_S, ServiceAnswers
from penstock.ops.status import Status
from penstock.pipeline.life import Pipeline
from penstock.ports import Model
from penstock.process.asyncio_additions import meanwhile
from penstock.telemetry.worker import Telemetry

LOOK_EVERY_S: Final = 5.0
# A partition that has not moved for this share of `limits.stall_ms` makes the worker unready. After
# the whole of `limits.stall_ms` the watchdog ends the worker.
STALL_SHARE: Final = 0.5
# If Kafka has not answered for this many session timeouts, the group has given this worker's
# partitions to other workers.
SESSIONS: Final = 2


@asynccontextmanager
async def serve_health(
    settings: config.Http,
    pipeline: Pipeline,
    model: Model,
    telemetry: Telemetry,
    kafka: config.Kafka,
    actions: Actions | None = None,
) -> AsyncIterator[str]:
    """Serve while the body runs; yields the page's URL. If a supervisor made a socket for this
    worker, the page listens on that socket. `kafka`: the settings of the Kafka that the page asks
    for the partitions of the whole group.
    """

    services = ServiceAnswers(pipeline, model)
    readiness = Readiness(pipeline, services, kafka.session_ms / 1000)

    async def readyz(_: web.Request) -> web.Response:
        if (why_not := readiness.why_not()) is not None:
            return web.Response(status=503, text=why_not)
        return web.Response(text=f"ready: {pipeline!r}\n")

    async def metrics(request: web.Request) -> web.Response:
        budget, figures = pipeline.wiring.budget, status.flow.look()
        document, gauges = status.look(), telemetry.status_gauges
        gauges.show(document["flow"], figures.backlog.objects, figures.streams)
        gauges.show_stores(document["stores"])
        gauges.show_costs(status.flow.costs.spent_s)
        gauges.show_problems(document["problems"])
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


class Readiness:
    """Says whether the worker is ready. The worker is ready if a model and a store answer, a
    partition is assigned, and the worker's work moves. While a service is known to be away, work
    that waits for that service counts as moving. `watching` must run: it notices work that does not
    move.
    """

    def __init__(self, pipeline: Pipeline, services: ServiceAnswers, session_s: float) -> None:
        self._pipeline = pipeline
        self._services = services
        self._away_s = SESSIONS * session_s
        self._stalled: Stalled | None = None

    def why_not(self) -> str | None:
        """Why the worker is not ready, in one line of text. None: the worker is ready."""
        lanes = self._pipeline.wiring.lanes
        # The model is checked before the partitions, so that even a member without a partition
        # tells whether its model answers.
        if not any(self._services.answers.values()):
            return "the model does not answer\n"
        for kind in (MODEL, STORE):
            away = [one for one in self._pipeline.wiring.outages if one.service.startswith(kind)]
            if away and all((one.away_s or 0.0) >= SILENT_S for one in away):
                return f"the {kind} has not answered for {away[0].away_s:.0f} s: {away[0].why}\n"
        if not lanes:
            return NO_PARTITION
        if all(lane.stopped for lane in lanes.values()):
            return "".join(f"line stopped: {stop}\n" for stop in self._pipeline.stopped)
        away_s = self._services.kafka_away_s
        if away_s is not None and away_s > self._away_s:
            return f"Kafka has not answered for {away_s:.0f} s: {self._services.why_kafka}\n"
        if self._stalled is not None and self._stalled.partition in lanes:
            lane, snapshot = lanes[self._stalled.partition], self._stalled.snapshot
            return (
                f"{lane.topic}/{lane.partition} has not moved for {self._stalled.still_s:.0f} s: "
                f"{snapshot.stage} holds offset {snapshot.offset}\n"
            )
        return None

    def watching(self) -> AbstractAsyncContextManager[None]:
        """While the body runs, look for work that does not move."""
        return meanwhile(self._look_forever())

    async def _look_forever(self) -> None:
        wiring = self._pipeline.wiring
        clock, stall_s = wiring.adapters.clock, wiring.settings.times.stall_s
        if stall_s is None:
            return
        stall = Stall(stall_s * STALL_SHARE, LOOK_EVERY_S, clock.now())
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            snapshots = {number: lane.snapshot for number, lane in wiring.lanes.items()}
            self._stalled = stall.look(clock.now(), snapshots, wiring.telemetry.retries)
