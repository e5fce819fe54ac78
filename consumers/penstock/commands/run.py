"""`penstock run`: a worker, or several workers under one supervisor."""

import logging
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click

from penstock import config
from penstock.commands.common_options import Context, common, run_async, say, say_json
from penstock.errors import EXIT_CHECK_FAILED
from penstock.packages import DISTRIBUTION
from penstock.process.memory import without_pandas
from penstock.process.process_end import RESERVE, wait_for_place

log = logging.getLogger(__name__)

# A dry run reads at most this many messages of each partition, because it holds them in memory.
MOST_DRY = 1_000


@click.command()
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Members of the group, one event loop each: one per core.",
)
@click.option(
    "--spare",
    is_flag=True,
    help="Keep one more process in reserve, which takes the place of one that dies.",
)
@click.option(RESERVE, "in_reserve", is_flag=True, hidden=True)
@click.option(
    "--leave",
    is_flag=True,
    help="With kafka.instance_id: give up the place in the group when it stops, for good.",
)
@click.option(
    "--dry-run",
    "dry",
    type=click.IntRange(1, MOST_DRY),
    metavar="N",
    help="Only show what would be published for the next N messages of each partition.",
)
@click.option(
    "--until-end",
    is_flag=True,
    help="End with 0 when all that is on the input topic now is answered, by the whole group.",
)
@click.option("--strict", is_flag=True, help="With --until-end: 1 if any was answered by an error.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: a JSON object per record.")
@common
def run(
    context: Context,
    processes: int,
    dry: int | None,
    *,
    spare: bool,
    in_reserve: bool,
    leave: bool,
    until_end: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Run one worker: consume, fetch, batch, predict, publish, commit. SIGTERM and Ctrl-C drain.

    With --dry-run it joins no group, publishes nothing and commits nothing. The exit code is then 1
    if anything would become a dead letter.
    """
    if strict and not until_end:
        raise click.UsageError("--strict judges a job at its end: give --until-end, too.")
    if until_end and (spare or dry is not None):
        raise click.UsageError("--until-end is a job; --spare and --dry-run are for other things.")
    if dry is not None:
        if processes > 1 or spare:
            raise click.UsageError("--dry-run is one process")
        _run_dry(context, dry, as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json is for --dry-run")
    if in_reserve:
        _wait_in_reserve()
    resolved = context.resolve()
    cfg = resolved.config
    say_start(resolved, context.path)
    config.check_files(resolved.config, resolved.sources)
    if processes > 1 or spare:
        from penstock.ops.supervisor import run_processes

        many = run_processes(
            cfg,
            context.path,
            processes,
            debug=context.debug,
            leaves=leave,
            has_spare=spare,
            job=[*(["--until-end"] if until_end else []), *(["--strict"] if strict else [])],
        )
        run_async(many)
        return
    from penstock.worker.run_worker import run_worker

    without_pandas()
    if until_end:
        from penstock.tools.jobs.until_end import run_until_end

        run_async(run_until_end(cfg, context.path, context.load, strict=strict, leaves=leave))
        return
    run_async(run_worker(cfg, context.path, context.load, leaves=leave))


def _wait_in_reserve() -> None:
    """Import everything that a worker needs, because these imports take most of the time of a
    start. Then wait until a member dies.
    """
    import penstock.worker.run_worker  # noqa: F401

    without_pandas()
    wait_for_place()


def _run_dry(context: Context, most: int, *, as_json: bool) -> None:
    from penstock.tools.verify.answer_lines import DryRun
    from penstock.worker.dry_run import dry_run

    resolved = context.resolve(quiet=True)
    config.check_files(resolved.config, resolved.sources)
    cfg = resolved.config
    seen = DryRun(cfg.output.dead_letter_topic, say_json if as_json else say, as_json=as_json)

    async def work() -> None:
        read = await dry_run(cfg, most, seen.show)
        if read is None:
            return
        idle = f"; nothing waits in {read.idle} other partitions" if read.idle else ""
        say(
            f"dry run: {read.messages:,} messages of {read.partitions} partitions{idle}: "
            f"{seen.answers:,} answers, {seen.errors:,} of them errors, and {seen.letters:,} dead "
            "letters; nothing was published, nothing committed",
            err=True,
        )
        if seen.letters:
            raise SystemExit(EXIT_CHECK_FAILED)

    without_pandas()
    run_async(work())


def say_start(resolved: config.Resolved, path: Path | None) -> None:
    """Log which keys of the file the environment overrides, and then, in one line, what this worker
    does. A worker under a supervisor logs nothing here, because the supervisor has logged the same
    lines.
    """
    from penstock.ops.http_server import HTTP_FD

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
        cfg.kafka.input_name
        if cfg.kafka.rekey is None
        else f"{cfg.kafka.input_name} by way of {cfg.kafka.rekey}",
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
    if others := list(_other_models(cfg)):
        log.info("beside it: %s", "; ".join(others))


def _other_models(cfg: config.Config) -> Iterator[str]:
    """Texts that name the models beside the default one, the routes to them, and the shadow."""
    from penstock.settings.routes import routes_of

    shadow = cfg.model.shadow
    for name, model_cfg in cfg.with_each_live_model().items():
        model = model_cfg.model
        yield f"model {name} at {config.shown_url(model.url)} ({model.protocol}, {model.request})"
    if cfg.routes:
        yield f"routes: {routes_of(cfg)}"
    if shadow is not None:
        yield f"shadow {shadow.model}, asked {shadow.percent:g} %"
