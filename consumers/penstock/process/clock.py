"""The clocks of a process. The monotonic clock is for durations, and the event loop's timers use
it. The system's clock is for time stamps.
"""

import time


class SystemClock:
    def now(self) -> float:
        # `loop.time()` returns the same. But to call it, the running loop would have to be found,
        # which costs a getpid in Python 3.11.
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
