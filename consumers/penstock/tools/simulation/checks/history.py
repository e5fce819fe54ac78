"""What happened in a simulation, in order; and the first promise that was broken.

Rule: the notes of a seed are the same on every machine, so equal digests show that the same things
happened.
"""

import asyncio
import hashlib
from collections import Counter

# How many of the last notes the error shows. A history has thousands of notes.
SHOWN_NOTES = 60


class Violation(Exception):
    """A promise is broken. The text has the seed, the promise and the last notes."""


class History:
    """Call `note` for each event, and `broken` for each broken promise."""

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
        """A promise is broken, which ends the simulation. Returns the error of the first broken
        promise, which the caller may raise.
        """
        if self.failure is None:
            shown = "\n".join(self._notes[-SHOWN_NOTES:])
            self.failure = Violation(f"seed {self.seed}: {promise}\n{shown}")
            self.failed.set()
        return self.failure

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self._notes).encode()).hexdigest()

    def instants(self) -> str:
        """A digest that does not depend on the order of the notes of one instant."""
        return hashlib.sha256("\n".join(sorted(self._notes)).encode()).hexdigest()
