"""`penstock verify`: were all references answered, in order, and how often?"""

from typing import Literal

import click
from rich.console import Console

from penstock.commands.common_options import Context, common, reading, run_async, say_json
from penstock.errors import EXIT_CHECK_FAILED


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--read-committed", is_flag=True, help="Leave out records of aborted transactions.")
@click.option(
    "--until",
    type=click.Choice(["end", "committed"]),
    default="end",
    show_default=True,
    help="Everything on the input topic, or what the group has committed of it.",
)
@click.option("--scenes", "of_scenes", is_flag=True, help="Judge penstock scenes; a JSON report.")
@common
def verify(
    context: Context,
    as_json: bool,
    read_committed: bool,
    until: Literal["end", "committed"],
    of_scenes: bool,
) -> None:
    """Prove from the topics alone that the order was kept and nothing was lost, and count the
    duplicates. The exit code is 1 if a promise was broken.
    """
    from penstock.tools.verify.findings import render
    from penstock.tools.verify.read_topics import verify as judge

    cfg = context.load()

    async def judge_scenes() -> None:
        from penstock.scenes.judge import verify_scenes

        report = await verify_scenes(cfg)
        say_json(report.as_json())
        if not report.ok:
            raise SystemExit(EXIT_CHECK_FAILED)

    if of_scenes:
        run_async(judge_scenes())
        return

    async def work() -> None:
        with reading("reading the topics") as progress:
            report = await judge(cfg, committed=read_committed, until=until, progress=progress)
        if as_json:
            say_json(report.as_json())
        else:
            Console().print(render(report), crop=False)
        if not report.ok:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())
