"""How long this thread has worked, or waited for a processor.

Rule: the wait counts: a thread that a container's limit or its neighbours hold up is as busy as one
that works. Owner: the caller, from the thread itself.
"""

import time
from pathlib import Path
from typing import Final

# Of Linux: nanoseconds of work, then of waiting for a processor.
SCHEDULED: Final = Path("/proc/thread-self/schedstat")


def wanted_cpu_s() -> float:
    """Where the system does not tell the wait: the work alone."""
    try:
        worked_ns, waited_ns, *_ = SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(worked_ns) + int(waited_ns)) / 1e9
