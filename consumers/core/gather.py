"""Is it worth waiting a little before the next poll?

Rule: a poll costs about 0.35 ms of CPU whatever it brings (aiokafka's fetch, its tasks, the way of
one lone record through all stages). So when records come so often that a short wait brings several
together, wait; when they are rare, never. Owner: the consume stage.
"""

# Below what a row may wait in the window by default, above what a fetch takes on a quiet broker.
GATHER_S = 0.004
# Fewer are not worth it: 40 streams at 20 Hz bring 3.2 in that time, 10 streams 0.8.
WORTH_RECORDS = 2.0
# How fast the rate is believed and forgotten.
MEMORY_S = 0.5


class Gather:
    """Tell it every poll; it tells how long to wait before the next."""

    def __init__(self) -> None:
        self._rate_hz = 0.0
        self._polled_s: float | None = None

    def wait_s(self, records: int, now_s: float) -> float:
        """After a poll that brought so many records."""
        before_s, self._polled_s = self._polled_s, now_s
        if before_s is None:
            return 0.0
        passed_s = max(now_s - before_s, 1e-6)
        share = min(1.0, passed_s / MEMORY_S)
        self._rate_hz += share * (records / passed_s - self._rate_hz)
        return GATHER_S if records and self._rate_hz * GATHER_S >= WORTH_RECORDS else 0.0
