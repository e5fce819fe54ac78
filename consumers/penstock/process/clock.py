"""The two times of the pipeline: monotonic for durations, as the event loop's timers go by, and the
system's for time stamps.
"""

import time


class SystemClock:
    def now(self) -> float:
        # The same as `loop.time()`, which would need the running loop: finding it costs Python 3.11
        # a getpid.
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
