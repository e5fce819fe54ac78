"""`penstock advise`: what would suit a running worker's load better."""

from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.commands.common_options import Context, common, run_async, say, say_json
from penstock.errors import usage


@click.command()
@click.option(
    "--status", "path", metavar="FILE", help="A file with what penstock top --json printed."
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@common
def advise(context: Context, path: str | None, as_json: bool) -> None:
    """From what a running worker measured: the size and wait of batches that fit
    window.target_p99_ms, how many calls and workers the load takes, which part ends first, what
    more hardware would bring, and what half-empty batches cost; each beside the present setting.
    What the figures cannot tell is said. Ask while the usual load runs.
    """
    from penstock.commands.top import status_now
    from penstock.ops import advise as ops

    cfg = context.load(quiet=True)

    async def work() -> None:
        document = await status_now(cfg.http) if path is None else _read(path)
        advised = ops.advised(document, cfg)
        if as_json:
            say_json(ops.as_json(advised))
            return
        for line in ops.lines(advised):
            say(line)

    run_async(work())


def _read(path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise usage(f"--status {path}: {error}") from None
