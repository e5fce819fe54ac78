"""The last resort of a stop: kills this process if it does not end in time.

Rule: nothing is lost by it, as only delivered rows are committed. The timer runs in a thread, so a
blocked event loop cannot delay it. Owner: the worker's stop.
"""

import os
import sys
import threading

from penstock.errors import EXIT_UNREACHABLE


def end_within(seconds: float) -> None:
    """This process exits after this many seconds at the latest."""
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    timer.start()


def _end(seconds: float) -> None:
    sys.stderr.write(
        f"penstock: the stop did not end within {seconds:g} s. Nothing is lost: what was not "
        "committed will be repeated.\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_UNREACHABLE)
