"""`penstock doctor`: checks everything that a worker needs."""

import os

import click

from penstock import config, logs
from penstock.commands.common_options import Context, common, run_async, say
from penstock.errors import EXIT_CHECK_FAILED, Fatal


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--fix", is_flag=True, help="Create topics that are missing; nothing else.")
@common
def doctor(context: Context, urls: tuple[str, ...], fix: bool) -> None:
    """Check the configuration, the machine, the topics, the store (and the objects URL...) and the
    model, and say how to correct what is wrong. Exit 1 if anything is wrong; a line "mind" is about
    what works and may cost something.
    """
    from penstock.doctor.examine import examine

    resolved = context.resolve(quiet=True)
    configured = _configured(context, resolved)

    async def work() -> None:
        is_well = configured
        async for found in examine(resolved.config, urls, fix=fix):
            say(logs.redacted(f"{found.level:<5}  {found.what}: {found.said}"))
            is_well = is_well and found.is_well
        if not is_well:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())


def _configured(context: Context, resolved: config.Resolved) -> bool:
    """Print the errors that `penstock lint` and a worker's start would raise. Returns True if there
    are none; the other checks run in either case.
    """
    from penstock.lint.check import lint

    wrong = [str(one).removeprefix("configuration: ") for one in lint(context.path, os.environ, ())]
    if not wrong:
        try:
            config.check_files(resolved)
        except Fatal as error:
            wrong.append(str(error))
    for said in wrong:
        say(logs.redacted(f"wrong  configuration: {said}"))
    if not wrong:
        keys = len(resolved.sources)
        click.echo(f"ok     configuration: {keys} keys set, the others are defaults")
    return not wrong
