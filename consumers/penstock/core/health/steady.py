"""Decides which findings about a worker are shown: each from its start until 3 s after its end.

Rule: what is measured is at times on this side of a threshold and at times on the other; people and
alerts must not see it come and go. Pure: time is an argument. Owner: the worker's figures.
"""

from typing import Final, Generic, TypeVar

# Some looks of a page, which looks once a second.
HOLD_S: Final = 3.0

Found = TypeVar("Found")


class Steady(Generic[Found]):
    """One of several values, or None."""

    def __init__(self) -> None:
        self._told: Found | None = None
        self._seen_s = 0.0

    def tell(self, found: Found | None, now_s: float) -> Found | None:
        """What to tell, after this was found. Another value waits until the one before has gone."""
        if self._told is None or now_s - self._seen_s >= HOLD_S:
            self._told = found
        if self._told == found:
            self._seen_s = now_s
        return self._told
