"""The `penstock` command: arguments in, exit codes out.

Rule: each command parses, calls one function and prints; what it does lives elsewhere. Errors for
people are one to three lines; a traceback only with `--debug`.
"""

import asyncio
import io
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import click
import msgspec
import orjson
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from consumers import config, logs
from consumers.errors import (
    EXIT_CHECK_FAILED,
    EXIT_DONE,
    EXIT_FATAL,
    EXIT_UNREACHABLE,
    Fatal,
    PenstockError,
    Unreachable,
)


class Context:
    """What all commands share; the configuration is read when a command first asks for it."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.debug = False

    def load(self) -> config.Config:
        cfg = config.load(self.path)
        logs.set_up(cfg.log.level, cfg.log.format)
        return cfg


pass_context = click.make_pass_decorator(Context, ensure=True)


def _store(name: str) -> Any:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(Context), name, value)
        return value

    return keep


def common(command: Any) -> Any:
    """Options of every command."""
    command = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_store("path"),
        help="TOML file; PENSTOCK_SECTION__KEY variables override it.",
    )(command)
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_store("debug"),
        help="Show tracebacks.",
    )(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="penstock", prog_name="penstock")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Ordered, lossless micro-batch inference over objects announced on Kafka."""
    ctx.ensure_object(Context)


@cli.command()
@click.option("--seconds", type=click.FloatRange(0.1), default=20, show_default=True)
@click.option("--streams", type=click.IntRange(1, 1_000), default=12, show_default=True)
@click.option(
    "--rate", type=click.FloatRange(0.01), default=5, show_default=True, help="Hz, of each stream."
)
@click.option("--stack", is_flag=True, help="On the running real services: scripts/stack up.")
@common
@pass_context
def demo(context: Context, seconds: float, streams: int, rate: float, stack: bool) -> None:
    """The whole job at home: streams, a live view, and at the end a proof of order and loss."""
    from consumers.demo.main import Options, run_demo

    run_async(run_demo(Options(seconds, streams, rate, stack, context.path)))


@cli.command()
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Members of the group, one event loop each: one per core.",
)
@common
@pass_context
def run(context: Context, processes: int) -> None:
    """One worker: consume, fetch, batch, predict, publish, commit. SIGTERM and Ctrl-C drain."""
    cfg = context.load()
    if processes > 1:
        from consumers.ops.supervisor import run_processes

        run_async(run_processes(cfg, context.path, processes, debug=context.debug))
        return
    from consumers.app import run_worker

    run_async(run_worker(cfg))


def measuring(command: Any) -> Any:
    """Options of the measuring commands."""
    for option in (
        click.option(
            "--warm-up",
            type=click.IntRange(0, 100_000),
            default=10_000,
            show_default=True,
            help="Requests to the model server before anything is measured.",
        ),
        click.option(
            "--wait-for-quiet",
            type=click.FloatRange(0, 600),
            default=60,
            show_default=True,
            help="Seconds to wait for unrelated processes; 0 measures at once, and once only.",
        ),
        click.option(
            "--json",
            "json_path",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the report here, too.",
        ),
    ):
        command = option(command)
    return command


@cli.group()
def bench() -> None:
    """Measure a worker on real services of this machine: scripts/stack up, then its env."""


@bench.command()
@click.option(
    "--rows-per-object",
    "sizes",
    type=click.IntRange(1, 100_000),
    multiple=True,
    default=(5_000, 500, 8),
    show_default=True,
    help="May be given several times.",
)
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option(
    "--rows", type=click.IntRange(1, 5_000_000), default=750_000, show_default=True,
    help="At most, of each size in each round.",
)  # fmt: skip
@measuring
@common
@pass_context
def throughput(
    context: Context,
    sizes: tuple[int, ...],
    rounds: int,
    rows: int,
    warm_up: int,
    wait_for_quiet: float,
    json_path: Path | None,
) -> None:
    """Rows per second and CPU per row, beside a client that only posts. About a minute a round."""
    from consumers.bench.report import run_throughput
    from consumers.bench.throughput import ThroughputPlan

    plan = ThroughputPlan(
        sizes=sizes,
        rounds=rounds,
        rows=rows,
        warm_up_requests=warm_up,
        quiet_wait_s=wait_for_quiet,
    )
    run_async(run_throughput(context.load(), context.path, plan, json_path))


@bench.command()
@click.option("--hz", type=click.FloatRange(0.1, 1_000), default=20, show_default=True)
@click.option("--p99-ms", type=click.FloatRange(1), default=50, show_default=True)
@click.option("--rows", type=click.IntRange(1, 10_000), default=8, show_default=True)
@click.option("--streams", "fixed", type=click.IntRange(1, 999), help="Do not search: this many.")
@click.option("--max-streams", type=click.IntRange(1, 999), default=100, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(1, 3_600), default=60, show_default=True,
    help="Of the proof.",
)  # fmt: skip
@click.option(
    "--trial-seconds", type=click.FloatRange(1, 600), default=12, show_default=True,
    help="Of each trial of the search.",
)  # fmt: skip
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write p99 against streams as SVG; default: beside the JSON.",
)
@measuring
@common
@pass_context
def streams(
    context: Context,
    hz: float,
    p99_ms: float,
    rows: int,
    fixed: int | None,
    max_streams: int,
    seconds: float,
    trial_seconds: float,
    plot_path: Path | None,
    warm_up: int,
    wait_for_quiet: float,
    json_path: Path | None,
) -> None:
    """How many streams one worker holds within a latency bound. About five minutes."""
    from consumers.bench.report import run_streams
    from consumers.bench.streams import StreamsPlan

    plan = StreamsPlan(
        hz=hz,
        bound_ms=p99_ms,
        rows=rows,
        streams=fixed,
        max_streams=max_streams,
        seconds=seconds,
        trial_s=trial_seconds,
        warm_up_requests=warm_up,
        quiet_wait_s=wait_for_quiet,
    )
    run_async(run_streams(context.load(), context.path, plan, json_path, plot_path))


@cli.command(name="config")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the configuration instead.")
@common
@pass_context
def show_config(context: Context, schema: bool) -> None:
    """Print the resolved configuration, secrets masked."""
    shown = msgspec.json.schema(config.Config) if schema else context.load().masked()
    click.echo(orjson.dumps(shown, option=orjson.OPT_INDENT_2))


@cli.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="File for the results."
)
@click.option("--model", help="http://host:port/predictions/NAME instead of the configured model.")
@click.option(
    "--request", type=click.Choice(["json", "instances", "float32"]), help="Request form."
)
@common
@pass_context
def predict(
    context: Context,
    urls: tuple[str, ...],
    output: Path | None,
    model: str | None,
    request: str | None,
) -> None:
    """Predict the rows of objects (or globs) without Kafka: results in order, as JSON lines."""
    from consumers.library import predict_lines, with_model

    cfg = with_model(context.load(), model, request)

    async def work() -> None:
        with _result_file(output) as file, counting("rows") as count:
            rows = 0
            async with aclosing(predict_lines(urls, cfg)) as found:
                async for lines in found:
                    file.write(b"\n".join(lines) + b"\n")
                    rows += len(lines)
                    count(rows)

    run_async(work())


@cli.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--stream", help="Stream of all of them; default: bucket/folder of each.")
@common
@pass_context
def produce(context: Context, urls: tuple[str, ...], stream: str | None) -> None:
    """Announce objects that are in the store (URLs or globs): one reference each."""
    from consumers.app import open_objects
    from consumers.ops.produce import produce as announce

    cfg = context.load()

    async def work() -> None:
        objects = open_objects(cfg.objects)
        try:
            with counting("references") as count:
                sent = await announce(cfg, objects, urls, stream=stream, on_sent=count)
        finally:
            await objects.aclose()
        click.echo(f"announced {sent:,} objects on {cfg.kafka.input_topic}")

    run_async(work())


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--read-committed", is_flag=True, help="Leave out what transactions took back.")
@click.option(
    "--until",
    type=click.Choice(["end", "committed"]),
    default="end",
    show_default=True,
    help="Everything on the input topic, or what the group has committed of it.",
)
@common
@pass_context
def verify(
    context: Context, as_json: bool, read_committed: bool, until: Literal["end", "committed"]
) -> None:
    """Prove order, no loss and the number of duplicates from the topics alone; exit 1 if broken."""
    from consumers.ops.verify import render
    from consumers.ops.verify import verify as judge

    cfg = context.load()

    async def work() -> None:
        with reading("reading the topics") as progress:
            report = await judge(
                cfg,
                isolation="read_committed" if read_committed else "read_uncommitted",
                until=until,
                progress=progress,
            )
        if as_json:
            click.echo(report.as_json())
        else:
            Console().print(render(report), crop=False)
        if not report.ok:
            raise SystemExit(EXIT_CHECK_FAILED)

    run_async(work())


@cli.group()
def topics() -> None:
    """The topics of the configuration."""


@topics.command()
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), default=1, show_default=True)
@common
@pass_context
def create(context: Context, partitions: int, replication: int) -> None:
    """Create the input, output and dead-letter topics where they are missing."""
    from consumers.ops.topics import create_topics

    cfg = context.load()

    async def work() -> None:
        for topic, outcome in await create_topics(
            cfg, partitions=partitions, replication=replication
        ):
            click.echo(f"{topic}: {outcome}")

    run_async(work())


@contextmanager
def _result_file(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as file:
        yield file


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """A counter with its rate on standard error, when that is a terminal; silent otherwise."""
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + what), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count: bar.update(task, completed=count)


@contextmanager
def reading(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of (done, total) on standard error, when that is a terminal; silent otherwise."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; an exception group is told by the failure that caused it."""
    try:
        asyncio.run(work)
    except BaseExceptionGroup as group:
        raise _cause(group) from group


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure that is not a group itself; failures on purpose before bugs."""
    flat = [
        _cause(error) if isinstance(error, BaseExceptionGroup) else error
        for error in group.exceptions
    ]
    return min(flat, key=lambda error: not isinstance(error, PenstockError))


def main() -> NoReturn:
    context = Context()
    try:
        left_with = cli.main(standalone_mode=False, obj=context)
        code = left_with if isinstance(left_with, int) else 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.exceptions.Abort:
        code = 130
    except PenstockError as error:
        if context.debug:
            raise
        click.echo(f"penstock: {error}", err=True)
        code = _exit_code(error)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = EXIT_DONE  # whoever read our output has seen enough
        sys.stdout = io.StringIO()
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End at once. Before Python 3.13 obstore's threads, still letting go of their last result,
    abort an interpreter that finalises under them: about one exit in ten then has code 134.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_code(error: PenstockError) -> int:
    if isinstance(error, Fatal):
        return error.exit_code
    return EXIT_UNREACHABLE if isinstance(error, Unreachable) else EXIT_FATAL
