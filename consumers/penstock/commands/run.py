"""`penstock run`: a worker, or several under one supervisor."""

import logging
import os
from importlib.metadata import version
from pathlib import Path

import click

from penstock import config
from penstock.commands.common_options import Context, common, pass_context, run_async
from penstock.errors import DISTRIBUTION
from penstock.process.without_pandas import without_pandas

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Members of the group, one event loop each: one per core.",
)
@common
@pass_context
def run(context: Context, processes: int) -> None:
    """One worker: consume, fetch, batch, predict, publish, commit. SIGTERM and Ctrl-C drain."""
    resolved = context.resolve()
    cfg = resolved.config
    say_start(resolved, context.path)
    config.check_files(resolved)
    if processes > 1:
        from penstock.ops.supervisor import run_processes

        run_async(run_processes(cfg, context.path, processes, debug=context.debug))
        return
    from penstock.worker.app import run_worker

    without_pandas()
    run_async(run_worker(cfg, context.load))


def say_start(resolved: config.Resolved, path: Path | None) -> None:
    """Log in a line what this worker does, and which keys of the file the environment overrides.
    For several members only the supervisor logs it.
    """
    from penstock.ops.listening import HTTP_FD

    if HTTP_FD in os.environ:
        return
    if resolved.overridden:
        changes = ", ".join(f"{key} ({name})" for key, name in resolved.overridden.items())
        log.info("the environment overrides %s: %s", path, changes)
    cfg = resolved.config
    log.info(
        "worker %s: %s of %s as group %s; store %s; model %s at %s (%s, %s); window %d rows or "
        "%d ms; to %s, %s",
        version(DISTRIBUTION),
        cfg.kafka.input_name,
        cfg.kafka.bootstrap_servers,
        cfg.kafka.group,
        config.shown_url(cfg.objects.endpoint_url or "AWS"),
        cfg.model.name,
        config.shown_url(cfg.model.url),
        cfg.model.protocol,
        cfg.model.request,
        cfg.window.max_rows,
        cfg.window.max_wait_ms,
        cfg.output.topic,
        cfg.delivery.guarantee.replace("_", " "),
    )
