"""The last resort of a stop: a process that does not end is ended.

Rule: ending it loses nothing, as only what was delivered is committed; it runs beside the event
loop, so that nothing in the loop can hold it up. Owner: the worker's stop.
"""

import os
import sys
import threading

from consumers.errors import EXIT_UNREACHABLE


def end_within(seconds: float) -> None:
    """From now on this process has so many seconds."""
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
