"""How far the streams in most trouble were behind, over the last ten minutes.

Rule: noted once a window, of the streams that are told then; so memory is bounded by those that
were told lately. Owner: the flow.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.telemetry.recent import HISTORY
from penstock.telemetry.streams import SHOWN

# Of streams that are told no more, the one that was told last is kept longest.
MOST: Final = 4 * SHOWN


class Ages:
    def __init__(self) -> None:
        self._rounds = 0
        # By stream: rounds and ages, the newest last.
        self._ages: dict[str, deque[tuple[int, float]]] = {}

    def note(self, streams: Sequence[Mapping[str, Any]]) -> None:
        """The ages that are told now."""
        self._rounds += 1
        for one in streams:
            found = self._ages.pop(one["stream"], None) or deque(maxlen=HISTORY)
            found.append((self._rounds, one["age_s"]))
            self._ages[one["stream"]] = found
        while len(self._ages) > MOST:
            del self._ages[next(iter(self._ages))]

    def of(self, stream: str) -> list[float | None]:
        """By window, the newest last; None: it was not told then."""
        ages = {
            at: age_s for at, age_s in self._ages.get(stream, ()) if at > self._rounds - HISTORY
        }
        if not ages:
            return []
        return [ages.get(at) for at in range(min(ages), self._rounds + 1)]
