"""The figures of the worker over the last ten minutes, a value every ten seconds; and how far each
of the streams in most trouble was behind.

Rule: a value is noted once a window (`WINDOW_S`). The ages of at most `MOST` streams are kept, so
memory does not grow with the number of streams. Owner: the flow.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.telemetry.recent import HISTORY, WINDOW_S
from penstock.telemetry.streams import SHOWN

# The ages of at most this many streams are kept. The stream whose age was noted longest ago is
# forgotten first.
MOST: Final = 4 * SHOWN
NAMES: Final = ("p99_ms", "rows_per_s", "backlog_s", "utilisation")


class History:
    """Call `note` once a window."""

    def __init__(self) -> None:
        self._windows = 0
        self._worker: deque[Mapping[str, float | None]] = deque(maxlen=HISTORY)
        # For each stream, pairs of a window's number and the stream's age in that window. The
        # newest pair is last.
        self._ages: dict[str, deque[tuple[int, float]]] = {}

    def note(
        self, worker: Mapping[str, float | None], streams: Sequence[Mapping[str, Any]]
    ) -> None:
        """`worker`: a value for each of `NAMES`. `streams`: those that the status shows now."""
        self._windows += 1
        self._worker.append(worker)
        for one in streams:
            ages = self._ages.pop(one["stream"], None) or deque(maxlen=HISTORY)
            ages.append((self._windows, one["age_s"]))
            self._ages[one["stream"]] = ages
        while len(self._ages) > MOST:
            del self._ages[next(iter(self._ages))]

    @property
    def of_worker(self) -> dict[str, Any]:
        """The figures of the worker, in the form that the status shows."""
        columns = {name: [one[name] for one in self._worker] for name in NAMES}
        return {"every_s": int(WINDOW_S), **columns}

    def ages_of(self, stream: str) -> list[float | None]:
        """The stream's age in each window, the newest last. None stands for a window in which the
        status did not show the stream.
        """
        oldest = self._windows - HISTORY
        ages = {at: age_s for at, age_s in self._ages.get(stream, ()) if at > oldest}
        if not ages:
            return []
        return [ages.get(at) for at in range(min(ages), self._windows + 1)]
