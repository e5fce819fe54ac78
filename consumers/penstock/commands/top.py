"""`penstock top`: the state of a running worker."""

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async, say_json
from penstock.errors import Unreachable

if TYPE_CHECKING:
    from penstock import config


TOP_EVERY_S = 1.0


@click.command()
@click.option("--once", is_flag=True, help="One look; also where the output is no terminal.")
@click.option("--cost", is_flag=True, help="What each stream costs the model, in time and money.")
@click.option("--json", "as_json", is_flag=True, help="The worker's status as one JSON object.")
@common
def top(context: Context, once: bool, cost: bool, as_json: bool) -> None:
    """Show what is wrong, how the work flows, and which streams are in most trouble. All this is
    read from the page of the worker at http.host and http.port. Ctrl-C ends it.
    """
    cfg = context.load(quiet=True)
    run_async(_top_printed(cfg.http) if as_json else _top_shown(cfg.http, once=once, cost=cost))


async def _top_printed(http: "config.Http") -> None:
    say_json(msgspec.json.encode(await status_now(http)))


async def _top_shown(http: "config.Http", *, once: bool, cost: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from penstock.ops.top_table import render

    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(render(await status_now(http), cost=cost))
        return
    with Live(
        render(await status_now(http), cost=cost), console=console, auto_refresh=False
    ) as live:
        while True:
            await asyncio.sleep(TOP_EVERY_S)
            live.update(render(await status_now(http), cost=cost), refresh=True)


async def status_now(http: "config.Http") -> dict[str, Any]:
    from penstock.adapters.http.running_worker import status_of, url_of

    if (status := await status_of(http)) is None:
        raise Unreachable(
            f"no worker answers at {url_of(http)}: start penstock run there, or name its page by "
            "http.host and http.port"
        )
    return status
