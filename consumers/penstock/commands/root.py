"""The `penstock` command itself: takes the arguments, runs a command, and returns the exit code.
`cli` loads it.

Rule: an error is printed in one to three lines for people. Its traceback is printed only with
`--debug`, or if the exception is unexpected. Owner: the process.
"""

import io
import sys
import traceback
from typing import NoReturn

import click

from penstock import logs
from penstock.commands.bench import bench
from penstock.commands.common_options import Context, say
from penstock.commands.compare import compare
from penstock.commands.config import show_config
from penstock.commands.demo import demo
from penstock.commands.dlq import dlq
from penstock.commands.doctor import doctor
from penstock.commands.lint import lint
from penstock.commands.predict import predict
from penstock.commands.produce import produce
from penstock.commands.progress import progress
from penstock.commands.rekey import rekey
from penstock.commands.replay import replay
from penstock.commands.route import route
from penstock.commands.run import run
from penstock.commands.scenes import scenes
from penstock.commands.schema import schema
from penstock.commands.top import top
from penstock.commands.topics import topics
from penstock.commands.trace import trace
from penstock.commands.verify import verify
from penstock.commands.watch import watch
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
from penstock.process.hidden_memory import hide_memory
from penstock.process.small_memory import keep_heap_small
from penstock.terminal_text import escaped


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=DISTRIBUTION, prog_name="penstock")
@click.option(process_end.END_WITH_PARENT, is_flag=True, hidden=True)
@click.pass_context
def cli(ctx: click.Context, *, end_with_parent: bool) -> None:
    """Ordered, lossless micro-batch inference over objects announced on Kafka."""
    ctx.ensure_object(Context)
    if end_with_parent:
        process_end.end_with_parent()


for command in (
    demo, run, rekey, predict, produce, progress, verify, watch, top, trace, scenes, dlq, topics,
    doctor, lint, bench, show_config, schema, route, compare, replay,
):  # fmt: skip
    cli.add_command(command)


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
        click.echo(escaped(logs.redacted(text)), err=True, nl=False)
        code = _exit_code(error)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = EXIT_DONE  # the reader of our output, such as `head`, has ended
        sys.stdout = io.StringIO()
    except BaseException as error:  # nobody else would report it
        said = f"penstock: nobody foresaw this {type(error).__name__}; please report all of it"
        say(logs.redacted(f"{traceback.format_exc()}{said}"), err=True)
        code = EXIT_FATAL
    process_end.leave(code)


def _exit_code(error: PenstockError) -> int:
    if isinstance(error, Fatal):
        return error.exit_code
    return EXIT_UNREACHABLE if isinstance(error, Unreachable) else EXIT_FATAL
