"""Did a row make its requests fail, or did the server fail by chance?

Some servers break connections at random, or refuse rows because they are busy. So a row is blamed
only if chance hardly explains its failures. Suppose that chance did it all: of the requests since
the server began to fail, it hit those with the row and `broken` others, and spared `answered`. Then
the probability that all `trials` of the row are among those that were hit is

    (broken + 1) / (answered + broken + 1) · (broken + 2) / (answered + broken + 2) · ...

with one factor for each trial. One in a million blames the row. One in a thousand is enough if the
server had been steady and has broken no good request since: that such a server begins to break
requests at random just when a bad row comes has a probability of one in a thousand itself.

    steady | answered | broken | trials until the row is blamed
    yes    |       20 |      0 | 3
    yes    |        8 |      0 | 5
    no     |      200 |      0 | 3
    no     |       50 |      0 | 5
    no     |       10 |      0 | 13
    no     |       90 |     10 | 7
    no     |      100 |    100 | 22: half of all requests fail

Pure. Owner: the health of one model server, with one `Chance` for each kind of failure.
"""

import math
from typing import Final

LEAST_TRIALS: Final = 3
DOUBT: Final = 1e-6
DOUBT_OF_STEADY: Final = 1e-3
# A server is steady after this many answers without a failure. A failure that comes then may be the
# first of many, so the count begins anew.
STEADY_ANSWERS: Final = 100
# Older requests tell little about the server as it is now, so of more than this many each counts
# half.
REMEMBERED: Final = 200
# Several rows are cut when the probability that chance failed them is at most this. A cut costs
# requests, but rejects no row.
CUT_DOUBT: Final = 0.1


class Chance:
    """One kind of failure. `answered`, `broken`: the good requests since the server began to fail
    in this way.
    """

    __slots__ = ("_has_failed", "_in_a_row", "_was_steady", "answered", "broken")

    def __init__(self) -> None:
        self.answered = self.broken = self._in_a_row = 0
        self._has_failed = self._was_steady = False

    def succeeded(self) -> None:
        """A request did not fail in this way."""
        self._in_a_row += 1
        self.answered += 1
        if self.answered + self.broken > REMEMBERED:
            self.answered, self.broken = self.answered // 2, self.broken // 2

    def failed(self) -> None:
        """A request failed in this way, because of its rows or by chance."""
        is_steady = self._in_a_row >= STEADY_ANSWERS
        if is_steady or not self._has_failed:
            self._was_steady, self._has_failed = is_steady, True
            self.answered = self.broken = 0
        self._in_a_row = 0

    def explains(self, failures: int) -> None:
        """So many requests failed in this way whose rows turned out to be good."""
        self.broken += failures
        self._was_steady = False

    def blames(self, trials: int) -> bool:
        """True if the row is bad that was sent alone this often, and failed each time."""
        by_chance = math.prod(
            (self.broken + trial) / (self.answered + self.broken + trial)
            for trial in range(1, trials + 1)
        )
        most = DOUBT_OF_STEADY if self._was_steady else DOUBT
        return trials >= LEAST_TRIALS and by_chance <= most

    def cuts(self, failures: int) -> bool:
        """True if one of the rows seems bad that were sent together and failed this often."""
        share = self.broken / max(1, self.answered + self.broken)
        return share**failures <= CUT_DOUBT
