"""`penstock run`: a worker, or several under one supervisor."""

import click

from consumers.commands.shared import Context, common, pass_context, run_async


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
    cfg = context.load()
    if processes > 1:
        from consumers.ops.supervisor import run_processes

        run_async(run_processes(cfg, context.path, processes, debug=context.debug))
        return
    from consumers.app import run_worker

    run_async(run_worker(cfg))
