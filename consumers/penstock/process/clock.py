"""The two times of the pipeline: monotonic for durations, as the event loop's timers go by, and the
system's for time stamps.
"""

import time


class SystemClock:
    def now(self) -> float:
        # What `loop.time()` is. To ask for the running loop costs Python 3.11 a getpid each time.
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
