"""The `penstock` command itself: runs a command, and returns the exit code.

Rule: an error is one to three lines for people; its traceback is printed only with `--debug`, or if
it is unexpected.
"""

import io
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NoReturn

import click

from penstock.commands.common_options import Context, say
from penstock.errors import (
    EXIT_DONE,
    EXIT_FATAL,
    EXIT_UNREACHABLE,
    Fatal,
    PenstockError,
    Unreachable,
)
from penstock.packages import DISTRIBUTION
from penstock.process import process_end
from penstock.process.memory import hide_memory, keep_heap_small

# Each command is the function of its name in the file of its name, with what `--help` says of it.
COMMANDS: Final[Mapping[str, str]] = {
    "advise": "Say what would suit a running worker's load better.",
    "bench": "Measure a worker on real services of this machine.",
    "compare": "Show how far a shadow agrees with the live model.",
    "config": "Print the configuration and where each value comes from.",
    "demo": "Show the whole job on this machine, with a proof at its end.",
    "dlq": "Dead letters: look at them, send them back.",
    "doctor": "Check all that a worker needs; say how to mend what is wrong.",
    "lint": "Check a configuration without any service.",
    "predict": "Predict the rows of objects without Kafka.",
    "produce": "Announce objects that are in the store.",
    "progress": "Show how much is announced, answered and left.",
    "rekey": "Pass the input on to another topic, keyed by stream.",
    "replay": "Answer again the messages of a span of time.",
    "route": "Show which model answers which stream.",
    "run": "Run a worker: consume, fetch, batch, predict, publish, commit.",
    "scenes": "Run a scenes worker: one record for each instant of a site.",
    "schema": "Print the JSON Schema of a message.",
    "top": "Show what a running worker does, and what is wrong with it.",
    "topics": "Create the topics of the configuration.",
    "trace": "Show all that the topics hold about one answer or scene.",
    "verify": "Prove from the topics that order was kept and nothing lost.",
    "watch": "Show answers as they come on the output topic.",
}


class Commands(click.Group):
    """Imports a command's file when the command is asked for: `penstock --help` waits for none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(f"penstock.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name=DISTRIBUTION, prog_name="penstock")
@click.option(process_end.END_WITH_PARENT, is_flag=True, hidden=True)
@click.pass_context
def cli(ctx: click.Context, *, end_with_parent: bool) -> None:
    """Ordered, lossless micro-batch inference over objects announced on Kafka."""
    ctx.ensure_object(Context)
    if end_with_parent:
        process_end.end_with_parent()


def main() -> NoReturn:
    hide_memory()
    keep_heap_small()
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
        text = traceback.format_exc() if context.debug else f"penstock: {error}\n"
        say(_redacted(text).removesuffix("\n"), err=True)
        code = _exit_code(error)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = EXIT_DONE  # the reader of our output, such as `head`, has ended
        sys.stdout = io.StringIO()
    except BaseException as error:  # nobody else would report it
        plea = f"penstock: nobody foresaw this {type(error).__name__}; please report all of it"
        say(_redacted(f"{traceback.format_exc()}{plea}"), err=True)
        code = EXIT_FATAL
    process_end.leave(code)


def _redacted(text: str) -> str:
    from penstock import logs

    return logs.redacted(text)


def _exit_code(error: PenstockError) -> int:
    if isinstance(error, Fatal):
        return error.exit_code
    return EXIT_UNREACHABLE if isinstance(error, Unreachable) else EXIT_FATAL
