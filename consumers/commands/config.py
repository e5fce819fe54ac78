"""`penstock config`: what is in force."""

import click
import msgspec
import orjson

from consumers import config
from consumers.commands.shared import Context, common, pass_context


@click.command(name="config")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the configuration instead.")
@common
@pass_context
def show_config(context: Context, schema: bool) -> None:
    """Print the resolved configuration, secrets masked."""
    shown = msgspec.json.schema(config.Config) if schema else context.load().masked()
    click.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2))
