"""`penstock produce`: announce objects that are in the store."""

import click

from penstock.commands.common_options import Context, common, counting, pass_context, run_async


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--stream", help="Stream of all of them; default: bucket/folder of each.")
@common
@pass_context
def produce(context: Context, urls: tuple[str, ...], stream: str | None) -> None:
    """Announce objects that are in the store (URLs or globs): one reference each."""
    from penstock.adapters.kafka.announcer import announced_on
    from penstock.adapters.stores.choice import open_objects, with_clouds
    from penstock.ops.produce import produce as announce

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
