"""Times: monotonic for durations, as the event loop's timers go by, the system's for time stamps,
and how long this thread has worked.
"""

import time
from pathlib import Path
from typing import Final

# Of Linux: nanoseconds of work, then of waiting for a processor.
SCHEDULED: Final = Path("/proc/thread-self/schedstat")


class SystemClock:
    def now(self) -> float:
        # The same as `loop.time()`, which would need the running loop: finding it costs Python 3.11
        # a getpid.
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def wanted_cpu_s() -> float:
    """How long the thread that asks has worked, or waited for a processor: one that a container's
    limit or its neighbours hold up is as busy as one that works. Where the system does not tell
    the wait: the work alone.
    """
    try:
        worked_ns, waited_ns, *_ = SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(worked_ns) + int(waited_ns)) / 1e9
