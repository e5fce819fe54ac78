"""The two times of the pipeline: the running loop's own for durations, the system's for time
stamps.
"""

import asyncio
import time


class SystemClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
