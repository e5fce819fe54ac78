"""What nobody foresaw, and belongs to nobody, ends a command as what a person must look at."""

import subprocess
import sys

import pytest

from penstock.errors import EXIT_FATAL

STUMBLES = """
import sys
from penstock import logs
from penstock.commands.root import cli, main

@cli.command()
def stumble():
    raise {error}("the ledger, and its secret-word")

logs.hide(["secret-word"])
sys.argv = ["penstock", "stumble"]
main()
"""


@pytest.mark.parametrize("error", ["KeyError", "asyncio.CancelledError"])
def test_it_is_shown_whole_without_secrets_and_the_code_is_4(error: str) -> None:
    program = "import asyncio\n" + STUMBLES.format(error=error)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == EXIT_FATAL
    assert "Traceback" in ended.stderr
    assert "in stumble" in ended.stderr
    name = error.rpartition(".")[2]
    assert f"penstock: nobody foresaw this {name}; please report all of it" in ended.stderr
    assert "the ledger" in ended.stderr
    assert "secret-word" not in ended.stderr
