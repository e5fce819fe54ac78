"""The first moments of the `penstock` command, before its libraries are loaded.

Rule: nothing that takes time is imported here, so that a service can be asked to end from its first
moment on.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from penstock.process.process_end import leave_when_asked

# Commands that go on until they are asked to end. When such a command ends for that reason, it has
# not failed.
SERVICES = ("run", "rekey", "replay", "scenes", "watch")
# With this option `run` works off a job. If it is asked to end early, it has failed, because the
# job is not done.
JOB = "--until-end"


def main() -> NoReturn:
    arguments = sys.argv[1:]
    if _command(arguments) in SERVICES and JOB not in arguments:
        leave_when_asked()
    # This import takes 0.3 s on a quiet machine. The line above sees to it that a signal during the
    # import does not end the process with the exit code of a failure.
    from penstock.commands.root import main as run_command  # noqa: PLC0415

    run_command()


def _command(arguments: Sequence[str]) -> str | None:
    return next((each for each in arguments if not each.startswith("-")), None)
