"""How many calls may the streams have at a time that go apart?

Rule: as many as do not hold up the calls of all other streams, to which always one is left if there
may be several. How many calls a server really works on at a time is not known, so the number begins
at one. It grows while the others' calls are as fast with so many calls beside them, and shrinks if
they wait for them; after that it stays for a while. While no other stream has a call, nothing
limits it. Pure: time is an argument. Owner: the microbatch stage.
"""

import math
from typing import Final

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
# After the number has shrunk it stays for this long, each time twice as long up to `MOST_REST_S`.
REST_S: Final = 30.0
MOST_REST_S: Final = 480.0
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
        self._rest_s = REST_S
        self._rest_until_s = -math.inf
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
            self._rest_until_s = now_s + self._rest_s
            self._rest_s = min(MOST_REST_S, 2 * self._rest_s)
        elif (
            self._calls >= GROW_CALLS and self._held_up < GROW_SHARE and now_s >= self._rest_until_s
        ):
            self._change(self.most + 1)

    def _change(self, most: int) -> None:
        self.most, self._held_up, self._calls = most, 0.0, 0
