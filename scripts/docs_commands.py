"""Writes docs/commands.md, the reference of all commands, from the commands themselves:
`python -m scripts.docs_commands`.

Rule: nothing on that page is written by hand; a test compares it with `page()`. A sentence that
belongs on it is a command's docstring or an option's `help`, so that `--help` says it, too.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.commands.root import cli

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
_WIDTH = 120
_HEAD = """\
This page is made from the commands (`python -m scripts.docs_commands`); `-h` behind a command shows
the same, and the options of `penstock bench`. [operations.md](operations.md#commands) says which to
use when, and explains the [exit codes](operations.md#exit-codes).

All commands but `penstock schema` take `--config FILE` (TOML; `PENSTOCK_SECTION__KEY` variables
override it) and `--debug` (show tracebacks). `python -m penstock` is the same as `penstock`.
"""
_OF_ALL = {"config", "debug"}
# Their options are for who measures, beside a page about it: `-h` shows them.
_IN_SHORT = "penstock bench"


def page() -> str:
    head = [f"{textwrap.fill(paragraph, _WIDTH)}\n" for paragraph in _HEAD.split("\n\n")]
    return "\n".join(["# Commands\n", *head, *(_section(*each) for each in commands(cli))])


def below(group: click.Group) -> dict[str, click.Command]:
    context = click.Context(group)
    inner = {
        name: group.get_command(context, name) for name in sorted(group.list_commands(context))
    }
    return {name: command for name, command in inner.items() if command is not None}


def commands(command: click.Command, name: str = "penstock") -> Iterator[tuple[str, click.Command]]:
    """All commands that are no groups, with their full names, in the order of their names."""
    if isinstance(command, click.Group):
        for inner_name, inner in below(command).items():
            yield from commands(inner, f"{name} {inner_name}")
    else:
        yield name, command


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    usage = " ".join([name, *(each.make_metavar(context) for each in arguments)])
    usages = [f"`{usage}`", ""] if arguments else []
    records = [] if name.startswith(_IN_SHORT) else _records(command, context)
    options = [line for record in records for line in _option(*record)]
    text = textwrap.wrap(" ".join((command.help or "").split()), _WIDTH)
    title = name.removeprefix("penstock ")
    return "\n".join([f"## {title}", "", *usages, *text, *(["", *options] if options else []), ""])


def _records(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Options with what `--help` says of them, hidden ones left out."""
    for option in command.params:
        record = option.get_help_record(context)
        if isinstance(option, click.Option) and option.name not in _OF_ALL and record:
            yield record


def _option(option: str, text: str) -> list[str]:
    option = option.replace("INTEGER RANGE", "N").replace("FLOAT RANGE", "N")
    text = text.replace("  [", " [").replace("|", "/")
    line = f"`{option.replace('|', '/')}`{'' if text.startswith('[') else ':'} {text}"
    # The option stays on one line: it is read as code.
    words = re.sub("`[^`]+`", lambda code: code[0].replace(" ", "\0"), line)
    wrapped = textwrap.wrap(
        words, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )
    return [each.replace("\0", " ") for each in wrapped]


if __name__ == "__main__":
    PAGE.write_text(page())
