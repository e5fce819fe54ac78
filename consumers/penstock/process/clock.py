"""The clocks of a process. The monotonic clock is for durations, and the event loop's timers use
it. The system's clock is for time stamps. A third clock tells how long the calling thread has
worked.
"""

import time
from pathlib import Path
from typing import Final

# A file of Linux. It holds two times in nanoseconds: the work of the thread, and its wait for a
# processor.
SCHEDULED: Final = Path("/proc/thread-self/schedstat")


class SystemClock:
    def now(self) -> float:
        # `loop.time()` returns the same. But to call it, the running loop would have to be found,
        # which costs a getpid in Python 3.11.
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def wanted_cpu_s() -> float:
    """How long the calling thread has worked, or waited for a processor. The wait counts, because a
    thread that is held up by a container's limit or by other processes is as busy as one that
    works. If the system does not tell the wait, only the work counts.
    """
    try:
        worked_ns, waited_ns, *_ = SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(worked_ns) + int(waited_ns)) / 1e9
