"""`penstock predict`: objects in, results out, no Kafka."""

import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from consumers.commands.shared import Context, common, counting, pass_context, run_async


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="File for the results."
)
@click.option("--model", help="http://host:port/predictions/NAME instead of the configured model.")
@click.option("--request", metavar="FORM", help="json, instances, float32, bytes, raw or arrow.")
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

    cfg = with_model(context.load(quiet=True), model, request)

    async def work() -> None:
        with _result_file(output) as file, counting("rows") as count:
            rows = 0
            async with aclosing(predict_lines(urls, cfg)) as found:
                async for lines in found:
                    file.write(b"\n".join(lines) + b"\n")
                    rows += len(lines)
                    count(rows)

    run_async(work())


@contextmanager
def _result_file(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as file:
        yield file
