"""How much of a store's reads backlog has beside live objects.

Rule: backlog is read one object at a time, with a rest behind each, so it has a share of one read;
a share above 1 is so many objects at a time, without a rest. The share is as large as live objects
bear, and what they bear is an experiment: for a tenth of the time backlog rests, which shows how
long live objects take alone, from their record until they are read. Of ten of them beside backlog,
no more than one may take `BEARABLE` times as long as nine of ten take alone. So whatever is short
(the store, this process, the machine's processors) is found, and a slow machine is compared with
itself alone. Pure: time is an argument.
"""

import math
from typing import Final

# The promise: live objects take at most this many times as long as without backlog, and backlog has
# at least nine tenths of what is left.
BEARABLE: Final = 1.2
TURN_S: Final = 2.0
ALONE_S: Final = 0.1 * TURN_S
# This long after an object of backlog was read its rows are on their way to the model and the
# topic. Beside 20 streams at 20 Hz half of the live objects took 23 to 28 ms from their record to
# their delivery.
SETTLE_S: Final = 0.05
# The share at first: what backlog has of the model's calls, too.
BEGIN: Final = 0.25
LEAST: Final = 0.01
# The share shrinks faster than it grows, because live objects come first.
GROW: Final = 1.25
SHRINK: Final = 1.5
# Which quantile of live times alone is tracked, and how far each step of the tracking goes. Sixty
# objects, those of a rest beside 20 streams at 20 Hz, move it down by a quarter at most.
QUANTILE: Final = 0.9
STEP: Final = 0.05
# Fewer objects beside backlog tell nothing: of 100, 10 above the quantile are 7 to 13 by chance.
LEAST_OBJECTS: Final = 100
DOUBT: Final = 0.03
# What is known of live times alone is no smaller.
LEAST_S: Final = 1e-6


class ReadShare:
    """Call `live` when a live object was read; of backlog, `begin` before an object is read, and
    `rest_s` when it was.
    """

    def __init__(self) -> None:
        self.share = BEGIN
        self._alone_s: float | None = None
        self._objects = self._slow = self._reading = 0
        self._read_s = self._turn_s = self._alone_until_s = -math.inf

    @property
    def at_a_time(self) -> int:
        return max(1, int(self.share))

    def live(self, took_s: float, now_s: float) -> None:
        """A live object was read, `took_s` after its record came."""
        alone_s = self._alone_s
        if not self._reading and now_s - self._read_s > SETTLE_S:
            if alone_s is None:
                self._alone_s = max(took_s, LEAST_S)
                return
            up = QUANTILE if took_s > alone_s else QUANTILE - 1.0
            self._alone_s = max(alone_s * math.exp(STEP * up), LEAST_S)
        elif alone_s is not None:
            self._objects += 1
            self._slow += took_s > BEARABLE * alone_s

    def begin(self) -> None:
        self._reading += 1

    def rest_s(self, took_s: float, now_s: float, *, is_wanted: bool) -> float:
        """How long backlog rests behind an object that took `took_s`. `is_wanted`: more objects
        wait for their turn.
        """
        self._reading -= 1
        self._read_s = now_s
        if now_s >= self._turn_s + TURN_S - ALONE_S:
            self._alone_until_s = self._turn_s = now_s + ALONE_S
            self._learn(is_wanted=is_wanted)
        if now_s < self._alone_until_s:
            return self._alone_until_s - now_s
        return min(TURN_S, max(0.0, took_s * (1.0 / self.share - 1.0)))

    def _learn(self, *, is_wanted: bool) -> None:
        if self._objects < LEAST_OBJECTS:
            return
        slow = self._slow / self._objects
        if slow > 1.0 - QUANTILE + DOUBT:
            self.share = max(LEAST, self.share / SHRINK)
        elif slow <= 1.0 - QUANTILE and is_wanted:
            self.share *= GROW
        self._objects = self._slow = 0
