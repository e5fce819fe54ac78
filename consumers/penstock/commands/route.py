"""`penstock route`: which model answers which stream; new routes for a running worker."""

import os
import signal

import click

from penstock.commands.common_options import Context, common, say


@click.command()
@click.argument("streams", nargs=-1)
@click.option("--bucket", help="Of the object; without it, as for inline rows.")
@click.option("--key", help="Of the object; without it, as for inline rows.")
@click.option(
    "--reload",
    "pid",
    type=click.IntRange(2),
    help="Have this process take the routes of its configuration file now, as SIGHUP does.",
)
@common
def route(
    context: Context, streams: tuple[str, ...], bucket: str | None, key: str | None, pid: int | None
) -> None:
    """Show which model answers each of these streams; without streams, show all routes. With
    --reload, a configuration that a worker would refuse is refused here, before the worker gets its
    signal.
    """
    from penstock.settings.routes import routes_of

    routes = routes_of(context.load(quiet=True))
    if not streams:
        say(str(routes))
    for stream in streams:
        say(f"{stream}\t{' '.join(routes.of(stream, bucket, key))}")
    if pid is not None:
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError as error:
            raise click.ClickException(f"process {pid}: {error.strerror}") from None
