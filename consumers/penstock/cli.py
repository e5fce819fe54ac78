"""The first moments of the `penstock` command, before anything is loaded.

Rule: nothing is imported here that takes time; from the first line on a service can be asked to
end. Owner: the process.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from penstock.process.command_exit import leave_when_asked

# Commands that go on until they are asked to end, which is no failure of theirs.
SERVICES = ("run", "replay", "scenes", "watch")
# A job that is asked to end before its end is not done.
JOB = "--until-end"


def main() -> NoReturn:
    arguments = sys.argv[1:]
    if _command(arguments) in SERVICES and JOB not in arguments:
        leave_when_asked()
    # 0.3 s on a quiet machine, in which a signal would end the process as a failure.
    from penstock.commands.root import main as run_command  # noqa: PLC0415

    run_command()


def _command(arguments: Sequence[str]) -> str | None:
    return next((each for each in arguments if not each.startswith("-")), None)
