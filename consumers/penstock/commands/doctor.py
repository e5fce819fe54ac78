"""`penstock doctor`: checks everything that a worker needs."""

import click

from penstock import config, logs
from penstock.commands.common_options import Context, common, pass_context, run_async
from penstock.commands.whole import check_whole
from penstock.errors import EXIT_CHECK_FAILED, Fatal


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@common
@pass_context
def doctor(context: Context, urls: tuple[str, ...]) -> None:
    """Check the configuration, the topics, the store (and the objects URL...) and the model, and
    say how to correct what is wrong. Exit 1 if anything is wrong.
    """
    from penstock.doctor.examine import examine

    resolved = context.resolve(quiet=True)
    configured = _configured(resolved)

    async def work() -> None:
        is_well = configured
        async for found in examine(resolved.config, urls):
            line = f"{'ok   ' if found.is_well else 'wrong'}  {found.what}: {found.said}"
            click.echo(logs.redacted(line))
            is_well = is_well and found.is_well
        if not is_well:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())


def _configured(resolved: config.Resolved) -> bool:
    """Print whether a worker would take the configuration. If not, the other checks still run."""
    try:
        check_whole(resolved)
    except Fatal as error:
        click.echo(logs.redacted(f"wrong  configuration: {error}"))
        return False
    click.echo(f"ok     configuration: {len(resolved.sources)} keys set, the others are defaults")
    return True
