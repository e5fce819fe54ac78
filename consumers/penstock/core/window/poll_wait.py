"""Is it worth waiting a little before the next poll?

Rule: a poll costs about 0.35 ms of CPU whatever it brings (aiokafka's fetch, its tasks, the way of
one lone record through all stages). So when records come so often that a short wait brings several
together, wait; when they are rare, never. Owner: the consume stage.
"""

# Less than a row may wait in the window by default, more than a fetch takes on a quiet broker.
GATHER_S = 0.004
# Waiting pays if this many records come meanwhile. In that time 40 streams at 20 Hz bring 3.2
# records, 10 streams 0.8.
WORTH_RECORDS = 2.0
# Time constant of the moving average of the record rate.
MEMORY_S = 0.5


class Gather:
    """Tell it of every poll; it returns how long to wait before the next."""

    def __init__(self) -> None:
        self._rate_hz = 0.0
        self._polled_s: float | None = None

    def wait_s(self, records: int, now_s: float) -> float:
        """Seconds to wait after a poll that brought `records`."""
        before_s, self._polled_s = self._polled_s, now_s
        if before_s is None:
            return 0.0
        passed_s = max(now_s - before_s, 1e-6)
        share = min(1.0, passed_s / MEMORY_S)
        self._rate_hz += share * (records / passed_s - self._rate_hz)
        return GATHER_S if records and self._rate_hz * GATHER_S >= WORTH_RECORDS else 0.0
