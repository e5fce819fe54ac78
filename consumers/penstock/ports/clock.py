"""The time, as the pipeline is given it.

Rule: no part of the pipeline asks the system. Owner: the application; a test has one of its own.
"""

from typing import Protocol


class Clock(Protocol):
    """Time as an argument of the whole pipeline, so that tests can own it."""

    def now(self) -> float:
        """Monotonic seconds, the running event loop's own."""
        ...

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        ...
