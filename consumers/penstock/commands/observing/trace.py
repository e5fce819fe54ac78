"""`penstock trace`: what the topics hold about one answer or one scene."""

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async, say


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@common
def trace(context: Context, id: str, as_json: bool) -> None:
    """Show the object, model, times and dead letter of the answer with this ID, or the frames in
    the scene with this ID.
    """
    cfg = context.load(quiet=True)

    async def work() -> None:
        from penstock.verify.answers.trace import trace as follow
        from penstock.verify.answers.trace_words import as_json as for_programs
        from penstock.verify.answers.trace_words import in_words

        found = await follow(cfg, id)
        if as_json:
            click.echo(msgspec.json.encode(for_programs(found)))
            return
        for line in in_words(found, cfg.scenes.input_topic):
            say(line)

    run_async(work())
