"""`penstock doctor`: asks all that a worker needs, and says how to mend what is wrong."""

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
    """Check the configuration, the machine, the topics, the store and the model, and say how to
    correct what is wrong. With URL..., also check that these objects (or local files) can be read,
    and ask the model for their first rows. The exit code is 1 if anything is wrong. A line "mind"
    is about something that works, but may cost something.
    """
    from penstock.tools.doctor.examine import examine

    resolved = context.resolve(quiet=True)
    configured = _configured(context, resolved)

    async def work() -> None:
        is_well = configured
        async for finding in examine(resolved.config, urls, fix=fix):
            say(logs.redacted(f"{finding.level:<5}  {finding.what}: {finding.said}"))
            is_well = is_well and finding.is_well
        if not is_well:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())


def _configured(context: Context, resolved: config.Resolved) -> bool:
    """Print the errors that `penstock lint` or a worker's start would report. Returns True if there
    are none. The doctor's other checks run in any case.
    """
    from penstock.tools.lint import lint

    wrong = [
        str(finding).removeprefix("configuration: ")
        for finding in lint(context.path, os.environ, ())
    ]
    if not wrong:
        try:
            config.check_files(resolved.config, resolved.sources)
        except Fatal as error:
            wrong.append(str(error))
    for message in wrong:
        say(logs.redacted(f"wrong  configuration: {message}"))
    if not wrong:
        keys = len(resolved.sources)
        say(f"ok     configuration: {keys} keys set, the others are defaults")
    return not wrong
