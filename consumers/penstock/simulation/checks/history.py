"""What happened, in order; and the first promise that was broken.

Rule: notes are cheap and say the same on every run of a seed, so their digest tells whether a
replay was exact. Owner: one simulation.
"""

import asyncio
import hashlib
from collections import Counter

# Enough to see what led to it; a whole history has thousands.
SHOWN_NOTES = 60


class Violation(Exception):
    """A promise was broken; the text has the seed, the promise and what happened before."""


class History:
    """`note` what happens, `broken` a promise."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.failure: Violation | None = None
        self.failed = asyncio.Event()
        self._notes: list[str] = []

    def note(self, what: str, about: str = "") -> None:
        self.counts[what] += 1
        now_s = asyncio.get_running_loop().time()
        self._notes.append(f"{now_s:10.4f} {what} {about}")

    def broken(self, promise: str) -> Violation:
        """To be raised by who found it; the first one ends the simulation."""
        if self.failure is None:
            shown = "\n".join(self._notes[-SHOWN_NOTES:])
            self.failure = Violation(f"seed {self.seed}: {promise}\n{shown}")
            self.failed.set()
        return self.failure

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self._notes).encode()).hexdigest()

    def instants(self) -> str:
        """As `digest`, whatever the order of what happened at the same instant."""
        return hashlib.sha256("\n".join(sorted(self._notes)).encode()).hexdigest()
