"""`penstock scenes`: one picture of many streams."""

import click

from penstock.commands.common_options import Context, common, run_async


@click.command()
@common
def scenes(context: Context) -> None:
    """Run one scenes worker. It makes scenes from predictions: one record for each instant of a
    site. SIGTERM and Ctrl-C leave the group.
    """
    from penstock.scenes.start import run_scenes

    run_async(run_scenes(context.load()))
