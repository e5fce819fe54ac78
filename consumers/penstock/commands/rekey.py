"""`penstock rekey`: brings each stream's messages of the input topics into one order."""

import click

from penstock.commands.common_options import Context, common, run_async


@click.command()
@common
def rekey(context: Context) -> None:
    """Pass the input topics' messages on to kafka.rekey, keyed by stream, exactly once. SIGTERM
    and Ctrl-C leave the group.
    """
    from penstock.worker.rekey import run_rekey

    run_async(run_rekey(context.resolve().config))
