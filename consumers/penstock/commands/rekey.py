"""`penstock rekey`: passes messages on, keyed by stream."""

import click

from penstock.commands.common_options import Context, common, run_async


@click.command()
@common
def rekey(context: Context) -> None:
    """Pass the messages of the input topics on to the topic kafka.rekey, keyed by stream, exactly
    once. SIGTERM and Ctrl-C leave the group.
    """
    from penstock.worker.rekey import run_rekey

    run_async(run_rekey(context.resolve().config))
