"""`penstock produce`: announce objects that are in the store."""

import click

from consumers.commands.shared import Context, common, counting, pass_context, run_async


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--stream", help="Stream of all of them; default: bucket/folder of each.")
@common
@pass_context
def produce(context: Context, urls: tuple[str, ...], stream: str | None) -> None:
    """Announce objects that are in the store (URLs or globs): one reference each."""
    from consumers.adapters.kafka_announcer import announced_on
    from consumers.adapters.stores import open_objects, with_clouds
    from consumers.ops.produce import produce as announce

    cfg = with_clouds(context.load())

    async def work() -> None:
        objects = open_objects(cfg, lazily=True)
        try:
            with counting("references") as count:
                sent = await announce(cfg, objects, urls, stream=stream, on_sent=count)
        finally:
            await objects.aclose()
        what = "object" if sent.references == 1 else "objects"
        click.echo(f"announced {sent.references:,} {what} on {announced_on(cfg.kafka)}")
        if sent.hint:
            click.echo(f"hint: {sent.hint}", err=True)

    run_async(work())
