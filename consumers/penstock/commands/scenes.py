"""`penstock scenes`: one picture from many streams."""

import click

from penstock.commands.common_options import Context, common, run_async


@click.command()
@common
def scenes(context: Context) -> None:
    """One scenes worker: makes scenes of predictions, one record for each instant of a site.
    SIGTERM and Ctrl-C leave the group.
    """
    from penstock.scenes.start import run_scenes

    run_async(run_scenes(context.load()))
