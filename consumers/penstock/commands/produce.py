"""`penstock produce`: announces objects that are in the store."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING

import click
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.commands.common_options import (
    Context,
    common,
    run_async,
    say,
    time_from_key,
    timed,
)
from penstock.errors import EXIT_CHECK_FAILED, Fatal
from penstock.terminal_text import bar

if TYPE_CHECKING:
    from penstock.tools.jobs.produce import Produced, ProducedStream


# At most this many streams are listed, so that they fit on a screen.
MOST_LINES = 20


@click.command()
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option(
    "--manifest",
    metavar="URL",
    help="Announce the objects of a list: manifest.json of an S3 Inventory, CSV (.gz), Parquet.",
)
@click.option("--resume", is_flag=True, help="Go on where the same command was cut off.")
@click.option("--anew", is_flag=True, help="Announce all again, although it was cut off.")
@click.option(
    "--stream",
    metavar="NAME|REGEX",
    help="Stream of all of them, or a pattern on the keys with (?P<stream>...); default: as "
    "kafka.stream_from says, else the folder of each.",
)
@time_from_key
@common
def produce(
    context: Context,
    urls: tuple[str, ...],
    manifest: str | None,
    resume: bool,
    anew: bool,
    stream: str | None,
    time_from: str | None,
) -> None:
    """Announce objects that are in the store, by one reference each. URLs and globs name the
    objects, or the rows of a list do. Prints the objects' streams, and the model that will answer
    each stream.
    """
    if (manifest is None) == (not urls):
        raise click.UsageError("Give URLs, or --manifest URL, and not both.")
    if resume and anew:
        raise click.UsageError("--resume goes on, --anew begins again: give one of them.")
    from penstock.adapters.kafka.announcer import announced_on
    from penstock.adapters.stores.choice import open_objects, with_clouds
    from penstock.adapters.stores.local_files import LocalObjects
    from penstock.settings.inputs import stream_from
    from penstock.settings.routes import routes_of
    from penstock.tools.jobs.produce import Wanted
    from penstock.tools.jobs.produce import produce as announce

    cfg = timed(with_clouds(context.load()), time_from)
    stream_from(cfg.kafka.stream_from)
    routes = routes_of(cfg)
    wanted = Wanted(urls, manifest, stream, resume, anew)

    async def work() -> None:
        began_s = monotonic()
        objects = LocalObjects(lambda: open_objects(cfg, lazily=True))
        async with aclosing(objects):
            with _counting("references") as count:
                sent = await announce(cfg, objects, wanted, routes, on_sent=count)
        say(_said(sent, announced_on(cfg.kafka), monotonic() - began_s))
        for line in _streams(sent.streams):
            say(line)
        if sent.hint:
            say(f"hint: {sent.hint}", err=True)
        if sent.refused:
            topic = announced_on(cfg.kafka)
            for line in sent.first_refused:
                say(f"{topic} refused {line}", err=True)
            raise Fatal(
                f"{topic} refused {sent.refused:,} references, which are not announced; see the "
                "broker's words, mend the topic, and announce these objects again",
                exit_code=EXIT_CHECK_FAILED,
            )

    run_async(work())


@contextmanager
def _counting(what: str) -> Iterator[Callable[[int], None]]:
    """Shows a counter, and the time since it began. The block gets a function, and calls it with
    the new count.
    """
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + what), TimeElapsedColumn())
    with bar(*columns) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.update(task, completed=count)


def _said(sent: "Produced", topic: str, took_s: float) -> str:
    if sent.before and not sent.references:
        return f"all {sent.before:,} objects were announced on {topic} before"
    what = "object" if sent.references == 1 else "objects"
    before = f" ({sent.before:,} before)" if sent.before else ""
    rate = f"{sent.references / took_s:,.0f} a second"
    return f"announced {sent.references:,} {what} on {topic}{before} in {took_s:,.1f} s, {rate}"


def _streams(streams: Mapping[str, "ProducedStream"]) -> Iterator[str]:
    from penstock.terminal_text import cut

    for name, stream in islice(sorted(streams.items()), MOST_LINES):
        objects = "object" if stream.objects == 1 else "objects"
        models = ", ".join(sorted(stream.models))
        yield f"  {cut(name)}: {stream.objects:,} {objects}, answered by {models}"
    if (more := len(streams) - MOST_LINES) > 0:
        yield f"  and {more:,} more streams"
