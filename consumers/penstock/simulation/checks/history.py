"""What happened, in order; and the first promise that was broken.

Rule: a run notes the same on every machine, so equal digests of the notes show that a replay was
exact. Noting is cheap. Owner: one simulation.
"""

import asyncio
import hashlib
from collections import Counter

# The whole history has thousands of notes; the last ones show what led to a failure.
SHOWN_NOTES = 60


class Violation(Exception):
    """A promise was broken. The text has the seed, the promise and the last notes."""


class History:
    """`note` what happens; `broken` tells of a broken promise."""

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
        """Returns the error for the caller to raise. The first one ends the simulation."""
        if self.failure is None:
            shown = "\n".join(self._notes[-SHOWN_NOTES:])
            self.failure = Violation(f"seed {self.seed}: {promise}\n{shown}")
            self.failed.set()
        return self.failure

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self._notes).encode()).hexdigest()

    def instants(self) -> str:
        """A digest in which the order of notes of the same instant does not matter."""
        return hashlib.sha256("\n".join(sorted(self._notes)).encode()).hexdigest()
