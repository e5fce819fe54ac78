"""Which rejections get a log line of their own?

Rule: the first rejection of each stream and code gets a line at once. Later rejections are only
counted, and the counts are logged when the round of `ROUND_S` ends. However many rows of however
many streams fail, no minute has more than 60 lines. In the worst case a minute has the first lines
of two rounds and the counts of one, or the first lines of one round and the counts of two.
Rejections for which a round has no line left are counted together. Pure. Owner: the reject stage.
"""

from typing import NamedTuple

ROUND_S = 60.0
MOST_FIRST = 19
MOST_AGAIN = 19
# This many pairs of stream and code take some 30 KB. A worker rarely has more of them at a time.
MOST_PAIRS = 200


class Again(NamedTuple):
    """How many more rows or objects were rejected. `kind`: stream and code; None: all pairs of
    stream and code that got no line of their own.
    """

    kind: tuple[str, str] | None
    rejected: int


class LoggedRejections:
    """Call `first` for each rejection, and `round_over` at the end of every `ROUND_S` in which
    there was a rejection.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._firsts = 0
        self._rest = 0

    def first(self, stream: str, code: str, count: int) -> bool:
        """Does this rejection get a line now? If not, its `count` is logged at the end of the
        round.
        """
        kind = stream, code
        if kind in self._counts:
            self._counts[kind] += count
            return False
        if self._firsts == MOST_FIRST or len(self._counts) == MOST_PAIRS:
            self._rest += count
            return False
        self._firsts += 1
        self._counts[kind] = 0
        return True

    def round_over(self) -> list[Again]:
        """Returns the counts of the round, the largest first. When the memory is full, kinds
        without a rejection in this round are forgotten, so the next rejection of such a kind counts
        as a first one.
        """
        counted = sorted(
            (Again(kind, count) for kind, count in self._counts.items() if count),
            key=lambda one: -one.rejected,
        )
        told, left = counted[:MOST_AGAIN], counted[MOST_AGAIN:]
        if rest := self._rest + sum(one.rejected for one in left):
            told.append(Again(None, rest))
        is_full = len(self._counts) == MOST_PAIRS
        self._counts = {kind: 0 for kind, n in self._counts.items() if n or not is_full}
        self._firsts = self._rest = 0
        return told
