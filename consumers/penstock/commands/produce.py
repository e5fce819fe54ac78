"""`penstock produce`: announce objects that are in the store."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import click

from penstock.commands.common_options import Context, common, counting, pass_context, run_async

if TYPE_CHECKING:
    from penstock.ops.produce import Stream

# Streams that are shown: as many as a screen has lines.
MOST_LINES = 20


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--stream",
    metavar="NAME|REGEX",
    help="Stream of all of them, or a pattern on the keys with (?P<stream>...); default: as "
    "kafka.stream_from says, else the folder of each.",
)
@common
@pass_context
def produce(context: Context, urls: tuple[str, ...], stream: str | None) -> None:
    """Announce objects that are in the store (URLs or globs): one reference each. Prints their
    streams, and the model that will answer each.
    """
    from penstock.adapters.kafka.announcer import announced_on
    from penstock.adapters.stores.choice import open_objects, with_clouds
    from penstock.ops.produce import produce as announce
    from penstock.settings.inputs import stream_from
    from penstock.settings.routes import routes_of

    cfg = with_clouds(context.load())
    stream_from(cfg.kafka.stream_from)
    routes = routes_of(cfg)

    async def work() -> None:
        objects = open_objects(cfg, lazily=True)
        try:
            with counting("references") as count:
                sent = await announce(cfg, objects, urls, routes, stream=stream, on_sent=count)
        finally:
            await objects.aclose()
        what = "object" if sent.references == 1 else "objects"
        click.echo(f"announced {sent.references:,} {what} on {announced_on(cfg.kafka)}")
        click.echo("\n".join(_streams(sent.streams)))
        if sent.hint:
            click.echo(f"hint: {sent.hint}", err=True)

    run_async(work())


def _streams(streams: Mapping[str, "Stream"]) -> Iterator[str]:
    from penstock.terminal_text import cut

    for name, stream in islice(sorted(streams.items()), MOST_LINES):
        objects = "object" if stream.objects == 1 else "objects"
        models = ", ".join(sorted(stream.models))
        yield f"  {cut(name)}: {stream.objects:,} {objects}, answered by {models}"
    if (more := len(streams) - MOST_LINES) > 0:
        yield f"  and {more:,} more streams"
