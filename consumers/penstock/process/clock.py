"""The clocks of a process: the monotonic one for durations and the event loop's timers, the
system's for time stamps.
"""

import time


class SystemClock:
    # The loop's `time()` returns the same. `now` is the function of the system itself, because it
    # is called at every step of an object.
    now = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
