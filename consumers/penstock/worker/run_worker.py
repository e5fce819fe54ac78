"""`penstock run`: one worker, from its start to the drain that a signal asks for. A reload (SIGHUP)
takes new routes and nothing else.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from penstock import config
from penstock.adapters.kafka.client import KafkaLogin, telling_refusals
from penstock.errors import Fatal, PenstockError
from penstock.ops.http_server import inherited_listener
from penstock.ops.page.actions import Actions
from penstock.ops.page.page import Page
from penstock.ops.page.whole_group import WholeGroup
from penstock.ops.topic_checks import mind_topics
from penstock.ops.worker_page import WorkerSource
from penstock.pipeline.life import Pipeline
from penstock.settings.routes import routes_of
from penstock.stages.consume import Intake
from penstock.worker.open_worker import (
    AS_CONFIGURED,
    Until,
    Variant,
    open_worker,
    stop_signal,
    until_services_answered,
)
from penstock.worker.rekey import open_rekeyer

log = logging.getLogger(__name__)


async def run_worker(
    cfg: config.Config,
    path: Path | None,
    read_again: Callable[[], config.Config],
    *,
    leaves: bool = False,
    variant: Variant = AS_CONFIGURED,
) -> None:
    """Run one worker until SIGTERM or SIGINT, or until `variant.until` returns; then drain it. On
    SIGHUP the worker calls `read_again` and takes the routes of the configuration that this
    function returns. `path`: the file of `cfg`. `leaves`: a worker with an instance id gives up its
    place in the group when it stops. With `kafka.rekey` the worker also runs a rekeyer. Of the
    rekeyers of all workers only one works, and the others stand by. Raises the first failure.
    """
    written, cfg = cfg, cfg.after_rekey()
    with stop_signal(cfg) as stop:
        async with (
            telling_refusals(cfg.kafka),
            open_worker(cfg, variant, leaves=leaves) as pipeline,
        ):
            wiring = pipeline.wiring
            page = Page(
                cfg.http,
                WorkerSource(pipeline, wiring.adapters.model, cfg.kafka),
                around=WholeGroup(cfg.http, cfg.kafka),
                actions=Actions(path).handlers,
            )
            async with page.open(inherited_listener()) as url:
                log.info("healthz, readyz and metrics at %s", url)
                await until_services_answered(cfg, pipeline)
                stop.then(pipeline.stop)
                asyncio.get_running_loop().add_signal_handler(
                    signal.SIGHUP, take_routes, wiring.intake, read_again
                )
                async with _rekeying(written, pipeline):
                    await _run_while_topics_are_there(cfg, pipeline, variant.until)
                await pipeline.end()


async def _run_while_topics_are_there(
    cfg: config.Config, pipeline: Pipeline, until: Until | None
) -> None:
    async with asyncio.TaskGroup() as tasks:
        sink, login = pipeline.wiring.adapters.sink, KafkaLogin(cfg.kafka)
        beside = [tasks.create_task(mind_topics(cfg, sink, login))]
        if until is not None:
            beside.append(tasks.create_task(_stop_after(until, pipeline)))
        await pipeline.run()
        for task in beside:
            task.cancel()


async def _stop_after(until: Until, pipeline: Pipeline) -> None:
    await until(pipeline)
    pipeline.stop()


@asynccontextmanager
async def _rekeying(cfg: config.Config, pipeline: Pipeline) -> AsyncIterator[None]:
    """If `kafka.rekey` is set, run a rekeyer while the body runs. The pipeline reads the topic that
    the rekeyer writes.
    """
    if cfg.kafka.rekey is None:
        yield
        return
    stop = asyncio.Event()
    telemetry = pipeline.wiring.telemetry.of_rekeying()
    async with open_rekeyer(cfg, telemetry) as rekeyer, asyncio.TaskGroup() as tasks:
        tasks.create_task(rekeyer.run(stop))
        yield
        stop.set()


def take_routes(intake: Intake, read_again: Callable[[], config.Config]) -> None:
    """Read the routes again. If the new routes are wrong, the old ones stay, because a mistake in
    the file must not end a worker.
    """
    try:
        routes = routes_of(read_again())
        if routes.models != intake.routes.models:
            raise Fatal("models are added and removed by a start, not by SIGHUP")
    except PenstockError as error:
        log.error("the routes stay as they are: %s", error)
        return
    intake.routes = routes
    log.info("routes: %s", routes)
