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


def main() -> NoReturn:
    if _command(sys.argv[1:]) in SERVICES:
        leave_when_asked()
    # 0.3 s on a quiet machine, in which a signal would end the process as a failure.
    from penstock.commands.root import main as run_command  # noqa: PLC0415

    run_command()


def _command(arguments: Sequence[str]) -> str | None:
    return next((each for each in arguments if not each.startswith("-")), None)
