"""From when may backlog leave the window, and from when streams that go apart?

Rule: huge objects give way to small live objects, and a replay gives way to the live group. While
fresh small objects arrive, here or for the live group beside a replay, only one batch of backlog is
with the model at a time, and then backlog pauses for a multiple of the time that it took: a fixed
share of one call slot on any machine. Without fresh small objects it makes no pause, because a
group that is late anyway needs throughput. A replay stands still while the live group is late.

Streams apart have as many calls at a time as do not slow the calls of all other streams, to which
always one is left if there may be several. How many calls a server really works on at a time is not
known, so the number begins at one and is tried. Pure: time is an argument.
"""

import math
from typing import Final

from penstock.core.health.other_groups import Neighbour
from penstock.core.window.window import BACKLOG_ROWS

# How long after a small object the next one is still expected: two ticks of a stream at 20 Hz.
EXPECT_S = 0.1
# An object that is read later than this after its announcement belongs to a backlog, not to a live
# stream.
FRESH_S = 1.0
# How long backlog pauses after a batch, as a multiple of the time that the batch's call took.
REST = 3.0
# The upper limit of this pause, for slow servers with long calls.
MOST_REST_S = 0.1
# A call was held up if it took this many times as long as fast calls do, and this share of what a
# call apart takes. If calls apart are hardly longer than others, they hold nothing up.
HELD_UP: Final = 4.0
HELD_SHARE: Final = 1 / 3
# The number shrinks if more than this share of the last calls was held up, and grows after so many
# calls if less than the other share was.
SHRINK_SHARE: Final = 0.3
GROW_SHARE: Final = 0.05
STEP: Final = 0.1
GROW_CALLS: Final = 20
# After the number has shrunk it stays for this long, each time twice as long up to `MOST_STAY_S`.
STAY_S: Final = 30.0
MOST_STAY_S: Final = 480.0
# The fastest call counts less with each further call, so a server may become slower.
FADES: Final = 1.01
# After this time without a call of another stream there is none to hold up.
QUIET_S: Final = 1.0


class ApartCalls:
    """Call `taken` and `done` for each batch. After each of them, no batch apart may leave before
    `from_s`. `most`: how many calls apart may be in flight beside others.
    """

    def __init__(self) -> None:
        self.most = 1
        self._in_flight = self._others = 0
        self._apart_s = 0.0
        self._fast_s = math.inf
        self._held_up = 0.0
        self._calls = 0
        self._stay_s = STAY_S
        self._stay_until_s = -math.inf
        self._others_s = -math.inf

    def from_s(self, calls: int) -> float:
        """`calls`: how many calls there may be at a time, of all streams."""
        if self._in_flight < max(1, min(self.most, calls - 1)):
            return 0.0
        if self._others or self._in_flight >= calls:
            return math.inf
        return self._others_s + QUIET_S

    def taken(self, now_s: float, *, is_apart: bool) -> int:
        """Returns beside how many calls apart this one goes."""
        beside = self._in_flight
        if is_apart:
            self._in_flight += 1
        else:
            self._others += 1
        return beside

    def done(self, took_s: float, beside: int, now_s: float, *, is_apart: bool) -> None:
        if is_apart:
            self._in_flight -= 1
            self._apart_s += STEP * (took_s - self._apart_s) if self._apart_s else took_s
            return
        self._others -= 1
        self._others_s = now_s
        self._fast_s = min(FADES * self._fast_s, took_s)
        # A call beside fewer calls apart tells nothing of the present number.
        if beside < self.most:
            return
        is_held_up = took_s > HELD_UP * self._fast_s and took_s > HELD_SHARE * self._apart_s
        self._held_up += STEP * (is_held_up - self._held_up)
        self._calls += 1
        if self._held_up > SHRINK_SHARE:
            self._change(max(1, self.most - 1))
            self._stay_until_s = now_s + self._stay_s
            self._stay_s = min(MOST_STAY_S, 2 * self._stay_s)
        elif (
            self._calls >= GROW_CALLS and self._held_up < GROW_SHARE and now_s >= self._stay_until_s
        ):
            self._change(self.most + 1)

    def _change(self, most: int) -> None:
        self.most, self._held_up, self._calls = most, 0.0, 0


class BacklogPace:
    """Call each method when its event happens. `beside`, `taken` and `answered` return the time
    before which no backlog may leave.
    """

    def __init__(self) -> None:
        self._expected_until_s = -math.inf
        self._neighbour: Neighbour = "quiet"

    def beside(self, neighbour: Neighbour) -> float:
        """Note the state of the live group that runs beside this replay."""
        self._neighbour = neighbour
        return math.inf if neighbour == "behind" else 0.0

    def read(self, rows: int, age_s: float, now_s: float) -> None:
        """An object of `rows` rows was read, `age_s` after it was announced."""
        if rows < BACKLOG_ROWS and age_s <= FRESH_S:
            self._expected_until_s = now_s + EXPECT_S

    def taken(self, now_s: float) -> float:
        """A batch with backlog goes to the model."""
        return math.inf if self._has_live(now_s) else 0.0

    def answered(self, took_s: float, now_s: float) -> float:
        """The batch with backlog was answered after `took_s`."""
        if self._neighbour == "behind":
            return math.inf
        return now_s + min(MOST_REST_S, REST * took_s) if self._has_live(now_s) else 0.0

    def _has_live(self, now_s: float) -> bool:
        return now_s < self._expected_until_s or self._neighbour != "quiet"
