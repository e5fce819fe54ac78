"""A stop that hangs, whatever it hangs in."""

import subprocess
import sys

from penstock.errors import EXIT_UNREACHABLE
from tests.support.waiting import DEADLINE_S

HANGS = """
import asyncio, time
from penstock.process.signals import end_within

async def main():
    end_within(0.1)
    time.sleep(60)  # not even the event loop goes on

asyncio.run(main())
"""
ENDS = "from penstock.process.signals import end_within; end_within(60.0)"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_process_that_does_not_end_is_ended() -> None:
    ended = run(HANGS)
    assert ended.returncode == EXIT_UNREACHABLE
    assert "the stop did not end within 0.1 s" in ended.stderr


def test_a_process_that_ends_is_not_held_up() -> None:
    assert run(ENDS).returncode == 0
