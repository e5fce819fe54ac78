"""How long records may be held back, so that one read brings several of them.

Rule: a read costs about 0.35 ms of CPU however many records it brings, and what is read together is
fetched, asked and written together. So a wait is worth it if it brings `WORTH_RECORDS`. A worker
with time to spare waits `LEAST_MS`, and rare records never wait. The busier its thread, the longer
the wait: on a full machine CPU is what rows wait for. A thread that waits for a processor is as
busy as one that works. A broker holds back only its own records, so with several brokers the reader
pauses instead: else each of them would wait for its share, and have a read of its own.
"""

from collections.abc import Callable
from typing import Final

# Shorter than the time that a row may wait in the window by default.
LEAST_MS: Final = 4
MOST_MS: Final = 12
# In 4 ms, 40 streams at 20 Hz bring 3.2 records, and 10 such streams bring 0.8 records.
WORTH_RECORDS: Final = 2.0
# From this share of a processor on the wait grows; at the other one it is the longest.
CALM: Final = 0.6
FULL: Final = 0.9
# Time constant of the moving average of the record rate.
RATE_MEMORY_S: Final = 0.5


class Gather:
    """Call `note` after every read. `wait_ms`: how long the next read may wait. `busy`: for the
    present time, which share of the latest time the thread has worked or waited for a processor.
    `in_pauses`: True if the reader pauses before a read, False if the broker holds back its answer.
    """

    def __init__(self, busy: Callable[[float], float], *, in_pauses: bool = False) -> None:
        self.wait_ms = 0
        self.in_pauses = in_pauses
        self._busy = busy
        self._rate_hz = 0.0
        self._read_s: float | None = None

    @property
    def pause_s(self) -> float:
        return self.wait_ms / 1000 if self.in_pauses else 0.0

    def note(self, records: int, now_s: float) -> None:
        """A read brought this number of `records`."""
        before_s, self._read_s = self._read_s, now_s
        if before_s is None:
            return
        passed_s = max(now_s - before_s, 1e-6)
        share = min(1.0, passed_s / RATE_MEMORY_S)
        self._rate_hz += share * (records / passed_s - self._rate_hz)
        lack = min(max((self._busy(now_s) - CALM) / (FULL - CALM), 0.0), 1.0)
        wait_ms = round(LEAST_MS + lack * (MOST_MS - LEAST_MS))
        is_worth_it = records and self._rate_hz * wait_ms / 1000 >= WORTH_RECORDS
        self.wait_ms = wait_ms if is_worth_it else 0
