"""`penstock top`: a running worker's status on a terminal, renewed every second."""

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async
from penstock.errors import Unreachable

if TYPE_CHECKING:
    from penstock import config

EVERY_S = 1.0


@click.command()
@click.option("--once", is_flag=True, help="One look; also where the output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="The worker's status as one JSON object.")
@common
def top(context: Context, once: bool, as_json: bool) -> None:
    """What is wrong, how the work flows, and the streams in most trouble: from the page of the
    worker that answers at http.host and http.port. Ctrl-C ends it.
    """
    cfg = context.load(quiet=True)
    run_async(_printed(cfg.http) if as_json else _shown(cfg.http, once=once))


async def _printed(http: "config.Http") -> None:
    click.echo(msgspec.json.encode(await look(http)))


async def _shown(http: "config.Http", *, once: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from penstock.ops.top_table import render

    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(render(await look(http)))
        return
    with Live(render(await look(http)), console=console, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(EVERY_S)
            live.update(render(await look(http)), refresh=True)


async def look(http: "config.Http") -> dict[str, Any]:
    from penstock.adapters.http.running_worker import status_of, url_of

    if (found := await status_of(http)) is None:
        raise Unreachable(
            f"no worker answers at {url_of(http)}: start penstock run there, or name its page by "
            "http.host and http.port"
        )
    return found
