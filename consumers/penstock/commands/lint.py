"""`penstock lint`: what is wrong in a configuration, asked without any service."""

import os
from pathlib import Path

import click
import msgspec

from penstock.commands.common_options import Context, common, say, say_json
from penstock.errors import EXIT_CHECK_FAILED, usage


@click.command()
@click.option(
    "--streams",
    multiple=True,
    metavar="FILE|NAME",
    help="Streams that there are: a file with one a line, or a name or glob; may be repeated.",
)
@click.option("--ignore", multiple=True, metavar="KEY", help="Say nothing of this key.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON array.")
@common
def lint(
    context: Context, streams: tuple[str, ...], ignore: tuple[str, ...], as_json: bool
) -> None:
    """Check a configuration without any service: are its keys and values right, and do any of them
    contradict each other? One run prints everything that is wrong, with its line. The exit code is
    1 if anything is wrong.
    """
    from penstock.tools.lint import lint as check

    findings = check(
        context.path, os.environ, [name for stream in streams for name in _named(stream)]
    )
    findings = [finding for finding in findings if finding.key not in ignore]
    if as_json:
        say_json(msgspec.json.encode([finding._asdict() for finding in findings]))
    else:
        name = context.path or "the environment"
        say("\n".join(map(str, findings)) or f"{name}: nothing is wrong")
    if findings:
        raise SystemExit(EXIT_CHECK_FAILED)


def _named(text: str) -> list[str]:
    file = Path(text)
    try:
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else [text]
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"--streams {file}: {error}; name a file of text, a name or a glob") from None
