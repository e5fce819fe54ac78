"""`penstock trace`: all that the topics hold about one answer or one scene."""

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async, say, say_json


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON.")
@common
def trace(context: Context, id: str, as_json: bool) -> None:
    """Show the object, the model, the times and the dead letter of the answer with this ID. If ID
    is that of a scene, show the frames in the scene.
    """
    cfg = context.load(quiet=True)

    async def work() -> None:
        from penstock.tools.verify.answer_lines import as_json as for_programs
        from penstock.tools.verify.answer_lines import in_words
        from penstock.tools.verify.trace import trace as follow

        answer = await follow(cfg, id)
        if as_json:
            say_json(msgspec.json.encode(for_programs(answer)))
            return
        for line in in_words(answer, cfg.scenes.input_topic):
            say(line)

    run_async(work())
